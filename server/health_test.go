package server

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

// fakeHealth is what keeps a fakeNode from serving.
type fakeHealth struct{ stopped, fed, writable error }

func (f *fakeNode) Stopped() error                 { return f.health.stopped }
func (f *fakeNode) Fed() error                     { return f.health.fed }
func (f *fakeNode) Writable(context.Context) error { return f.health.writable }

// A database that answers and takes no writes, as one that has become read-only, is
// found by the one check that writes; one that is away, by all that ask it.
func TestReadinessNeedsADatabaseThatTakesWrites(t *testing.T) {
	faults := faultdriver.New()
	u, err := sqlstore.ParseURL("sqlite://" + filepath.Join(t.TempDir(), "sqlbrain.db"))
	require.NoError(t, err)
	db, err := sqlstore.OpenDB(u, sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), u.Dialect, db.SQL()))
	require.NoError(t, db.Close())
	store, err := sqlstore.Open(t.Context(), u, sqlstore.Options{WrapConnector: faults.Wrap})
	require.NoError(t, err)
	b, err := backend.Open(t.Context(), store, backend.Config{Logger: slog.New(slog.DiscardHandler), Exclusive: true, RecordCache: -1})
	require.NoError(t, err)
	s, err := New(testConfig(t), b)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.Close(context.Background()))
		require.NoError(t, store.Close())
	})
	runServer(t, s)
	ready := func() (int, string) { return call(t, s, http.MethodGet, "/readyz?verbose", "") }

	// Before the first probe: its success counts for a second.
	faults.Set(func(st faultdriver.Statement) faultdriver.Fault {
		if st.Text == "BEGIN IMMEDIATE" {
			return faultdriver.Fault{Before: faultdriver.ErrLost, Cut: true}
		}
		return faultdriver.Fault{}
	})
	status, body := ready()
	require.Equal(t, 503, status)
	require.Contains(t, body, "[-]database failed: a write failed: sqlbrain: the database is unavailable; the server's log says why\n")
	require.Equal(t, 1, strings.Count(body, "[-]"), body)

	faults.Set(func(faultdriver.Statement) faultdriver.Fault {
		return faultdriver.Fault{Before: faultdriver.ErrLost, Cut: true}
	})
	status, body = ready()
	require.Equal(t, 503, status)
	for _, check := range []string{"[-]serializable_read", "[-]linearizable_read", "[-]database"} {
		require.Contains(t, body, check)
	}
	require.Contains(t, body, "[+]serving ok")
	status, _ = call(t, s, http.MethodGet, "/livez", "")
	require.Equal(t, 503, status)

	faults.Set(nil)
	status, body = ready()
	require.Equal(t, 200, status, body)
	require.Contains(t, body, "[+]database ok")
}
