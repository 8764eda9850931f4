package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/integration/internal/load"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	siegeWorkers   = 12
	siegeClients   = 4
	requestTimeout = 10 * time.Second
	// verifyWait bounds one verification, which reads the whole account.
	verifyWait = 5 * time.Minute
	// oldStates is how many old revisions are read again after each round.
	oldStates = 5
)

// siege is a node under load: rounds of load and trouble, each followed by a
// verification of all answers to clients, and watches that stay open
// through all of them.
type siege struct {
	t        *testing.T
	node     *harness.Node
	seed     uint64
	rnd      *rand.Rand
	recorder *history.Recorder
	verifier *history.Verifier
	clients  []*clientv3.Client
	watches  []*load.Watch
	round    int
	oldest   int64 // revisions below it may be compacted
}

// newSiege prepares a siege of a fresh node. It fails at once if the node is not
// empty at revision 1.
func newSiege(t *testing.T, node *harness.Node) *siege {
	t.Helper()
	s := &siege{t: t, node: node, seed: harness.Seed(), recorder: history.NewRecorder(), oldest: 1}
	t.Logf("replay the requests with -seed=%d (their interleaving is the machine's)", s.seed)
	s.rnd = rand.New(rand.NewPCG(s.seed, 0))
	s.verifier = history.NewVerifier(s.recorder, 1)
	for range siegeClients {
		s.clients = append(s.clients, node.Client())
	}
	watcher := node.Client()
	own := load.Prefix(0)
	for _, r := range []struct {
		history.Range
		prevKV bool
	}{
		{history.Range{Key: "\x00", End: "\x00"}, true},
		{history.Range{Key: own, End: clientv3.GetPrefixRangeEnd(own)}, false},
		{history.Range{Key: "/counter/0"}, true},
	} {
		w := load.Follow(t.Context(), watcher, r.Range, 2, r.prevKV)
		s.watches = append(s.watches, w)
		t.Cleanup(w.Stop)
	}
	return s
}

// under runs a round: load, and trouble during it. Trouble may use the recorder
// to wait for progress. The store must be back when trouble returns; then the
// load ends and everything is verified.
func (s *siege) under(trouble func(l *load.Load)) {
	s.t.Helper()
	s.round++
	l := load.Run(s.t.Context(), load.Config{
		Recorder: s.recorder, Clients: s.clients, Workers: siegeWorkers, Seed: s.seed, Round: s.round,
		RequestTimeout: requestTimeout, Oldest: s.oldest,
	})
	trouble(l)
	l.Stop()
	for _, c := range l.Errors() {
		if c != codes.Unavailable && c != codes.DeadlineExceeded {
			s.t.Errorf("round %d: requests may only fail with Unavailable or DeadlineExceeded: %s", s.round, l.Describe())
			break
		}
	}
	s.verify()
}

// progress waits until n more writes were acknowledged, however long the store
// is away in between.
func (s *siege) progress(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), verifyWait)
	defer cancel()
	before := s.recorder.Acked()
	if err := s.recorder.AwaitAcked(ctx, before+n); err != nil {
		s.t.Fatalf("round %d: %d writes acknowledged, waiting for %d: %v", s.round, s.recorder.Acked()-before, n, err)
	}
}

// verify compares all that was recorded with the store's account.
func (s *siege) verify() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), verifyWait)
	defer cancel()
	c := s.clients[0]
	before := s.verifier.Revision()
	wrong, err := s.verifier.Settle(ctx, c, s.rnd, s.oldest, oldStates)
	require.NoError(s.t, err)
	s.report("the store", wrong)
	for _, w := range s.watches {
		last := s.verifier.LastIn(w.Range)
		require.NoError(s.t, w.Await(ctx, last))
		s.report("a watch", s.verifier.CheckWatch(w.Range, w.Start, last, w.PrevKV, w.Seen()))
		require.NoError(s.t, w.Err())
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
	s.t.Logf("round %d: revisions %d to %d verified; of all unknown outcomes, %d were found and %d were not",
		s.round, before+1, s.verifier.Revision(), s.verifier.UnknownFound, s.verifier.Unknown-s.verifier.UnknownFound)
}

func (s *siege) report(what string, violations []string) {
	s.t.Helper()
	for _, v := range violations {
		s.t.Errorf("round %d: %s: %s", s.round, what, v)
	}
}

// compact discards the history below s.oldest, in the middle of a load and with
// faults at the same time. The first attempt may fail; it must succeed when they are over.
func (s *siege) compact(meanwhile func()) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), verifyWait)
	defer cancel()
	// A watch that takes up again where it was, below the compaction, would be
	// cancelled, and rightly so.
	for _, w := range s.watches {
		require.NoError(s.t, w.Await(ctx, s.oldest))
	}
	first := make(chan error, 1)
	go func() {
		_, err := s.clients[0].Compact(ctx, s.oldest, clientv3.WithCompactPhysical())
		first <- err
	}()
	meanwhile()
	if err := <-first; err != nil {
		eventually.Nil(s.t, verifyWait, func(ctx context.Context) error {
			if _, err = s.clients[0].Compact(ctx, s.oldest); errors.Is(err, rpctypes.ErrCompacted) {
				return nil
			}
			return err
		})
	}
	_, err := s.clients[0].Get(ctx, "a", clientv3.WithRev(s.oldest-1))
	require.ErrorIs(s.t, err, rpctypes.ErrCompacted)
}
