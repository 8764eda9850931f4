package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

// fakeHealth is what keeps a fakeNode from serving.
type fakeHealth struct{ stopped, fed, writable error }

func (f *fakeNode) Stopped() error                 { return f.health.stopped }
func (f *fakeNode) Fed() error                     { return f.health.fed }
func (f *fakeNode) Writable(context.Context) error { return f.health.writable }

// TestReadinessSaysThatAMemberSpeaksAnotherProtocol where it says that there is no leader.
func TestReadinessSaysThatAMemberSpeaksAnotherProtocol(t *testing.T) {
	store := memstore.New()
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	members, err := member.Join(t.Context(), member.Config{Store: store, Name: "n1"})
	require.NoError(t, err)
	s := startFake(t, &fakeNode{serving: mvcc.ErrNotServing}, nil, func(cfg *Config) { cfg.Members = members })
	leader := func() string { _, body := call(t, s, http.MethodGet, "/readyz/leader", ""); return body }
	require.Equal(t, "[-]leader failed: no leader is known\n\n", leader())

	b := store.BeginBatchWrite()
	b.Put(coder.EncodeMemberKey("n2"), []byte(
		`{"id":7,"version":"v9","incarnation":1,"protocol":9}`))
	require.NoError(t, b.Commit(t.Context()))
	_, err = members.Members(t.Context())
	require.NoError(t, err)
	require.Contains(t, leader(),
		`no leader is known: member "n2" (7) of version v9: member: a member speaks another protocol: it has protocol 9, and this program 1`)
}

// A database that answers and takes no writes, as one that has become read-only, is
// found by the one check that writes; one that is away, by all that ask it.
func TestReadinessNeedsADatabaseThatTakesWrites(t *testing.T) {
	faults := faultdriver.New()
	store := sqldbtest.Opener(engines.OpenDB).Store(t, sqldbtest.SQLiteURL(t),
		sqlstore.Options{WrapConnector: faults.Wrap})
	own := replica.DefaultConfig()
	own.Exclusive, own.RecordCache = true, 0
	s, _ := startOn(t, store, own, nil)
	ready := func() (int, string) { return call(t, s, http.MethodGet, "/readyz?verbose", "") }

	faults.Set(func(st faultdriver.Statement) faultdriver.Fault {
		if st.Text == "BEGIN IMMEDIATE" {
			return faultdriver.Fault{Before: faultdriver.ErrLost, Cut: true}
		}
		return faultdriver.Fault{}
	})
	var status int
	var body string
	// The server has probed by itself when it started, and a success counts for a second.
	eventually.True(t, "a failed write", func() bool { status, body = ready(); return status == 503 })
	require.Contains(t, body, "[-]database failed: a write failed: sqlbrain: the database is unavailable; the server's "+
		"log says why\n")
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
