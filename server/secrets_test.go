package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestPasswordsAndTokensAreNotStoredOrLogged: users' passwords and tokens are in no row of the table,
// no line of the log, no metric and no error; values are in the table only.
func TestPasswordsAndTokensAreNotStoredOrLogged(t *testing.T) {
	const password, wrong, value = "S3cr3tPassword", "Wr0ngPassword", "S3cr3tValue"
	store, out := memstore.New(), &eventually.Log{}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	own := replicaConfig()
	own.Logger = log
	s, _ := startOn(t, store, own, nil, cheap, func(c *Config) {
		c.Logger, c.ExtensiveMetrics, c.SlowRequest = log, true, time.Nanosecond
	})

	ctx := testContext(t)
	plain := newClient(t, s)
	_, err := plain.UserAdd(ctx, "root", password)
	require.NoError(t, err)
	_, err = plain.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = plain.AuthEnable(ctx)
	require.NoError(t, err)
	root := clientOf(t, s, "root", password)
	_, err = root.Put(ctx, "thekey", value)
	require.NoError(t, err)
	_, err = root.Txn(ctx).If(clientv3.Compare(clientv3.Value("thekey"), "=", value)).Then(
		clientv3.OpPut("thekey", value)).Commit()
	require.NoError(t, err)
	token, _ := tokenFor(t, root.ActiveConnection(), "root", password)
	_, err = plain.Auth.Authenticate(ctx, "root", wrong)
	require.Error(t, err)
	failure := err.Error()

	long := strings.Repeat(password, 10) // longer than bcrypt takes
	_, err = root.UserAdd(ctx, "x", long)
	require.ErrorContains(t, err, "72 bytes")

	_, metrics := call(t, s, http.MethodGet, "/metrics", "")
	require.Contains(t, metrics, "etcd_server_")
	var table strings.Builder
	for row, err := range store.Iter(ctx, sqlstore.Range{Start: []byte{0}, End: bytes.Repeat([]byte{0xff}, 8)}) {
		require.NoError(t, err)
		table.Write(row.Key)
		table.Write(row.Value)
	}

	logged := out.String()
	for _, want := range []string{"thekey", "Authenticate", "UserAdd", "authentication failed"} {
		require.Contains(t, logged, want, "the log is that of the calls")
	}
	require.Contains(t, table.String(), value, "the table is that of the store")
	for name, text := range map[string]string{"log": logged, "metrics": metrics, "error": failure,
		"table": table.String()} {
		for _, secret := range []string{password, wrong, token} {
			require.NotContains(t, text, secret, name)
		}
		if name != "table" {
			require.NotContains(t, text, value, name)
			require.NotContains(t, text, "$2a$", name) // as hashes of passwords begin
		}
	}
}
