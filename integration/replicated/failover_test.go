package replicated

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/replicated"
)

// settled is how many writes show that all goes on again.
const settled = 200

// TestFailover lets the server that takes the writes go, again and again, under
// load: it is killed, or frozen as a machine that is gone. The nodes know all
// servers by their URL. How long the database itself is away is told beside how
// long nobody could write.
func TestFailover(t *testing.T) {
	for _, p := range replicated.Products {
		t.Run(p.Name, func(t *testing.T) {
			db := start(t, p)
			t.Run("doctor", func(t *testing.T) { examine(t, db) })
			c := nodesOn(t, func(int) string { return db.URL() })
			s := besiege(t, c)
			rounds := harness.Number(t, "SQLBRAIN_FAILOVER_ROUNDS", 1, 5)
			for _, w := range waysToGo(p) {
				var gaps, database []time.Duration
				for range rounds {
					s.Progress(settled)
					gone := db.Primary()
					since := time.Now()
					w.leave(db, gone)
					db.Successor(gone)
					database = append(database, time.Since(since))
					s.Progress(settled)
					gaps = append(gaps, s.gap(since))
					w.enter(db, gone)
				}
				report(t, p.Name+", "+w.name+", the database", database)
				report(t, p.Name+", "+w.name+", nobody could write", gaps)
			}
			s.Progress(settled)
			s.end()
		})
	}
}

// wayToGo is how a server ceases to be the primary, and comes back.
type wayToGo struct {
	name         string
	leave, enter func(db *replicated.Database, i int)
}

func waysToGo(p replicated.Product) []wayToGo {
	killed := wayToGo{"killed", (*replicated.Database).Kill, (*replicated.Database).Start}
	frozen := wayToGo{"frozen", (*replicated.Database).Pause, func(db *replicated.Database, i int) { db.Resume(i); db.Rejoin(i) }}
	// In order, as for maintenance: the old one goes on as a secondary, with all
	// connections that were open.
	moved := wayToGo{"moved", func(db *replicated.Database, i int) {
		next := (i + 1) % db.Size()
		db.Exec(i, "SELECT group_replication_set_as_primary('"+db.Query(next, "SELECT @@server_uuid")+"')")
	}, func(*replicated.Database, int) {}}
	switch {
	case p.Name == replicated.Galera.Name: // has no primary to move
		return []wayToGo{killed, frozen}
	case harness.Long():
		return []wayToGo{killed, frozen, moved}
	default: // it takes a member that was frozen most of a minute to come back
		return []wayToGo{killed, moved}
	}
}

// examine asks sqlbrain doctor about a database that is as it should be, and about
// a server of it that is no primary.
func examine(t *testing.T, db *replicated.Database) {
	primary := db.Primary()
	for _, datastore := range []string{db.URL(), db.URL(primary)} {
		found := doctor(t, datastore)
		require.Equal(t, "ok", found["replication"])
		require.Equal(t, "ok", found["route"])
		require.Equal(t, "ok", found["durability"])
	}
	if db.Name() == replicated.Group.Name {
		found := doctor(t, db.URL((primary+1)%db.Size()))
		require.Equal(t, "fail", found["replication"])
		require.Equal(t, "fail", found["writable"])
	}
}

// start starts a database that notices the loss of a server sooner than by default,
// where it may; the long form has the defaults.
func start(t *testing.T, p replicated.Product) *replicated.Database {
	t.Helper()
	if !harness.Long() && p.Name == replicated.Group.Name {
		return replicated.Start(t, p, "--group-replication-member-expel-timeout=0")
	}
	return replicated.Start(t, p)
}
