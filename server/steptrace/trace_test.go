package steptrace

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestNilTraceRecordsNothing(t *testing.T) {
	var none *Trace
	none.Record(Step{Kind: Commit})
	none.Answer(errors.New("refused"))
	require.Zero(t, none.Now())
	require.NoError(t, none.Close())
}

func TestStepsHaveNodeAndTime(t *testing.T) {
	var steps []Step
	now := time.Hour
	trace := New("n1", func() time.Duration { now++; return now }, func(s Step) { steps = append(steps, s) })
	began := trace.Now()
	trace.Record(Step{Kind: Resolve, Began: began, Token: coder.FenceToken{Sequence: 7}})
	require.Equal(t, []Step{{Node: "n1", Kind: Resolve, Began: time.Hour + 1, At: time.Hour + 2,
		Token: coder.FenceToken{Sequence: 7}}}, steps)
	require.NoError(t, trace.Close())
	trace.Record(Step{Kind: Show})
	require.Len(t, steps, 1, "nothing is recorded after Close")
}

func TestAnswersSayWhatIsKnown(t *testing.T) {
	var result Result
	trace := New("n1", func() time.Duration { return 0 }, func(s Step) { result = s.Result })
	for _, c := range []struct {
		err  error
		want Result
	}{
		{nil, Written},
		{fmt.Errorf("commit: %w", &sqlstore.Conflict{}), Conflict},
		{fmt.Errorf("commit: %w", sqlstore.ErrUncertain), Unknown},
		{sqlstore.ErrUnavailable, Refused},
	} {
		trace.Answer(c.err)
		require.Equal(t, c.want, result, "%v", c.err)
	}
}
