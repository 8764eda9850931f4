package fence

import (
	"errors"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

func TestCheckToken(t *testing.T) {
	held := coder.FenceToken{Sequence: 10, Term: 3, Revision: 7}
	for name, c := range map[string]struct {
		cur  coder.FenceToken
		want error
	}{
		"the same value":                    {held, nil},
		"a later commit of the same term":   {coder.FenceToken{Sequence: 11, Term: 3, Revision: 8}, nil},
		"a later term":                      {coder.FenceToken{Sequence: 11, Term: 4, Revision: 7}, ErrDeposed},
		"an older revision":                 {coder.FenceToken{Sequence: 10, Term: 3, Revision: 6}, ErrDataLost},
		"an older sequence":                 {coder.FenceToken{Sequence: 9, Term: 3, Revision: 7}, ErrDataLost},
		"an older term":                     {coder.FenceToken{Sequence: 10, Term: 2, Revision: 7}, ErrDataLost},
		"a later term at an older revision": {coder.FenceToken{Sequence: 12, Term: 4, Revision: 6}, ErrDataLost},
	} {
		if got := CheckToken(held, c.cur); !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestJudgeLost(t *testing.T) {
	lost := coder.DataLoss{Sequence: 10, Term: 3, Revision: 7, Member: 5, At: 1}
	if err := CheckMarker(lost, coder.FenceToken{Sequence: 10, Term: 3, Revision: 6}); !errors.Is(err, ErrDataLost) {
		t.Errorf("a fence row older than the data loss marker: %v", err)
	}
	// The right database came back, or a recovery went beyond the data loss marker.
	for _, cur := range []coder.FenceToken{{Sequence: 10, Term: 3, Revision: 7},
		{Sequence: 10 + RecoveredSequences, Term: 3 + RecoveredTerms, Revision: 8}} {
		if err := CheckMarker(lost, cur); err != nil {
			t.Errorf("%+v: %v", cur, err)
		}
	}
}
