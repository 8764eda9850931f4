package program

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// giveUpWait is how long a program that cannot start may take to print why: it tries a database for 30 s.
const giveUpWait = 3 * time.Minute

// refuses runs sqlbrain serve with arguments it must refuse: one line on
// standard error that contains each of wanted, in addition to the log, and a failure code.
func refuses(t *testing.T, wanted []string, args ...string) {
	t.Helper()
	// Another process may have the usual port for peers.
	out := harness.Run(t, giveUpWait, "", harness.Sqlbrain(t), append([]string{"serve", "--listen-peer-urls="}, args...)...)
	require.NotZero(t, out.Code, "it ended without an error:\n%s", out.Stderr)
	require.Empty(t, out.Stdout)
	var said []string
	for line := range strings.Lines(out.Stderr) {
		if !strings.HasPrefix(line, "{") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	require.Len(t, said, 1, "%s", out.Stderr)
	for _, w := range wanted {
		require.Contains(t, said[0], w)
	}
	require.NotContains(t, out.Stderr, "panic")
	require.NotContains(t, out.Stderr, secret, "a password must not be shown")
	require.LessOrEqual(t, len(said[0]), 500, "%s", said[0])
}

// secret is the password of the users that these tests make.
const secret = "S3cr3tOfTests"

func listenFlag(t *testing.T) string {
	return fmt.Sprintf("--listen-client-urls=http://127.0.0.1:%d", enginetest.FreePort(t))
}

func TestBadSettings(t *testing.T) {
	harness.NeedsDatabase(t)
	dir := t.TempDir()
	sqlite := "--datastore=sqlite://" + filepath.Join(dir, "data.db")
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte(
		"this is neither a database nor a certificate, but a text of some length\n"), 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	port := enginetest.FreePort(t)

	for _, c := range []struct {
		name   string
		wanted []string
		args   []string
	}{
		{"unknown flag", []string{"--nosuch"}, []string{sqlite, "--nosuch"}},
		{"an argument", []string{"extra"}, []string{sqlite, "extra"}},
		{"not a number", []string{"--max-txn-ops", `"many"`}, []string{sqlite, "--max-txn-ops=many"}},
		{"out of range", []string{"--max-txn-ops", "-1"}, []string{sqlite, "--max-txn-ops=-1"}},
		{"no duration", []string{"--request-timeout", `"soon"`}, []string{sqlite, "--request-timeout=soon"}},
		{"unknown mode", []string{"--auto-compaction-mode", `"sometimes"`}, []string{sqlite, "--auto-compaction-mode=sometimes"}},
		{"no config file", []string{"nosuch.yaml"}, []string{sqlite, "--config-file", filepath.Join(dir, "nosuch.yaml")}},
		{"config file with an unknown key", []string{"nosuch"}, []string{sqlite, "--config-file", writeFile(t, dir, "a.yaml", "nosuch: 1\n")}},

		{"no scheme", []string{"--datastore", "sqlite://", "mysql://"}, []string{"--datastore=here"}},
		{"unknown scheme", []string{"--datastore", "postgres"}, []string{"--datastore=postgres://u@h/d"}},
		{"no database in the URL", []string{"--datastore", "database"}, []string{"--datastore=mysql://u:" + secret + "@127.0.0.1:1/"}},
		{"unknown parameter", []string{"nosuch"}, []string{sqlite + "?nosuch=1"}},
		{"no listener", []string{"connection refused", fmt.Sprint(port)}, []string{fmt.Sprintf("--datastore=mysql://u:%s@127.0.0.1:%d/d", secret, port)}},
		{"no such host", []string{"nosuch.invalid"}, []string{"--datastore=mysql://u:" + secret + "@nosuch.invalid/d"}},
		{"a file that is not a database", []string{text, "not a database"}, []string{"--datastore=sqlite://" + text}},
		{"a directory", []string{dir}, []string{"--datastore=sqlite://" + dir}},

		{"port taken", []string{taken.Addr().String(), "in use"}, []string{sqlite, "--listen-client-urls=http://" + taken.Addr().String()}},
		{"no port", []string{"--listen-client-urls", "99999"}, []string{sqlite, "--listen-client-urls=http://127.0.0.1:99999"}},
		{"no URL", []string{"--listen-client-urls", "localhost"}, []string{sqlite, "--listen-client-urls=localhost"}},
		{"an address of another machine", []string{"192.0.2.1"}, []string{sqlite, "--listen-client-urls=http://192.0.2.1:2379"}},

		{"https without a certificate", []string{"cert"}, []string{sqlite, "--listen-client-urls=https://127.0.0.1:0"}},
		{"no certificate file", []string{"nosuch.pem"}, []string{sqlite, "--listen-client-urls=https://127.0.0.1:0",
			"--cert-file", filepath.Join(dir, "nosuch.pem"), "--key-file", text}},
		{"no certificate in the file", []string{text}, []string{sqlite, "--listen-client-urls=https://127.0.0.1:0",
			"--cert-file", text, "--key-file", text}},
		{"a CA without a certificate", []string{"--trusted-ca-file", "--cert-file"}, []string{sqlite, "--listen-client-urls=http://127.0.0.1:0", "--trusted-ca-file", text, "--client-cert-auth"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if !strings.Contains(strings.Join(args, " "), "--listen-client-urls") {
				args = append(args, listenFlag(t))
			}
			refuses(t, c.wanted, args...)
		})
	}
}

func writeFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// asUser returns a database URL with another user.
func asUser(t *testing.T, databaseURL, user, password string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	u.User = url.UserPassword(user, password)
	return u.String()
}

func TestBadDatabases(t *testing.T) {
	harness.NeedsDatabase(t)
	harness.ForEachServer(t, badDatabases)
}

func badDatabases(t *testing.T, p enginetest.Product) {
	server := p.StartServer(t)
	enginetest.Exec(t, server.URL(),
		"CREATE USER reader@'127.0.0.1' IDENTIFIED BY '"+secret+"'", "GRANT SELECT ON *.* TO reader@'127.0.0.1'",
		"CREATE USER writer@'127.0.0.1' IDENTIFIED BY '"+secret+"'", "GRANT ALL ON *.* TO writer@'127.0.0.1'",
		"CREATE USER owner@'127.0.0.1' IDENTIFIED BY '"+secret+"'")
	for _, db := range []string{"sqlbrain", "others", "empty"} {
		if db != "sqlbrain" {
			server.NewDatabase(db)
		}
		enginetest.Exec(t, server.URL(), "GRANT ALL ON `"+db+"`.* TO owner@'127.0.0.1'")
	}
	at := func(database string) string {
		return server.URL()[:strings.LastIndexByte(server.URL(), '/')+1] + database
	}

	t.Run("wrong password", func(t *testing.T) {
		refuses(t, []string{"denied", "reader"}, "--datastore", asUser(t, at("empty"), "reader", "wrong"), listenFlag(t))
	})
	t.Run("no such user", func(t *testing.T) {
		refuses(t, []string{"denied", "nobody"}, "--datastore", asUser(t, at("empty"), "nobody", secret), listenFlag(t))
	})
	t.Run("no such database", func(t *testing.T) {
		refuses(t, []string{"nosuch"}, "--datastore", asUser(t, at("nosuch"), "writer", secret), listenFlag(t))
	})
	t.Run("may not create the table", func(t *testing.T) {
		refuses(t, []string{"denied", "reader"}, "--datastore", asUser(t, at("empty"), "reader", secret), listenFlag(t))
	})
	t.Run("may not write", func(t *testing.T) {
		node := harness.StartNodeOn(t, at("sqlbrain"))
		node.Stop()
		refuses(t, []string{"denied", "reader"}, "--datastore", asUser(t, at("sqlbrain"), "reader", secret), listenFlag(t))
	})
	t.Run("a table of another program", func(t *testing.T) {
		enginetest.Exec(t, at("others"), "CREATE TABLE object (id INT PRIMARY KEY, name TEXT)",
			"INSERT INTO object VALUES (1, 'keep me')")
		refuses(t, []string{"object"}, "--datastore", asUser(t, at("others"), "owner", secret), listenFlag(t))
		enginetest.Exec(t, at("others"), "UPDATE object SET name = 'kept' WHERE id = 1 AND name = 'keep me'")
	})
	t.Run("read-only at start", func(t *testing.T) {
		enginetest.Exec(t, server.URL(), "SET GLOBAL "+p.ReadOnly()+" = 1")
		defer enginetest.Exec(t, server.URL(), "SET GLOBAL "+p.ReadOnly()+" = 0")
		refuses(t, []string{"read"}, "--datastore", asUser(t, at("sqlbrain"), "owner", secret), listenFlag(t))
	})
	t.Run("read-only for a while", func(t *testing.T) {
		node := harness.StartNodeOn(t, asUser(t, at("sqlbrain"), "owner", secret), "--request-timeout=2s")
		c := node.Client()
		ctx, cancel := context.WithTimeout(t.Context(), giveUpWait)
		defer cancel()
		put := func(value string) error { _, err := c.Put(ctx, "k", value); return err }
		eventually.True(t, "a write", func() bool { return put("before") == nil })
		enginetest.Exec(t, server.URL(), "SET GLOBAL "+p.ReadOnly()+" = 1")
		err := put("meanwhile")
		require.Equal(t, codes.Unavailable, harness.Code(err), "%v", err)
		eventually.Nil(t, giveUpWait, func(ctx context.Context) error {
			got, err := c.Get(ctx, "k", clientv3.WithSerializable())
			if err == nil {
				require.Equal(t, "before", string(got.Kvs[0].Value))
			}
			return err
		})
		enginetest.Exec(t, server.URL(), "SET GLOBAL "+p.ReadOnly()+" = 0")
		eventually.True(t, "a write", func() bool { return put("after") == nil })
	})
}

// TestTooLarge: keys and values that do not fit are refused, and change nothing.
func TestTooLarge(t *testing.T) {
	harness.NeedsDatabase(t)
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		c := harness.StartNode(t, e).Client()
		ctx, cancel := context.WithTimeout(t.Context(), giveUpWait)
		defer cancel()
		put := func(key, value string) error {
			_, err := c.Put(ctx, key, value)
			return err
		}
		require.NoError(t, put(strings.Repeat("k", 3059), "the longest key"))
		err := put(strings.Repeat("k", 3060), "one more")
		require.Equal(t, codes.InvalidArgument, harness.Code(err), "%v", err)
		require.ErrorContains(t, err, "key is too long")
		require.NoError(t, put("value", strings.Repeat("v", 1400<<10)))
		require.ErrorIs(t, put("value", strings.Repeat("v", 1536<<10)), rpctypes.ErrRequestTooLarge)
		require.Equal(t, codes.ResourceExhausted, harness.Code(put("value", strings.Repeat("v", 3<<20))))

		r, err := c.Get(ctx, "k", clientv3.WithFromKey())
		require.NoError(t, err)
		require.Len(t, r.Kvs, 2)
		require.EqualValues(t, 3, r.Header.Revision)
		require.Len(t, r.Kvs[1].Value, 1400<<10)
	})
}

// TestSmallPackets: what the engine's packets limit is known before it is sent.
func TestSmallPackets(t *testing.T) {
	harness.NeedsDatabase(t)
	server := enginetest.StartServer(t)
	enginetest.Exec(t, server.URL(), "SET GLOBAL max_allowed_packet = 1048576")
	c := harness.StartNodeOn(t, server.URL()).Client()
	ctx, cancel := context.WithTimeout(t.Context(), giveUpWait)
	defer cancel()
	_, err := c.Put(ctx, "value", strings.Repeat("v", 1300<<10))
	require.Equal(t, codes.InvalidArgument, harness.Code(err), "%v", err)
	r, err := c.Put(ctx, "value", strings.Repeat("v", 500<<10))
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Header.Revision)
}
