package sqlstore_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]sqlstore.URL{
		"sqlite:///var/lib/sqlbrain/db":                 {Dialect: "sqlite", Path: "/var/lib/sqlbrain/db"},
		"sqlite://data/sqlbrain.db":                     {Dialect: "sqlite", Path: "data/sqlbrain.db"},
		"sqlite://sqlbrain.db":                          {Dialect: "sqlite", Path: "sqlbrain.db"},
		"sqlite:///a%20b/%3Fc%25":                       {Dialect: "sqlite", Path: "/a b/?c%"},
		"mysql://u:p@db.example:3307/n":                 {Dialect: "mysql", Address: "db.example:3307", User: "u", Database: "n"},
		"mysql://u@h/n?socket=/run/my.sock":             {Dialect: "mysql", Address: "h:3306", User: "u", Database: "n", Socket: "/run/my.sock"},
		"mysql://u@db.example/n":                        {Dialect: "mysql", Address: "db.example:3306", User: "u", Database: "n"},
		"MariaDB://u@[::1]/n?tls=true":                  {Dialect: "mysql", Address: "[::1]:3306", User: "u", Database: "n"},
		"tidb://u%40x:p@h/n?timeout=5s":                 {Dialect: "mysql", Address: "h:4000", User: "u@x", Database: "n"},
		"mysql://u:p@h/n?tls-ca=a&tls-cert=b&tls-key=c": {Dialect: "mysql", Address: "h:3306", User: "u", Database: "n"},
		"mysql://u:p@h/n?server-public-key=a":           {Dialect: "mysql", Address: "h:3306", User: "u", Database: "n"},
	} {
		u, err := sqlstore.ParseURL(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, sqlstore.URL{Dialect: u.Dialect, Path: u.Path, Address: u.Address, User: u.User,
			Database: u.Database, Socket: u.Socket}, raw)
		requireSame(t, u)
	}
}

// requireSame: what is printed means the same, but for the password.
func requireSame(t *testing.T, u *sqlstore.URL) {
	t.Helper()
	again, err := sqlstore.ParseURL(u.String())
	require.NoError(t, err, u)
	require.Equal(t, u.String(), again.String())
}

func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for raw, says := range map[string]string{
		"":                               "sqlite:// or mysql://",
		"/var/lib/db":                    "sqlite:// or mysql://",
		"postgres://u:s3cret@h/n":        `"postgres"`,
		"u:s3cret@tcp(h:3306)/n":         "sqlite:// or mysql://: write host:port without tcp()",
		"s3cret:x@tcp(h:3306)/n":         "sqlite:// or mysql://: write host:port without tcp()",
		"mysql://u:s3cret@tcp(h:3306)/n": "write host:port without tcp()",
		"mysql://u:s3cret@tcp(h)/n":      "write host:port without tcp()",
		"mysql://u:s3cret@unix(/run/s3cret.sock)/n":          "without unix()",
		"mysql://u:s3cret@(h)/n":                             "host",
		"sqlite://":                                          "path",
		"sqlite:///dir/":                                     "path",
		"sqlite::memory:":                                    "//",
		"sqlite://:memory:":                                  "memory",
		"sqlite:///a?mode=ro":                                `"mode"`,
		"mysql://u:s3cret@/n":                                "host",
		"mysql://h/n":                                        "user",
		"mysql://u:s3cret@h":                                 "database",
		"mysql://u:s3cret@h/a/b":                             "database",
		"mysql://u:s3cret@h:0/n":                             "port",
		"tidb://u:s3cret@a:1,b,c:2?tls=true":                 "database",
		"mysql://u:s3cret@a,b:0/n":                           "port",
		"mysql://u:s3cret@a,,b/n":                            "host",
		"mysql://u:s3cret@a,/n":                              "host",
		"mysql://u:s3cret@,a/n":                              "host",
		"mysql://u:s3cret@a,b:3306,b/n":                      "twice",
		"mysql://u:s3cret@a,b c/n":                           "hosts",
		"mysql://u:s3cret@h:70000/n":                         "port",
		"mysql://u:s3cret/x@h/n":                             "percent-encoded",
		"mysql://u:s3cret#x@h/n":                             "percent-encoded",
		"mysql://u:x@h/n#s3cret":                             "fragment",
		"mysql://u:s3cret%zz@h/n":                            "percent-encoded",
		"mysql://u:s3cret@h/n?charset=gbk":                   `"charset"`,
		"mysql://u:s3cret@h/n?collation=x":                   `"collation"`,
		"mysql://u:s3cret@h/n?allowAllFiles=1":               `"allowAllFiles"`,
		"mysql://u:s3cret@h/n?multiStatements":               `"multiStatements"`,
		"mysql://u:s3cret@h/n?socket=run":                    "absolute path",
		"mysql://u:s3cret@h,i/n?socket=/run/my.sock":         "several hosts",
		"mysql://u:s3cret@h/n?TLS=true":                      `"TLS"`,
		"mysql://u:s3cret@h/n?tls=yes":                       `"yes"`,
		"mysql://u:s3cret@h/n?tls=true&tls=skip-verify":      "more than once",
		"mysql://u:s3cret@h/n?tls-cert=a":                    "go together",
		"mysql://u:s3cret@h/n?tls=false&tls-ca=a":            "contradicts",
		"mysql://u:s3cret@h/n?tls=skip-verify&tls-ca=a":      "ignored",
		"mysql://u:s3cret@h/n?server-public-key=a&tls=true":  "without TLS",
		"mysql://u:s3cret@h/n?timeout=5":                     `"5"`,
		"mysql://u:s3cret@h/n?timeout=-5s":                   `"-5s"`,
		"mysql://u:s3cret@h/n?sql_mode=ANSI&tls=skip-verify": `"sql_mode"`,
	} {
		_, err := sqlstore.ParseURL(raw)
		require.ErrorIs(t, err, sqlstore.ErrURL, raw)
		require.ErrorContains(t, err, says, raw)
		require.NotContains(t, err.Error(), secret, raw)
	}
}

func TestPasswordIsNeverShown(t *testing.T) {
	t.Parallel()
	u, err := sqlstore.ParseURL("mysql://user:s3cret%2Fwith%23every%25thing%40@127.0.0.1:1/n?tls-ca=/nonexistent")
	require.NoError(t, err)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "url", u, "value", *u)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "url", u, "value", *u)
	shown := []string{u.String(), u.Redacted(), log.String()}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		shown = append(shown, fmt.Sprintf(format, u), fmt.Sprintf(format, *u))
	}
	for _, s := range shown {
		require.NotContains(t, s, "s3cret")
	}
	require.Contains(t, shown[0], "user")
	require.Contains(t, shown[0], "xxxxx", "that there is a password")
}

func TestSeveralHostsInAURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"mysql://u:p@a,b:3307,[::1]/n": "a:3306 b:3307 [::1]:3306",
		"tidb://u:p,@a:1,b,c:2/n":      "a:1 b:4000 c:2",
		"mysql://u:p@a/n":              "a:3306",
	} {
		u, err := sqlstore.ParseURL(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, strings.Join(u.Addresses(), " "), raw)
		requireSame(t, u)
	}
	one, other := parse(t, "tidb://u:p,@a:1,b,c:2/n"), parse(t, "tidb://u:p,@b,c:2,a:1/n")
	require.NotEqual(t, one.String(), other.String())
	require.Equal(t, one.InOrder().String(), other.InOrder().String())
}

func parse(t *testing.T, raw string) *sqlstore.URL {
	t.Helper()
	u, err := sqlstore.ParseURL(raw)
	require.NoError(t, err)
	return u
}
