package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	_ "modernc.org/sqlite" // the driver

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// callWait is how long a call waits for a program that may have ended.
const callWait = 5 * time.Second

// contender is kine, or sqlbrain in its place, on a database.
type contender struct {
	process *harness.Process
	client  *clientv3.Client
}

// contend starts a program on a database, and does not wait for it.
func contend(t *testing.T, endpoint, program string, args ...string) *contender {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
	args = append(args, "--endpoint", endpoint, "--listen-address", address, "--metrics-bind-address", "0")
	return &contender{harness.StartProcess(t, program, args...), harness.ClientOf(t, "http://"+address)}
}

func contendKine(t *testing.T, endpoint string) *contender {
	t.Helper()
	return contend(t, endpoint, harness.Kine(t))
}

func contendSqlbrain(t *testing.T, endpoint string) *contender {
	t.Helper()
	return contend(t, endpoint, harness.Sqlbrain(t), "kine")
}

// create creates a key, in the form that kine takes.
func (c *contender) create(ctx context.Context, key string) error {
	r, err := c.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(
		clientv3.OpPut(key, "v")).Else(clientv3.OpGet(key)).Commit()
	if err == nil && !r.Succeeded {
		err = errors.New("the key is there")
	}
	return err
}

// get fails until a key is there.
func (c *contender) get(ctx context.Context, key string) error {
	got, err := c.client.Get(ctx, key)
	if err == nil && len(got.Kvs) != 1 {
		err = errors.New("the key is not there")
	}
	return err
}

// serves waits until the program has the keys, and creates another one.
func (c *contender) serves(t *testing.T, create string, has ...string) {
	t.Helper()
	c.process.Await(t, func(ctx context.Context) error { return c.create(ctx, create) })
	for _, key := range has {
		require.NoError(t, c.get(t.Context(), key), key)
	}
}

// ended waits until the program has ended because it found the other one, or its table.
func (c *contender) ended(t *testing.T, reason string) {
	t.Helper()
	select {
	case <-c.process.Exited():
	case <-time.After(programWait):
		t.Fatal("it still runs")
	}
	require.Contains(t, c.process.LogTail(4000), reason)
}

// suspend stops the program at a time when it has no lock on its database, if that is a file.
func (c *contender) suspend(t *testing.T, endpoint string) {
	t.Helper()
	path, isFile := strings.CutPrefix(endpoint, "sqlite://")
	for {
		c.process.Pause(t)
		if !isFile {
			return
		}
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), "BEGIN EXCLUSIVE; ROLLBACK")
		require.NoError(t, db.Close())
		if err == nil {
			return
		}
		t.Log("suspended within a transaction, once more: ", err)
		c.process.Resume(t)
		time.Sleep(10 * time.Millisecond)
	}
}

// writesNothing checks that a program that may run accepts no write.
func (c *contender) writesNothing(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callWait)
	defer cancel()
	require.Error(t, c.create(ctx, "/registry/both"))
}

// TestStartsOfKineAndSqlbrain starts both programs in each order on each kind of database. At no time do both accept
// writes, and none serves without the keys of the other one.
func TestStartsOfKineAndSqlbrain(t *testing.T) {
	harness.NeedsDatabase(t)
	const noColumn, inUse = "column", "a kine uses the table"
	for name, test := range map[string]func(t *testing.T, endpoint string){
		"kine on an empty database, sqlbrain": func(t *testing.T, endpoint string) {
			first := contendKine(t, endpoint)
			first.process.Await(t, func(ctx context.Context) error { return first.get(ctx, "/registry/health") })
			contendSqlbrain(t, endpoint).ended(t, inUse)
			first.serves(t, "/registry/a")
			contendSqlbrain(t, endpoint).ended(t, inUse)
			first.serves(t, "/registry/b")
		},
		"sqlbrain on an empty database, kine, and back": func(t *testing.T, endpoint string) {
			first := contendSqlbrain(t, endpoint)
			first.serves(t, "/registry/a")
			contendKine(t, endpoint).ended(t, noColumn)
			first.serves(t, "/registry/b")
			first.process.Stop(t)
			contendKine(t, endpoint).ended(t, noColumn)
			harness.Succeed(t, harness.Sqlbrain(t), "kine", "--endpoint", endpoint, "--revert", "--keep-writes")
			second := contendKine(t, endpoint)
			second.serves(t, "/registry/c", "/registry/a", "/registry/b")
			contendSqlbrain(t, endpoint).ended(t, inUse)
			second.process.Kill(t)
			contendSqlbrain(t, endpoint).serves(t, "/registry/d", "/registry/a", "/registry/b", "/registry/c")
		},
		"kine, sqlbrain that takes its table, kine, sqlbrain": func(t *testing.T, endpoint string) {
			first := contendKine(t, endpoint)
			first.serves(t, "/registry/a")
			first.process.Kill(t)
			second := contendSqlbrain(t, endpoint)
			second.serves(t, "/registry/b", "/registry/a")
			contendKine(t, endpoint).ended(t, noColumn)
			second.process.Stop(t)
			contendKine(t, endpoint).ended(t, noColumn)
			contendSqlbrain(t, endpoint).serves(t, "/registry/c", "/registry/a", "/registry/b")
		},
		"kine that is suspended while sqlbrain starts": func(t *testing.T, endpoint string) {
			first := contendKine(t, endpoint)
			first.serves(t, "/registry/a")
			first.suspend(t, endpoint)
			second := contendSqlbrain(t, endpoint)
			second.serves(t, "/registry/b", "/registry/a")
			first.process.Resume(t)
			first.writesNothing(t)
			second.serves(t, "/registry/c")
		},
		"both at once": func(t *testing.T, endpoint string) {
			first, second := contendKine(t, endpoint), contendSqlbrain(t, endpoint)
			served := false
			eventually.Nil(t, programWait, func(ctx context.Context) error {
				if !second.process.Running() {
					return nil
				}
				ctx, cancel := context.WithTimeout(ctx, callWait) // a client waits for a program that has ended
				defer cancel()
				_, err := second.client.Get(ctx, "/registry/health")
				served = err == nil
				return err
			})
			if served {
				first.writesNothing(t)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			harness.ForEachKineEndpoint(t, test)
		})
	}
}
