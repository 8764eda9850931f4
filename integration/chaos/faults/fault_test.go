package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/integration/internal/load"
	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

var discard = slog.New(slog.DiscardHandler)

// verifyWait bounds one run, with its verifications.
const verifyWait = 5 * time.Minute

const (
	// The workload of each case, the same in all of them.
	faultSeed           = 7
	faultSteps          = 40
	faultCommitTimeout  = 100 * time.Millisecond
	faultRequestTimeout = 300 * time.Millisecond
	// A driver gives a silent connection up after this: later than a commit,
	// sooner than a request.
	silence = 200 * time.Millisecond
)

// faults are the ways in which a statement fails.
var faults = []struct {
	name  string
	fault faultdriver.Fault
}{
	{"lost on the way", faultdriver.Fault{Before: faultdriver.ErrLost, Cut: true}},
	{"lost on the way back", faultdriver.Fault{After: faultdriver.ErrLost, Cut: true}},
	{"no answer", faultdriver.Fault{Delay: silence, Before: faultdriver.ErrLost, Cut: true}},
	{"carried out, no answer", faultdriver.Fault{Then: func() { <-time.After(silence) }, After: faultdriver.ErrLost, Cut: true}},
	{"broken off in the rows", faultdriver.Fault{Rows: faultdriver.ErrLost, RowsBefore: 1}},
}

// embedded is sqlbrain in this process, over a database whose statements can be
// made to fail.
type embedded struct {
	endpoint string
	stop     func() error
}

// startEmbedded starts it with short timeouts if statements fail, and with the default ones if inject is nil.
func startEmbedded(ctx context.Context, path string, inject *faultdriver.Injector) (e *embedded, err error) {
	own, cfg := replica.DefaultConfig(), server.DefaultConfig()
	if inject != nil {
		own.RequestTimeout, own.Write.CommitTimeout, cfg.RequestTimeout = faultRequestTimeout, faultCommitTimeout,
			faultRequestTimeout
	} else {
		inject = faultdriver.New()
	}
	u, err := sqlstore.ParseURL("sqlite://" + path)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, u); err != nil {
		return nil, err
	}
	store, err := engines.Open(ctx, u, sqlstore.Options{WrapConnector: inject.Wrap})
	if err != nil {
		return nil, err
	}
	own.Logger = discard
	b, err := replica.OpenLeader(ctx, store, own)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	closeAll := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verifyWait)
		defer cancel()
		return errors.Join(b.Close(ctx), store.Close())
	}
	cfg.ListenClientURLs, cfg.Logger = []string{"http://127.0.0.1:0"}, discard
	s, err := server.New(cfg, b)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	ctx, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	return &embedded{endpoint: s.ClientURLs()[0], stop: func() error {
		cancel()
		return errors.Join(<-ran, closeAll())
	}}, nil
}

// migrate makes the table, over a connection without faults.
func migrate(ctx context.Context, u *sqlstore.URL) error {
	db, err := engines.OpenDB(u, sqlstore.Options{})
	if err != nil {
		return err
	}
	return errors.Join(migrations.Up(ctx, db.DialectName(), db.SQL()), db.Close())
}

// TestEveryStatementFails runs a fixed workload once for each statement it sends
// and each way in which that can fail: every answer to a client is correct.
func TestEveryStatementFails(t *testing.T) {
	harness.NeedsDatabase(t)
	all := faultdriver.New()
	underFault(t, all)
	require.Greater(t, len(all.Seen()), faultSteps, "each write is a statement at least")

	// Every statement takes minutes. The usual run takes every so many-th of them,
	// beginning anywhere, so that many runs come to all.
	every := harness.UsualOrLong(8, 1)
	for _, f := range faults {
		meets := func(s faultdriver.Statement) bool { return f.fault.Rows == nil || s.Kind == faultdriver.Query }
		statements, struck := 0, 0
		for _, s := range all.Seen() {
			if meets(s) {
				statements++
			}
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("%d statements", statements)
			for n := 1 + rand.IntN(every); n <= statements; n += every {
				t.Run(fmt.Sprint("statement ", n), func(t *testing.T) {
					inject, met := faultdriver.New(), 0
					inject.Set(func(s faultdriver.Statement) faultdriver.Fault {
						if meets(s) {
							if met++; met == n {
								struck++
								return f.fault
							}
						}
						return faultdriver.Fault{}
					})
					underFault(t, inject)
				})
			}
			require.Positive(t, struck) // the last statements are not sent in every run
		})
	}
}

// underFault runs the workload over an active injector, and verifies the clients'
// answers while the node runs, and again after a restart.
func underFault(t *testing.T, inject *faultdriver.Injector) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), verifyWait)
	defer cancel()
	path := filepath.Join(t.TempDir(), "data.db")
	node, err := startEmbedded(ctx, path, inject)
	if err != nil {
		// A node may refuse to start on a database that fails. It must start next time.
		node, err = startEmbedded(ctx, path, nil)
	}
	require.NoError(t, err)
	c, err := harness.NewClient(node.endpoint)
	require.NoError(t, err)

	recorder := history.NewRecorder()
	verifier := history.NewVerifier(recorder, 1)
	rnd := rand.New(rand.NewPCG(faultSeed, 1))
	watch := load.Follow(ctx, c, history.Range{Key: "\x00", End: "\x00"}, 2, true)
	oldest := int64(1)
	check := func(c *clientv3.Client) {
		t.Helper()
		wrong, err := verifier.Settle(ctx, c, rnd, oldest, 2)
		require.NoError(t, err)
		require.Empty(t, wrong)
	}
	for round := range 2 {
		l := load.Sequence(ctx, load.Config{
			Recorder: recorder, Clients: []*clientv3.Client{c}, Seed: faultSeed, Round: round,
			RequestTimeout: 10 * time.Second, Oldest: oldest,
		}, faultSteps/2)
		require.Subset(t, []codes.Code{codes.Unavailable, codes.DeadlineExceeded}, l.Errors(), "%s", l.Describe())
		// The statements of the verification may be the ones that fail.
		repeatedly(ctx, t, func() error { _, err := c.Get(ctx, "settled"); return err })
		check(c)
		if round == 0 {
			oldest = verifier.Revision()
			repeatedly(ctx, t, func() error {
				_, err := c.Compact(ctx, oldest, clientv3.WithCompactPhysical())
				if errors.Is(err, rpctypes.ErrCompacted) {
					return nil // by the attempt before
				}
				return err
			})
		}
	}
	require.NoError(t, watch.Await(ctx, verifier.Revision()))
	require.Empty(t, verifier.CheckWatch(watch.Range, watch.Start, verifier.Revision(), watch.PrevKV, watch.Seen()))
	require.NoError(t, watch.Err())
	watch.Stop()
	require.NoError(t, c.Close())
	_ = node.stop() // its last statements may be the ones that fail

	node, err = startEmbedded(ctx, path, nil)
	require.NoError(t, err)
	c, err = harness.NewClient(node.endpoint)
	require.NoError(t, err)
	check(c)
	require.NoError(t, c.Close())
	require.NoError(t, node.stop())
}

// repeatedly calls f until it works.
func repeatedly(ctx context.Context, t *testing.T, f func() error) {
	t.Helper()
	for {
		err := f()
		if err == nil {
			return
		}
		require.Contains(t, []codes.Code{codes.Unavailable, codes.DeadlineExceeded}, history.Code(err), "%v", err)
		require.NoError(t, ctx.Err())
	}
}
