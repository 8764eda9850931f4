package snapshot

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/watch"
)

// watched returns the events of all keys in the revisions [from, to], with the
// versions before them where those can still be read.
func watched(t *testing.T, stream *watch.Stream, from, to int64) (events []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	stream.Create(watch.Permitted, watch.CreateRequest{Key: []byte{0}, End: []byte{0}, StartRevision: from, PrevKV: true})
	for last := int64(0); last < to; {
		r, err := stream.Next(ctx)
		require.NoError(t, err)
		require.False(t, r.Canceled, r.CancelReason)
		for i, e := range r.Events {
			last = e.Record.ModRevision
			line := fmt.Sprintf("%v %+v", e.Type, *e.Record)
			if p := r.Prev[i]; p != nil && last > from {
				line += fmt.Sprintf(" before: %+v", *p)
			}
			events = append(events, line)
		}
	}
	return events
}
