package kine

import (
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestEndpoints(t *testing.T) {
	files := tlsFiles{ca: "/certs/ca.crt", cert: "/certs/server.crt", key: "/certs/server.key"}
	const tls = "tls=true&tls-ca=%2Fcerts%2Fca.crt&tls-cert=%2Fcerts%2Fserver.crt&tls-key=%2Fcerts%2Fserver.key"
	for _, c := range []struct {
		endpoint string
		files    tlsFiles
		want     string
		notes    int
	}{
		{"", tlsFiles{}, "sqlite://./db/state.db", 0},
		{"sqlite://", tlsFiles{}, "sqlite://./db/state.db", 0},
		{"sqlite:///var/lib/kine/a b%.db", tlsFiles{}, "sqlite:///var/lib/kine/a%20b%25.db", 0},
		{"sqlite://./db/state.db?_journal_mode=WAL&cache=shared", tlsFiles{}, "sqlite://./db/state.db", 1},
		{"sqlite://file:/tmp/a%20b.db?_txlock=immediate", tlsFiles{}, "sqlite:///tmp/a%20b.db", 1},
		{"mysql://kamaji:s3/cr:e@t@tcp(mysql.svc:3306)/tenant", tlsFiles{},
			"mysql://kamaji:s3%2Fcr%3Ae%40t@mysql.svc:3306/tenant", 0},
		{"mysql://kamaji:pw@tcp(mysql.svc:3306)/tenant", files, "mysql://kamaji:pw@mysql.svc:3306/tenant?" + tls, 0},
		{"mysql://kamaji:pw@tcp(mysql.svc)/tenant", tlsFiles{}, "mysql://kamaji:pw@mysql.svc:3306/tenant", 0},
		{"mysql://kamaji@tcp([::1]:3307)/", tlsFiles{}, "mysql://kamaji@[::1]:3307/kubernetes", 0},
		{"mysql://", tlsFiles{}, "mysql://root@localhost/kubernetes?socket=%2Fvar%2Frun%2Fmysqld%2Fmysqld.sock", 0},
		{"mysql://", files, "mysql://root@127.0.0.1:3306/kubernetes?" + tls, 0},
		{"mysql://u:p@unix(/run/my.sock)/db?charset=utf8mb4&parseTime=true", tlsFiles{},
			"mysql://u:p@localhost/db?socket=%2Frun%2Fmy.sock", 2},
		{"mysql://u:p@tcp(h:1)/db?tls=skip-verify&timeout=5s", tlsFiles{}, "mysql://u:p@h:1/db?tls=skip-verify", 0},
		{"mysql://u:p@tcp(h:1)/db?server-public-key=%2Fkey.pem", tlsFiles{},
			"mysql://u:p@h:1/db?server-public-key=%2Fkey.pem", 0},
		{"mysql://u:p@tcp(h:1)/db?timeout=90s", tlsFiles{}, "mysql://u:p@h:1/db?timeout=1m30s", 0},
		{"mysql://u:p@tcp(h:1)/db?timeout=5s&readTimeout=10s&writeTimeout=10s", tlsFiles{}, "mysql://u:p@h:1/db?timeout=10s",
			0},
		{"mysql://u:p@tcp(h:1)/db?tls=preferred", tlsFiles{}, "mysql://u:p@h:1/db?tls=preferred", 0},
		{"mysql://u:p@tcp(h:1)/db?tls=skip-verify&allowFallbackToPlaintext=true", tlsFiles{},
			"mysql://u:p@h:1/db?tls=preferred", 0},
		{"mysql://u:p@tcp(h:1)/db", tlsFiles{skipVerify: true}, "mysql://u:p@h:1/db", 1},
		{"mysql://u:p@tcp(h:1)/db", tlsFiles{ca: "ca", skipVerify: true}, "mysql://u:p@h:1/db?tls=skip-verify", 1},
		{"mysql://u:p@tcp(h:1)/db?tls=false", tlsFiles{ca: "ca"}, "mysql://u:p@h:1/db?tls=true&tls-ca=ca", 0},
	} {
		d, err := parseEndpoint(c.endpoint, c.files)
		require.NoError(t, err, c.endpoint)
		require.Equal(t, c.want, d.url, c.endpoint)
		require.Len(t, d.notes, c.notes, c.endpoint)
		_, err = sqlstore.ParseURL(d.url)
		require.NoError(t, err, c.endpoint)
	}
}

func TestEndpointsThatAreRefused(t *testing.T) {
	for endpoint, want := range map[string]string{
		"state.db":                                      "must begin with",
		"postgres://u:Geheim@h/d":                       "PostgreSQL",
		"postgresql://u:Geheim@h/d":                     "PostgreSQL",
		"nats://h":                                      "NATS",
		"t4:///data":                                    "T4",
		"http://etcd:2379":                              "another etcd",
		"litestream://x":                                "Litestream",
		"memory://":                                     "in memory",
		"u:Geheim://x":                                  "not one of kine's",
		"sqlite://:memory:":                             "in memory",
		"sqlite://x?mode=memory":                        "in memory",
		"mysql://u:Geheim@host:3306/db":                 "tcp(host:port)",
		"mysql://u:Geheim@host/db":                      "tcp(host:port)",
		"mysql://u:Geheim":                              "tcp(host:port)",
		"mysql://:Geheim@tcp(h)/db":                     "tcp(host:port)",
		"mysql://u:Geheim@tcp(h)/db?serverPubKey=x":     "serverPubKey",
		"mysql://u:Geheim@tcp(h)/db?innodb_lock_wait=1": "innodb_lock_wait",
		"mysql://u:Geheim@tcp(h)/db?tls=mine":           "--ca-file",
		"mysql://u:Geheim@tcp(h)/db?timeout=5":          "duration",
		"mysql://u:Geheim@tcp(h)/a%2Fb":                 "name of the database",
		"mysql://u:p@tcp(h)/d?allowFallbackToPlaintext=1&tls=true": "preferred",
	} {
		_, err := parseEndpoint(endpoint, tlsFiles{})
		require.ErrorContains(t, err, want, endpoint)
		require.NotContains(t, err.Error(), "Geheim", endpoint)
	}
	_, err := parseEndpoint("mysql://u@tcp(h)/d", tlsFiles{cert: "c"})
	require.ErrorContains(t, err, "--key-file")
}

// FuzzMySQLEndpoint: what is accepted names the server, user, password and database that kine's driver would take.
func FuzzMySQLEndpoint(f *testing.F) {
	for _, dsn := range []string{
		"user:pass@tcp(host:3306)/db", "u:p@/@tcp(h)/d?tls=true", "u@unix(/s)/", "u:p:q@tcp([fe80::1%25eth0]:1)/d?timeout=1s",
		"/", "", "a(b", "u:%zz@tcp(h)/d",
		"u:p@tcp(h:3306)/d%20b?x", "u:p@tcp(a@b:1)/d",
	} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		d, err := parseMySQL(dsn, tlsFiles{})
		if err != nil || dsn == "" {
			return
		}
		u, err := sqlstore.ParseURL(d.url)
		if err != nil {
			require.NotContains(t, err.Error(), "Geheim")
			return // it has a host or a port that the driver would not reach either
		}
		base := dsn
		if slash := strings.LastIndexByte(dsn, '/'); strings.Contains(dsn[slash:], "?") {
			base = dsn[:slash+strings.IndexByte(dsn[slash:], '?')]
		}
		kines, err := mysql.ParseDSN(base)
		require.NoError(t, err)
		password, err := u.Password(t.Context())
		require.NoError(t, err)
		require.Equal(t, kines.User, u.User)
		require.Equal(t, kines.Passwd, password)
		if kines.DBName == "" {
			kines.DBName = defaultDatabase
		}
		require.Equal(t, kines.DBName, u.Database)
		if kines.Net == "unix" {
			require.Equal(t, kines.Addr, u.Socket)
			return
		}
		want, err := url.Parse("x://" + kines.Addr)
		require.NoError(t, err)
		require.Equal(t, strings.ToLower(want.Port()), u.Addresses()[0][strings.LastIndexByte(u.Address, ':')+1:])
	})
}
