package replicated

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
)

// settled is the number of writes after which the cluster counts as recovered.
const settled = 200

// TestGroupReplication loses primaries of a Group Replication under load.
func TestGroupReplication(t *testing.T) { failOver(t, start(t, harness.Group)) }

// TestGalera is everything that needs a Galera, whose start takes long.
func TestGalera(t *testing.T) {
	db := start(t, harness.Galera)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *harness.Replicated)
	}{
		{"reads see what was committed elsewhere", readsSeeWhatWasCommittedElsewhere},
		{"another server for each node", anotherServerForEachNode},
		{"failover", failOver},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, db) }) {
			return // servers may be down
		}
		db.Empty()
	}
}

// failOver lets the server that takes the writes go, again and again, under
// load: it is killed, or frozen like a machine that disappears. The nodes know all
// servers by their URL. The test reports how long the database itself was away and
// how long writes failed.
func failOver(t *testing.T, db *harness.Replicated) {
	t.Run("doctor", func(t *testing.T) { examine(t, db) })
	c := nodesOn(t, func(int) string { return db.URL() })
	s := siege.Lay(t, c, workers, wait)
	rounds := harness.UsualOrLong(1, 5)
	for _, w := range waysToGo(db.Name()) {
		var gaps, database []time.Duration
		for range rounds {
			s.Progress(settled)
			gone := db.Primary()
			since := time.Now()
			w.leave(db, gone)
			db.Successor(gone)
			database = append(database, time.Since(since))
			s.Progress(settled)
			gaps = append(gaps, s.Gap(since))
			w.enter(db, gone)
		}
		report(t, db.Name()+", "+w.name+", the database", database)
		report(t, db.Name()+", "+w.name+", no write possible", gaps)
	}
	s.Progress(settled)
	s.End()
}

// wayToGo is how a server ceases to be the primary, and comes back.
type wayToGo struct {
	name         string
	leave, enter func(db *harness.Replicated, i int)
}

func waysToGo(product string) []wayToGo {
	killed := wayToGo{"killed", (*harness.Replicated).Kill, (*harness.Replicated).Start}
	frozen := wayToGo{"frozen", (*harness.Replicated).Pause,
		func(db *harness.Replicated, i int) { db.Resume(i); db.Rejoin(i) }}
	// In order, as for maintenance: the old primary continues as a secondary and keeps
	// all open connections.
	moved := wayToGo{"moved", func(db *harness.Replicated, i int) {
		next := (i + 1) % db.Size()
		db.Exec(i, "SELECT group_replication_set_as_primary('"+db.Query(next, "SELECT @@server_uuid")+"')")
	}, func(*harness.Replicated, int) {}}
	switch {
	case product == harness.Galera.Name: // has no primary to move
		return []wayToGo{killed, frozen}
	case harness.Long():
		return []wayToGo{killed, frozen, moved}
	default: // it takes a member that was frozen most of a minute to come back
		return []wayToGo{killed, moved}
	}
}

// examine runs sqlbrain doctor on a healthy database, and on one of its servers that
// is not the primary.
func examine(t *testing.T, db *harness.Replicated) {
	primary := db.Primary()
	for _, datastore := range []string{db.URL(), db.URL(primary)} {
		found := doctor(t, datastore)
		require.Equal(t, "ok", found["replication"])
		require.Equal(t, "ok", found["route"])
		require.Equal(t, "ok", found["durability"])
	}
	if db.Name() == harness.Group.Name {
		found := doctor(t, db.URL((primary+1)%db.Size()))
		require.Equal(t, "fail", found["replication"])
		require.Equal(t, "fail", found["writable"])
	}
}

// start starts a database. In the usual form a group expels a server that is silent for 15 s, which on a
// busy machine may be one that lives; by default, for 10 s.
func start(t *testing.T, p harness.Replication) *harness.Replicated {
	t.Helper()
	if !harness.Long() && p.Name == harness.Group.Name {
		return harness.StartReplicated(t, p, "--group-replication-member-expel-timeout=10")
	}
	return harness.StartReplicated(t, p)
}
