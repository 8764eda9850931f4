package tidbsim_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/tidbsim"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Each test names where its rule was read: a page of docs.pingcap.com/tidb/stable, or a file
// of pingcap/tidb, tikv/client-go or tikv/tikv.

// bench is a cluster with the tables, and clients that send SQL by hand.
type bench struct {
	*testing.T
	cluster *tidbsim.Cluster
	db      *sql.DB
}

// inBubble runs f with a cluster, in a bubble of synctest: waiting takes no time.
func inBubble(t *testing.T, cfg tidbsim.Config, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, cluster: tidbsim.New(cfg)}
		require.NoError(t, b.cluster.Migrate(t.Context()))
		b.db = sql.OpenDB(b.cluster.Connector())
		f(b)
		require.NoError(t, b.db.Close())
	})
}

// client is a session set up as the product's are.
type client struct {
	*bench
	conn *sql.Conn
}

func (b *bench) client(settings ...string) *client {
	b.Helper()
	conn, err := b.db.Conn(b.Context())
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	c := &client{b, conn}
	for _, text := range append([]string{"SET SESSION sql_mode = 'STRICT_TRANS_TABLES,STRICT_ALL_TABLES', innodb_lock_wait_timeout = 10",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"}, settings...) {
		c.exec(text)
	}
	return c
}

func (c *client) try(text string, args ...any) (int64, error) {
	res, err := c.conn.ExecContext(c.Context(), text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (c *client) exec(text string, args ...any) int64 {
	c.Helper()
	n, err := c.try(text, args...)
	require.NoError(c, err, text)
	return n
}

// fails requires the number of a server's error.
func (c *client) fails(number uint16, text string, args ...any) {
	c.Helper()
	_, err := c.try(text, args...)
	c.number(number, err, text)
}

func (b *bench) number(want uint16, err error, text string) {
	b.Helper()
	var e *mysql.MySQLError
	require.ErrorAs(b, err, &e, text)
	require.Equal(b, want, e.Number, "%s: %v", text, err)
}

const (
	upsert  = "INSERT INTO object (internal_key, object_value) VALUES (?,?) ON DUPLICATE KEY UPDATE object_value = VALUES(object_value)"
	plain   = "INSERT INTO object (internal_key, object_value) VALUES (?,?)"
	swap    = "INSERT INTO object (internal_key, object_value) VALUES (?,?) ON DUPLICATE KEY UPDATE object_value = IF(object_value = ?, VALUES(object_value), ~0 + (LENGTH(object_value) + 1))"
	get     = "SELECT object_value FROM object WHERE internal_key = ?"
	locking = "SELECT object_value FROM object WHERE internal_key IN (?) FOR UPDATE"
)

// value returns a row's value, "" if there is none.
func (c *client) value(text, key string) string {
	c.Helper()
	v, err := c.tryValue(text, key)
	require.NoError(c, err)
	return v
}

func (c *client) tryValue(text, key string) (string, error) {
	var v string
	err := c.conn.QueryRowContext(c.Context(), text, key).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return v, err
}

// waits runs f in the background and requires that it is blocked. The returned function
// waits for it.
func (b *bench) waits(f func() error) (wait func() error) {
	b.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	synctest.Wait()
	select {
	case err := <-done:
		b.Fatalf("it did not wait: %v", err)
	default:
	}
	return func() error { return <-done }
}

// transaction-isolation-levels: a transaction in REPEATABLE READ reads its snapshot, one in
// READ COMMITTED what is newest when a statement begins.
func TestReadsOfAnIsolationLevel(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		writer, snapshot, committed := b.client(), b.client(), b.client()
		writer.exec(upsert, "k", "1")
		snapshot.exec("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
		snapshot.exec("START TRANSACTION WITH CONSISTENT SNAPSHOT")
		committed.exec("START TRANSACTION")
		writer.exec(upsert, "k", "2")
		require.Equal(b, "1", snapshot.value(get, "k"))
		require.Equal(b, "2", committed.value(get, "k"))
		snapshot.exec("ROLLBACK")
		require.Equal(b, "2", snapshot.value(get, "k"))
		// The level was that of one transaction.
		snapshot.exec("START TRANSACTION")
		writer.exec(upsert, "k", "3")
		require.Equal(b, "3", snapshot.value(get, "k"))
	})
}

// pessimistic-transaction#behaviors: SELECT … FOR UPDATE locks the newest rows, others wait
// for at most innodb_lock_wait_timeout (1205). A read does not wait.
func TestLockingReads(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a, other := b.client(), b.client()
		a.exec(upsert, "k", "1")
		a.exec("START TRANSACTION")
		other.exec(upsert, "k", "2")
		require.Equal(b, "2", a.value(locking, "k"), "the newest row, not that of the snapshot")
		other.exec("START TRANSACTION")
		require.Equal(b, "2", other.value(get, "k"))
		begin := time.Now()
		_, err := other.tryValue(locking, "k")
		b.number(1205, err, locking)
		require.Equal(b, 10*time.Second, time.Since(begin))
		wait := b.waits(func() error { _, err := other.try(upsert, "k", "3"); return err })
		a.exec("COMMIT")
		require.NoError(b, wait())
		other.exec("COMMIT")
		require.Equal(b, "3", a.value(get, "k"))
		require.Zero(b, b.cluster.Locks())
	})
}

// pessimistic-transaction#behaviors: point gets lock a missing key too, in REPEATABLE READ
// only. #differences-from-mysql-innodb: there are no gap locks, and a SELECT … FOR UPDATE by
// itself does not wait.
func TestWhatIsNotLocked(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a, other := b.client(), b.client()
		a.exec("START TRANSACTION")
		require.Empty(b, a.value(locking, "missing"))
		other.exec(plain, "missing", "1")
		a.exec("ROLLBACK")

		a.exec("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
		a.exec("START TRANSACTION")
		require.Empty(b, a.value(locking, "nothing"))
		wait := b.waits(func() error { _, err := other.try(plain, "nothing", "1"); return err })
		a.exec("ROLLBACK")
		require.NoError(b, wait())

		a.exec(upsert, "x1", "1")
		a.exec(upsert, "x9", "1")
		a.exec("START TRANSACTION")
		_, err := a.conn.ExecContext(b.Context(),
			"SELECT internal_key FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key LIMIT ? FOR UPDATE", "x", "y", 10)
		require.NoError(b, err)
		other.exec(plain, "x5", "1") // in the gap
		require.Equal(b, "1", other.value(locking, "x1"), "by itself: it neither locks nor waits")
		wait = b.waits(func() error { _, err := other.try(upsert, "x9", "2"); return err })
		a.exec("ROLLBACK")
		require.NoError(b, wait())
	})
}

// pessimistic-transaction#behaviors: a deadlock is found at once, 1213. autoCommitAfterStmt
// in pkg/session/tidb.go: the transaction is rolled back.
func TestDeadlock(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		one, two := b.client(), b.client()
		one.exec("START TRANSACTION")
		two.exec("START TRANSACTION")
		one.exec(upsert, "a", "one")
		two.exec(upsert, "b", "two")
		wait := b.waits(func() error { _, err := one.try(upsert, "b", "one"); return err })
		two.fails(1213, upsert, "a", "two")
		require.NoError(b, wait())
		one.exec("COMMIT")
		two.exec("COMMIT") // of nothing
		require.Equal(b, "one", one.value(get, "b"))
	})
}

// pessimistic-transaction#differences-from-mysql-innodb: a statement by itself is tried
// optimistically first, and again pessimistically after a conflict; tidb_retry_limit = 0
// makes that error 9007. doCommitWithRetry and retry in pkg/session: it is executed anew.
func TestAutocommitIsRepeatedAfterAConflict(t *testing.T) {
	for limit, number := range map[string]uint16{"10": 1690, "0": 9007} {
		inBubble(t, tidbsim.Config{Globals: map[string]string{"tidb_retry_limit": limit}}, func(b *bench) {
			holder, other := b.client(), b.client()
			holder.exec(plain, "k", "1")
			holder.exec("START TRANSACTION")
			holder.exec(upsert, "k", "2")
			// It reads 1, and meets the lock when it commits.
			wait := b.waits(func() error { _, err := other.try(swap, "k", "3", "1"); return err })
			holder.exec("COMMIT")
			b.number(number, wait(), swap)
			require.Equal(b, "2", other.value(get, "k"))
		})
	}
	// A conflict that the repetition does not have goes unnoticed.
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		c := b.client()
		b.cluster.Inject(tidbsim.WriteConflict, 1)
		require.EqualValues(b, 1, c.exec(upsert, "k", "1"))
		b.cluster.Inject(tidbsim.TxnRetryable, 1)
		require.EqualValues(b, 2, c.exec(upsert, "k", "2"))
		b.cluster.Inject(tidbsim.SchemaChanged, 1)
		require.EqualValues(b, 0, c.exec(upsert, "k", "2"), "nothing is committed, so nothing can fail")
	})
}

// updateRecord in pkg/executor/write.go: 1 inserted, 2 replaced, 0 unchanged, without
// CLIENT_FOUND_ROWS. doDupRowUpdate in pkg/executor/insert.go: an error of the assignment
// ends the statement, of which nothing is done.
func TestAffectedRowsAndTheFailingBranch(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		c := b.client()
		require.EqualValues(b, 1, c.exec(upsert, "k", "1"))
		require.EqualValues(b, 2, c.exec(upsert, "k", "2"))
		require.EqualValues(b, 0, c.exec(upsert, "k", "2"))
		require.EqualValues(b, 2, c.exec(swap, "k", "3", "2"))
		const two = "INSERT INTO object (internal_key, object_value) VALUES (?,?),(?,?) ON DUPLICATE KEY UPDATE object_value = IF(object_value = 'x', VALUES(object_value), ~0 + (LENGTH(object_value) + 1))"
		c.fails(1690, two, "a", "new", "k", "4")
		require.Empty(b, c.value(get, "a"))
		require.EqualValues(b, 1, c.exec("DELETE FROM object WHERE internal_key IN (?,?)", "k", "none"))
		require.Empty(b, c.value(get, "k"))
	})
}

// constraints#pessimistic-transactions: with tidb_constraint_check_in_place_pessimistic a
// duplicate is found when it is inserted, after the wait for the lock.
// basic_features (optimistic-transaction): otherwise at COMMIT.
func TestDuplicates(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a, other := b.client(), b.client()
		a.exec(plain, "k", "1")
		a.fails(1062, plain, "k", "2")
		a.exec("START TRANSACTION")
		a.fails(1062, plain, "k", "2")
		a.exec(plain, "new", "1")
		other.exec("START TRANSACTION")
		wait := b.waits(func() error { _, err := other.try(plain, "new", "2"); return err })
		a.exec("COMMIT")
		b.number(1062, wait(), plain)
		other.exec("ROLLBACK")

		other.exec("BEGIN OPTIMISTIC")
		other.exec(plain, "k", "2")
		other.fails(1062, "COMMIT")
	})
}

// optimistic-transaction: conflicts show at COMMIT, 9007, and explicit transactions are not
// repeated (tidb_disable_txn_auto_retry).
func TestOptimisticTransactions(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a, other := b.client(), b.client()
		a.exec("BEGIN OPTIMISTIC")
		a.exec(upsert, "k", "1")
		other.exec(upsert, "k", "2")
		a.fails(9007, "COMMIT")
		require.Equal(b, "2", a.value(get, "k"))
	})
}

// pessimistic-transaction#in-memory-pessimistic-lock: locks may be lost, and then the COMMIT
// may fail. amend_pessimistic_lock in tikv's actions/prewrite.rs: it fails if the row changed
// since the transaction began. pingcap/tidb#60679: the error is 1105, "tikv aborts txn".
func TestLostLocks(t *testing.T) {
	for _, changed := range []bool{false, true} {
		inBubble(t, tidbsim.Config{}, func(b *bench) {
			a, other := b.client(), b.client()
			a.exec(upsert, "k", "1")
			a.exec("START TRANSACTION")
			a.exec(upsert, "k", "2")
			b.cluster.LoseLocks()
			if changed {
				other.exec(upsert, "k", "3")
				a.fails(1105, "COMMIT")
				require.Equal(b, "3", a.value(get, "k"))
				return
			}
			a.exec("COMMIT")
			require.Equal(b, "2", a.value(get, "k"))
		})
	}
}

// pkg/session/session.go and pkg/server/conn.go, ErrResultUndetermined: TiDB closes the
// connection. commit.go in client-go: the commit did happen, did not, or may happen later.
func TestUndeterminedCommits(t *testing.T) {
	for _, text := range []string{"autocommit", "transaction"} {
		for fault, want := range map[tidbsim.Fault]string{
			tidbsim.UndeterminedCommitted: "new", tidbsim.UndeterminedLost: "old", tidbsim.UndeterminedLate: "",
			tidbsim.UndeterminedPrewritten: "",
		} {
			seen := map[string]bool{}
			for seed := range uint64(20) {
				inBubble(t, tidbsim.Config{Seed: seed}, func(b *bench) {
					a, other := b.client(), b.client()
					a.exec(upsert, "k", "old")
					b.cluster.Inject(fault, 1)
					var err error
					if text == "autocommit" {
						_, err = a.try(upsert, "k", "new")
					} else {
						a.exec("START TRANSACTION")
						a.exec(upsert, "k", "new")
						_, err = a.try("COMMIT")
					}
					require.ErrorIs(b, err, mysql.ErrInvalidConn)
					if fault == tidbsim.UndeterminedLate {
						require.Equal(b, "old", other.value(get, "k"))
					}
					if fault == tidbsim.UndeterminedPrewritten {
						begin := time.Now()
						seen[other.value(get, "k")] = true // it waits
						require.Positive(b, time.Since(begin))
					}
					time.Sleep(3 * time.Second)
					got := other.value(get, "k")
					seen[got] = true
					if want != "" {
						require.Equal(b, want, got)
					}
					require.Zero(b, b.cluster.Active())
					require.Zero(b, b.cluster.Locks())
				})
			}
			if want == "" {
				require.Equal(t, map[string]bool{"old": true, "new": true}, seen, "%s, %s", text, fault)
			}
		}
	}
}

// actions/prewrite.rs in tikv: a commit that comes late fails if the row has changed since
// its transaction began.
func TestALateCommitReplacesNothingNewer(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, tidbsim.Config{Seed: seed}, func(b *bench) {
			a, other := b.client(), b.client()
			a.exec(upsert, "k", "old")
			b.cluster.Inject(tidbsim.UndeterminedLate, 1)
			_, err := a.try(upsert, "k", "late")
			require.ErrorIs(b, err, mysql.ErrInvalidConn)
			other.exec(upsert, "k", "new")
			time.Sleep(3 * time.Second)
			require.Equal(b, "new", other.value(get, "k"))
		})
	}
}

// system-variables#tidb_gc_max_wait_time: a transaction in progress holds GC up for a day.
// ErrGCTooEarly in client-go: reading a snapshot before the safe point is error 9006.
func TestGarbageCollection(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a, other := b.client(), b.client()
		other.exec(upsert, "k", "0")
		a.exec("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
		a.exec("START TRANSACTION WITH CONSISTENT SNAPSHOT")
		time.Sleep(20 * time.Minute)
		other.exec(upsert, "k", "1")
		other.exec(upsert, "k", "2")
		require.Equal(b, "0", a.value(get, "k"))
		time.Sleep(24 * time.Hour)
		other.exec(upsert, "k", "3")
		_, err := a.tryValue(get, "k")
		b.number(9006, err, get)
		a.exec("ROLLBACK")
		require.Equal(b, "3", a.value(get, "k"))
	})
}

// error-codes, 8028: a transaction that was in progress while the schema changed fails when
// it commits.
func TestSchemaChanges(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a := b.client()
		a.exec("START TRANSACTION")
		a.exec(upsert, "k", "1")
		b.cluster.ChangeSchema()
		a.fails(8028, "COMMIT")
		require.Empty(b, a.value(get, "k"))
		a.exec(upsert, "k", "1")
	})
}

// tidb-limitations: an entry has at most 6 MiB, 8025. transaction-overview: a transaction at
// most 100 MiB, 8004.
func TestSizes(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a := b.client()
		a.fails(8025, upsert, "k", make([]byte, 6<<20))
		a.exec("START TRANSACTION")
		for i := range 21 {
			a.exec(upsert, fmt.Sprint(i), make([]byte, 5<<20))
		}
		a.fails(8004, "COMMIT")
		require.Empty(b, a.value(get, "1"))
		a.fails(1406, upsert, strings.Repeat("k", 3073), "")
		_, err := a.try(upsert, "k", make([]byte, 65<<20))
		require.ErrorIs(b, err, mysql.ErrPktTooLarge)
	})
}

// transaction-isolation-levels: SERIALIZABLE is error 8048, unless
// tidb_skip_isolation_level_check is on.
func TestSerializableIsRefused(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a := b.client()
		a.fails(8048, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
		a.exec("SET SESSION tidb_skip_isolation_level_check = 'ON'")
		a.exec("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
		a.fails(1193, "SET SESSION no_such_variable = 1")
	})
}

// locking-functions, and pkg/session/advisory_locks.go: GET_LOCK waits for so many seconds,
// and the lock ends with its connection.
func TestAdvisoryLocks(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a, other := b.client(), b.client()
		require.Equal(b, "1", a.value("SELECT GET_LOCK(?, 10)", "name"))
		begin := time.Now()
		require.Equal(b, "0", other.value("SELECT GET_LOCK(?, 10)", "name"))
		require.Equal(b, 10*time.Second, time.Since(begin))
		require.Equal(b, "0", other.value("SELECT RELEASE_LOCK(?)", "name"))
		wait := b.waits(func() error { _, err := other.tryValue("SELECT GET_LOCK(?, 10)", "name"); return err })
		require.NoError(b, a.conn.Raw(func(c any) error { return c.(interface{ Close() error }).Close() }))
		require.NoError(b, wait())
		require.Equal(b, "1", other.value("SELECT RELEASE_LOCK(?)", "name"))
	})
}

// ManagedLockTTL in client-go's 2pc.go: the locks of a TiDB server that crashed expire after
// 20 s. A server that ends a connection rolls its transaction back.
func TestLocksOfACrashedServerExpire(t *testing.T) {
	for crashed, patience := range map[bool]time.Duration{true: 20 * time.Second, false: 0} {
		inBubble(t, tidbsim.Config{}, func(b *bench) {
			a := b.client()
			a.exec("START TRANSACTION")
			a.exec(upsert, "k", "1")
			b.cluster.Stop(crashed)
			_, err := a.try("COMMIT")
			require.Error(b, err)
			_, err = b.db.Conn(b.Context())
			require.Error(b, err)
			b.cluster.Start()
			begin := time.Now()
			c := b.client("SET SESSION innodb_lock_wait_timeout = 60")
			c.exec("START TRANSACTION")
			c.exec(upsert, "k", "2")
			c.exec("COMMIT")
			require.InDelta(b, patience, time.Since(begin), float64(200*time.Millisecond))
			require.Equal(b, "2", c.value(get, "k"))
		})
	}
}

// A client whose context ended while its statement was on the way does not know whether it
// was executed.
func TestAStatementMayOutliveItsClient(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(20) {
		inBubble(t, tidbsim.Config{Seed: seed, Latency: time.Second}, func(b *bench) {
			a, other := b.client(), b.client()
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := a.conn.ExecContext(ctx, upsert, "k", "late")
			require.ErrorIs(b, err, context.DeadlineExceeded)
			time.Sleep(5 * time.Second)
			seen[other.value(get, "k")] = true
		})
	}
	require.Equal(t, map[string]bool{"": true, "late": true}, seen)
}

// show-table-regions, and decodeRegionKey in pkg/executor: the product reads the boundaries.
func TestRegions(t *testing.T) {
	c := tidbsim.New(tidbsim.Config{})
	s, err := c.Open(t.Context(), sqlstore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, c.Split([]byte("bbbbbbbb"), []byte("cc\x00")))
	parts, err := s.GetPartitions(t.Context(), []byte("a"), []byte("z"))
	require.NoError(t, err)
	require.Equal(t, []sqlstore.Partition{{Start: []byte("a"), End: []byte("bbbbbbbb")},
		{Start: []byte("bbbbbbbb"), End: []byte("cc\x00")}, {Start: []byte("cc\x00"), End: []byte("z")}}, parts)
}

func TestUnknownStatementsAreRefused(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a := b.client()
		for _, text := range []string{
			"SELECT * FROM object", "REPLACE INTO object VALUES (1, 2)", "SELECT SHA1('x')", "ALTER TABLE object ADD COLUMN c INT", "this is no SQL",
			"CREATE TABLE other (k INT)", "SELECT internal_key FROM object GROUP BY internal_key", "SET SESSION tidb_low_resolution_tso = ON",
			"INSERT IGNORE INTO object (internal_key, object_value) VALUES (?,?)",
		} {
			a.fails(1064, text)
		}
		_, err := a.try("SELECT SHA1('x')")
		require.ErrorContains(b, err, "SHA1")
	})
}

// The statements of sqlbrain doctor.
func TestStatementsOfTheDoctor(t *testing.T) {
	inBubble(t, tidbsim.Config{}, func(b *bench) {
		a := b.client()
		for _, text := range []string{
			"SELECT VERSION()", "SHOW SESSION VARIABLES", "SHOW GLOBAL STATUS", "SELECT @@version_comment LIMIT 1", "SHOW SESSION STATUS LIKE 'Ssl_cipher'",
			"SELECT object_value FROM object WHERE 1 = 0", "INSERT INTO object (internal_key, object_value) SELECT internal_key, object_value FROM object WHERE 1 = 0",
			"UPDATE object SET object_value = object_value WHERE 1 = 0", "DELETE FROM object WHERE 1 = 0", "SHOW GLOBAL STATUS LIKE 'Threads_connected'",
			"SELECT CAST(UTC_TIMESTAMP(6) AS CHAR(40) CHARACTER SET utf8mb4)", "SELECT CONCAT(@@hostname, ':', @@port, ' (server_id ', @@server_id, ')')",
			"SELECT COUNT(*), COALESCE(MAX(TABLE_ROWS), 0), COALESCE(MAX(DATA_LENGTH + INDEX_LENGTH), 0) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'object'",
		} {
			a.exec(text)
		}
		a.fails(1146, "CREATE TABLE sqlbrain_doctor_probe LIKE sqlbrain_doctor_no_such_table")
	})
}
