package write

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// queued returns a request as Submit queues it.
func queued(t *mvcc.Txn) *request {
	return &request{cmd: NewTxnCommand(t), as: auth.System, done: make(chan result, 1)}
}

// keys returns how many keys the table has.
func (l *testLeader) keys(t *testing.T) int64 {
	t.Helper()
	res, err := l.p.cfg.Reader.At(l.Revision()).RangeAt(t.Context(), &mvcc.RangeRequest{KeyRange: all()})
	require.NoError(t, err)
	return res.Count
}

// No caller is waiting for a request that was taken, did not fit in the commit, and was
// abandoned during that.
func TestAbandonedRequestIsNotExecutedInALaterBatch(t *testing.T) {
	l := lead(t, newStore(t), func(c *Config) { c.Limits.BatchRows = 1 })
	first, second, third := queued(put("a", "1")), queued(put("b", "1")), queued(put("c", "1"))
	rest := l.p.runBatch(t.Context(), []*request{first, second, third})
	require.Len(t, rest, 2)
	second.state.Store(requestAbandoned)
	for len(rest) > 0 {
		rest = l.p.runBatch(t.Context(), rest)
	}
	require.NoError(t, (<-first.done).err)
	require.ErrorIs(t, (<-second.done).err, mvcc.ErrTimeout)
	require.NoError(t, (<-third.done).err)
	require.EqualValues(t, 3, l.Revision())
	require.EqualValues(t, 2, l.keys(t))
}

func TestRequestWhoseContextEndsInTheQueueIsNotExecuted(t *testing.T) {
	l := lead(t, newStore(t))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.p.Submit(ended, auth.System, NewTxnCommand(put("a", "1"))), context.Canceled)
	require.Equal(t, 1, l.p.Waiting())
	r := <-l.p.queue
	require.ErrorIs(t, r.as.Check(t.Context(), nil), auth.ErrNoPermit, "the permit keeps nothing in memory")
	require.Empty(t, l.p.runBatch(t.Context(), []*request{r}))
	require.EqualValues(t, 1, l.Revision())
}

// TestQueueIsBoundedInBytes: requests that wait are in memory, and those of callers that have given up too. Small ones
// may wait all the same.
func TestQueueIsBoundedInBytes(t *testing.T) {
	l := lead(t, newStore(t), func(c *Config) { c.Limits.QueueBytes = 100 << 10 })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	submit := func(ctx context.Context, bytes int) error {
		return l.p.Submit(ctx, auth.System, NewTxnCommand(put("a", strings.Repeat("x", bytes))))
	}
	require.ErrorIs(t, submit(ended, 200<<10), context.Canceled, "one alone may be of any size")
	require.ErrorIs(t, submit(ended, 60<<10), mvcc.ErrTooManyRequests)
	require.ErrorIs(t, submit(ended, 60<<10), mvcc.ErrTooManyRequests)
	require.ErrorIs(t, submit(ended, 1<<10), context.Canceled)
	require.Equal(t, 2, l.p.Waiting())

	defer l.run(t.Context())()
	require.NoError(t, submit(t.Context(), 1<<10))
	require.Zero(t, l.p.queuedBytes.Load())
	require.NoError(t, submit(t.Context(), 60<<10))
	require.EqualValues(t, 3, l.Revision(), "nothing of what was left or refused was executed")
}

// The operands of compares wait in memory as the values of puts do, and so do the keys of all operations.
func TestQueueCountsAllBytesOfRequests(t *testing.T) {
	large := []byte(strings.Repeat("x", 60<<10))
	key, end := mvcc.KeyRange{Key: large}, mvcc.KeyRange{Key: []byte("a"), End: large}
	then := func(op mvcc.Op) *mvcc.Txn { return &mvcc.Txn{Then: []mvcc.Op{op}} }
	for name, txn := range map[string]*mvcc.Txn{
		"value of a compare": {Compares: []mvcc.Compare{{KeyRange: all(), Target: mvcc.CompareValue, Value: large}}},
		"key of a compare":   {Compares: []mvcc.Compare{{KeyRange: key}}},
		"delete":             then(mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: end}}),
		"range":              then(mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: end}}),
		"older range":        then(mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: key, Revision: 1}}),
		"nested":             then(mvcc.Op{Txn: then(mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: key}})}),
	} {
		t.Run(name, func(t *testing.T) {
			l := lead(t, newStore(t), func(c *Config) { c.Limits.QueueBytes = 100 << 10 })
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			submit := func() error { return l.p.Submit(ended, auth.System, NewTxnCommand(txn)) }
			require.ErrorIs(t, submit(), context.Canceled)
			require.ErrorIs(t, submit(), mvcc.ErrTooManyRequests)
		})
	}
}

// failing is a store whose next commit fails before it reaches the database.
type failing struct {
	sqlstore.Store
	err error
	get func() error // the error of Get; nil: there is none
}

func (s *failing) Get(ctx context.Context, key []byte) ([]byte, error) {
	if s.get != nil {
		return nil, s.get()
	}
	return s.Store.Get(ctx, key)
}

func (s *failing) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if err := s.err; err != nil {
			s.err = nil
			return err
		}
		return b.BatchWrite.Commit(ctx)
	})
}

// Nothing is shown, counted or answered of a commit that did not take effect.
func TestFailedCommitFailsItsRequestsAndTakesNoRevision(t *testing.T) {
	store := &failing{Store: newStore(t)}
	l := lead(t, store)
	store.err = errors.New("made up")
	for _, err := range l.together(t, NewTxnCommand(put("a", "1")), NewTxnCommand(put("b", "1"))) {
		require.Error(t, err)
	}
	require.EqualValues(t, 1, l.Revision())
	require.Zero(t, l.keys(t))
	l.must(t, put("a", "2"))
	require.EqualValues(t, 2, l.Revision())
}

// The leader hears of what the database refuses, which may be the fault of its connection. A request that is too large
// and a pipeline that has ended say nothing about the database.
func TestLeaderHearsOfRefusedCommits(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"full":        {sqlstore.ErrFull, 1},
		"unavailable": {sqlstore.ErrUnavailable, 1},
		"not sent":    {context.DeadlineExceeded, 1},
		"unexpected":  {errors.New("made up"), 1},
		"too large":   {sqlstore.ErrTooLarge, 0},
		"uncertain":   {sqlstore.ErrUncertain, 0},
	} {
		store := &failing{Store: newStore(t)}
		l := lead(t, store)
		store.err = c.err
		l.together(t, NewTxnCommand(put("a", "1")))
		require.Equal(t, c.want, l.refused, name)
	}
	store := &hanging{Store: newStore(t)}
	l := lead(t, store)
	store.hangs = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.p.ExecuteBatch(ctx, Request{As: auth.System, Command: NewTxnCommand(put("a", "1"))})[0],
		mvcc.ErrNotLeader)
	require.Zero(t, l.refused, "the pipeline ended")
}

// A commit whose outcome was unknown and that did not take effect is tried again, until it is
// in the table: only then its requests succeed.
func TestUnwrittenCommitIsRepeatedBeforeItIsAnswered(t *testing.T) {
	store := &failing{Store: newStore(t)}
	l := lead(t, store)
	attempt := l.p.cfg.Fence.Value().Attempt
	store.err = sqlstore.ErrUncertain
	l.must(t, put("a", "1"))
	require.EqualValues(t, 1, l.keys(t))
	require.Greater(t, l.p.cfg.Fence.Value().Attempt, attempt)
	raw, err := store.Get(t.Context(), coder.FenceKey())
	require.NoError(t, err)
	token, err := coder.DecodeFenceToken(raw)
	require.NoError(t, err)
	require.EqualValues(t, 2, token.Revision)
	require.Equal(t, token, l.token, "the leader was not told the newest value of the fence row")
}

// A commit that is in doubt when the pipeline ends may take effect: no other leader may execute its requests again.
func TestCommitInDoubtIsNotTurnedAway(t *testing.T) {
	store := &failing{Store: newStore(t)}
	l := lead(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	store.err, store.get = sqlstore.ErrUncertain, func() error {
		cancel()
		return errors.New("made up")
	}
	err := l.p.ExecuteBatch(ctx, Request{As: auth.System, Command: NewTxnCommand(put("a", "1"))})[0]
	require.ErrorIs(t, err, mvcc.ErrLeaderLost)
	require.NotErrorIs(t, err, mvcc.ErrNotLeader)
}

// A commit that could not be sent in time, as while no connection can be opened, is tried again. The time was not that
// of the requests.
func TestCommitThatIsNotSentInTimeIsRepeated(t *testing.T) {
	store := &failing{Store: newStore(t)}
	l := lead(t, store)
	store.err = fmt.Errorf("no connection: %w", context.DeadlineExceeded)
	l.must(t, put("a", "1"))
	require.EqualValues(t, 1, l.keys(t))
}

// A request whose commit was not sent when the pipeline ended is one that was not executed, and not one that its client
// has cancelled: another leader may execute it.
func TestRequestOfAnEndedPipelineIsTurnedAway(t *testing.T) {
	for name, txn := range map[string]*mvcc.Txn{"commit": put("a", "1"), "verification": del("a")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hanging{Store: newStore(t)}
				l := lead(t, store)
				l.verify = func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				}
				store.hangs = true
				outcome := make(chan error, 1)
				stop := l.run(t.Context())
				go func() { outcome <- l.p.Submit(t.Context(), auth.System, NewTxnCommand(txn)) }()
				synctest.Wait()
				stop()
				require.ErrorIs(t, <-outcome, mvcc.ErrNotLeader)
			})
		})
	}
}

// hanging is a store that opens no connections for commits while it hangs, and none for reads while readsHang.
type hanging struct {
	sqlstore.Store
	hangs, readsHang bool
	reads            func() // called before each read; nil: nothing
}

func (s *hanging) read(ctx context.Context) error {
	if s.reads != nil {
		s.reads()
	}
	if s.readsHang {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *hanging) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	return s.Store.MultiGet(ctx, keys)
}

func (s *hanging) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	if err := s.read(ctx); err != nil {
		return nil, false, err
	}
	return s.Store.List(ctx, q)
}

func (s *hanging) Lookup(ctx context.Context, keys [][]byte, maxBytes int) ([]sqlstore.ListRow, bool, error) {
	if err := s.read(ctx); err != nil {
		return nil, false, err
	}
	return s.Store.Lookup(ctx, keys, maxBytes)
}

func (s *hanging) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if s.hangs {
			<-ctx.Done()
			return ctx.Err()
		}
		return b.BatchWrite.Commit(ctx)
	})
}
