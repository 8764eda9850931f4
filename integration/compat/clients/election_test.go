package clients

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"
)

// TestElection: candidates lead one after the other, and an observer sees each of them.
func TestElection(t *testing.T) {
	const candidates = 4
	n, ctx := start(t), bounded(t)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	observed := concurrency.NewElection(newSession(t, n, 60), "/race").Observe(watching)

	var group errgroup.Group
	for i := range candidates {
		e := concurrency.NewElection(newSession(t, n, 60), "/race")
		group.Go(func() error {
			name := fmt.Sprint("candidate ", i)
			if err := e.Campaign(ctx, name); err != nil {
				return err
			}
			leader, err := e.Leader(ctx)
			if err != nil {
				return err
			}
			if got := string(leader.Kvs[0].Value); got != name || leader.Kvs[0].CreateRevision != e.Rev() {
				return fmt.Errorf("%s leads, but the answer names %s", name, got)
			}
			// The observer must see the word before it is taken back.
			if err := e.Proclaim(ctx, name+" again"); err != nil {
				return err
			}
			for r := range observed {
				if string(r.Kvs[0].Value) == name+" again" {
					return e.Resign(ctx)
				}
			}
			return ctx.Err()
		})
	}
	require.NoError(t, group.Wait())
	_, err := concurrency.NewElection(newSession(t, n, 60), "/race").Leader(ctx)
	require.ErrorIs(t, err, concurrency.ErrElectionNoLeader)
	require.Empty(t, contents(t, n.Client(), "/race"))
	stop()
	for range observed { // until it is closed
	}
}

// TestElectionResumed: a leader whose program came back speaks on as such, until
// its lease is gone.
func TestElectionResumed(t *testing.T) {
	n, ctx := start(t), bounded(t)
	s := newSession(t, n, 60)
	e := concurrency.NewElection(s, "/race")
	require.NoError(t, e.Campaign(ctx, "before"))
	n.Kill()
	n.Start()
	resumed := concurrency.ResumeElection(s, "/race", e.Key(), e.Rev())
	require.NoError(t, resumed.Proclaim(ctx, "after"))
	leader, err := resumed.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "after", string(leader.Kvs[0].Value))
	require.NoError(t, s.Close())
	require.ErrorIs(t, resumed.Proclaim(ctx, "too late"), concurrency.ErrElectionNotLeader)
}
