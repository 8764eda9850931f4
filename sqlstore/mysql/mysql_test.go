package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// insertsAnew reports whether the server executes an INSERT into the database, on a
// connection that is not in seen, and adds it. It does not ask information_schema: a
// statement with bytes that are no text is an error there on MySQL.
func insertsAnew(t *testing.T, db *sql.DB, database string, seen map[int64]bool) (found bool) {
	t.Helper()
	rows, err := sqlx.NewDb(db, "mysql").Unsafe().Queryx("SHOW PROCESSLIST")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var p struct {
			ID      int64   `db:"Id"`
			DB      *string `db:"db"`
			Command string  `db:"Command"`
			Info    *string `db:"Info"`
		}
		if err := rows.StructScan(&p); err != nil {
			t.Fatal(err)
		}
		if p.DB == nil || *p.DB != database || p.Command != "Query" && p.Command != "Execute" || p.Info == nil ||
			!strings.HasPrefix(*p.Info, "INSERT") {
			continue
		}
		found = found || !seen[p.ID]
		seen[p.ID] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestContextEndsWhileTheServerWaits: the statement may run yet once the lock is
// free, so the answer must be ErrUncertain.
func TestContextEndsWhileTheServerWaits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		raw := p.Database(t)
		s := openURL(t, raw, sqlstore.Options{})
		createFence(t, s)
		ctx := context.Background()
		conn, err := s.Database().SQL().Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"START TRANSACTION", "UPDATE object SET object_value = CONCAT(object_value, 'x')"} {
			if _, err := conn.ExecContext(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
		seen := make(map[int64]bool)
		// endOnceItWaits runs commit, and ends its context when the server executes it:
		// it cannot get past the lock.
		endOnceItWaits := func(commit func(context.Context) error) error {
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- commit(short) }()
			for !insertsAnew(t, s.Database().SQL(), parse(t, raw).Database, seen) {
				continue
			}
			cancel()
			return <-ended
		}
		err = endOnceItWaits(func(short context.Context) error { return swapFence(short, s, 2) })
		if !errors.Is(err, sqlstore.ErrUncertain) || !errors.Is(err, context.Canceled) {
			t.Errorf("one statement: %v, want ErrUncertain and Canceled", err)
		}
		// In a transaction nothing is decided before COMMIT. The first one may wait on.
		b := s.BeginBatchWrite()
		b.Put(coder.FenceKey(), fenceToken(9))
		err = endOnceItWaits(b.Commit)
		if errors.Is(err, sqlstore.ErrUncertain) || !errors.Is(err, context.Canceled) {
			t.Errorf("transaction: %v, want a definite Canceled", err)
		}
		if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		// Whatever the server does with the first one: it is whole or not at all.
		values, err := s.MultiGet(ctx, [][]byte{coder.FenceKey(), []byte("beside 2")})
		if err != nil {
			t.Fatal(err)
		}
		if c, err := coder.DecodeFenceToken(values[0]); err != nil || c.Sequence == 9 {
			t.Errorf("the transaction took effect: %+v, %v", c, err)
		}
	})
}

// TestServerKilledAndStartedAgain: commits go on from what the fence row says.
func TestServerKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		s := openURL(t, server.URL(), sqlstore.Options{})
		createFence(t, s)
		ctx := context.Background()
		var mu sync.Mutex
		acknowledged := int64(1)
		reached := make(chan struct{})
		var failure error
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := int64(2); ; n++ {
				if err := swapFence(ctx, s, n); err != nil {
					failure = err
					return
				}
				mu.Lock()
				acknowledged = n
				mu.Unlock()
				if n == 30 {
					close(reached)
				}
			}
		})
		<-reached
		server.Kill()
		wg.Wait()
		if !errors.Is(failure, sqlstore.ErrUncertain) && !errors.Is(failure, sqlstore.ErrUnavailable) {
			t.Errorf("while the server was killed: %v", failure)
		}
		if err := swapFence(ctx, s, acknowledged+1); !errors.Is(err, sqlstore.ErrUnavailable) ||
			errors.Is(err, sqlstore.ErrUncertain) {
			t.Errorf("while it was down: %v, want ErrUnavailable", err)
		}
		server.Start()
		value, err := s.Get(ctx, coder.FenceKey())
		if err != nil {
			t.Fatal(err)
		}
		c, err := coder.DecodeFenceToken(value)
		if err != nil || c.Sequence < acknowledged || c.Sequence > acknowledged+1 {
			t.Fatalf("the fence row is at %+v (%v), %d was acknowledged last", c, err, acknowledged)
		}
		if c.Sequence > acknowledged && !errors.Is(failure, sqlstore.ErrUncertain) {
			t.Errorf("%v was said of a commit that took effect", failure)
		}
		if err := swapFence(ctx, s, c.Sequence+1); err != nil {
			t.Errorf("after the start: %v", err)
		}
	})
}

// TestServerThatDoesNotAnswer: the connection's time bound ends the wait. On a busy machine it may also end a statement
// before the server is paused, and then the test begins with another store. The server is paused when the commit is
// sent: earlier, a connection that is due for a check would be found to be of no use.
func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		createFence(t, openURL(t, server.URL(), sqlstore.Options{}))
		ctx := context.Background()
		var s *sqldb.Store
		faults := faultdriver.New()
		step := int64(1)
		eventually.Nil(t, eventually.Deadline, func(ctx context.Context) (err error) {
			if s, err = open(ctx, parse(t, server.URL()+"?timeout=1s"),
				sqlstore.Options{WrapConnector: faults.Wrap}); err != nil {
				return err
			}
			// The statement is prepared on the connection that the commit below finds in the pool.
			err = swapFence(ctx, s, step+1)
			var conflict *sqlstore.Conflict
			if err == nil || errors.As(err, &conflict) { // with an attempt whose answer came too late
				step++
			}
			if err != nil {
				err = errors.Join(err, s.Close())
			}
			return err
		})
		defer func() { require.NoError(t, s.Close()) }()
		paused := make(chan struct{})
		pause := sync.OnceFunc(func() { server.Pause(); close(paused) })
		faults.Set(func(st faultdriver.Statement) faultdriver.Fault {
			if st.Kind == faultdriver.Exec && !strings.HasPrefix(st.Text, "SET ") {
				pause()
			}
			return faultdriver.Fault{}
		})
		var readErr error
		var wg sync.WaitGroup
		wg.Go(func() {
			<-paused
			_, readErr = s.Get(ctx, coder.FenceKey())
		})
		err := swapFence(ctx, s, step+1)
		pause() // should no statement have been sent
		wg.Wait()
		server.Resume()
		if !errors.Is(err, sqlstore.ErrUncertain) {
			t.Errorf("commit: %v, want ErrUncertain", err)
		}
		if !errors.Is(readErr, sqlstore.ErrUnavailable) {
			t.Errorf("read: %v, want ErrUnavailable", readErr)
		}
	})
}

// TestRowThatTheServerNoLongerTakes: its largest packet was larger when the store was opened, or another server is the
// primary now. The outcome of the commit is known.
func TestRowThatTheServerNoLongerTakes(t *testing.T) {
	t.Parallel()
	if enginetest.OnTiDB() {
		t.Skip("it takes a value in pieces, each of which fits")
	}
	onServers(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		enginetest.Exec(t, server.URL(), fmt.Sprint("SET GLOBAL max_allowed_packet = ", minPacket))
		atTheStart := &enginetest.TiDB{Version: "8.0", Variables: map[string]string{"max_allowed_packet": "67108864"}}
		s := openURL(t, server.URL(), sqlstore.Options{WrapConnector: atTheStart.Wrap})
		for kind, put := range map[string]func(sqlstore.BatchWrite, []byte, []byte){
			"one statement": sqlstore.BatchWrite.PutIfNotExist, "transaction": sqlstore.BatchWrite.Put,
		} {
			for n := range 3 { // the statement is prepared for the second
				b := s.BeginBatchWrite()
				put(b, []byte("large"), make([]byte, 2*minPacket))
				err := b.Commit(t.Context())
				require.ErrorIs(t, err, sqlstore.ErrTooLarge)
				require.NotErrorIs(t, err, sqlstore.ErrUncertain)
				b = s.BeginBatchWrite()
				put(b, fmt.Append(nil, kind, n), []byte("x"))
				require.NoError(t, b.Commit(t.Context()))
			}
		}
	})
}

// TestManyShapesOfStatements: more different statements than are kept.
func TestManyShapesOfStatements(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		s := openURL(t, p.Database(t), sqlstore.Options{})
		ctx := context.Background()
		n := 0
		for range 2 {
			for size := 1; size < 400; size += 3 {
				b := s.BeginBatchWrite()
				for range size {
					n++
					b.PutIfNotExist(fmt.Appendf(nil, "%08d", n), []byte("x"))
				}
				if err := b.Commit(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		var rows int
		if err := s.Database().SQL().QueryRow("SELECT COUNT(*) FROM object").Scan(&rows); err != nil || rows != n {
			t.Errorf("%d rows, want %d (%v)", rows, n, err)
		}
		if !p.Can(enginetest.PreparedCounter) {
			return
		}
		var name string
		var prepared int
		if err := s.Database().SQL().QueryRow("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").Scan(&name,
			&prepared); err != nil || prepared == 0 || prepared > 2000 {
			t.Errorf("the server keeps %d prepared statements (%v)", prepared, err)
		}
	})
}
