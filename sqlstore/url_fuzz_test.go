package sqlstore_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// FuzzParseURL: nothing makes it panic, and what it takes prints as something that
// means the same.
func FuzzParseURL(f *testing.F) {
	for _, raw := range []string{
		"", "sqlite:///a%20b/%3Fc%25", "sqlite://a?b", "mysql://u:p@db.example:3307,h/n?tls=true&timeout=5s",
		"tidb://u%40x:p@[fe80::1%25eth0]/n",
		"mysql://u@h/n?tls-ca=a&tls-cert=b&tls-key=c", "mysql://u@h/n?server-public-key=a", "mYsql://0@0/0?tls-cert=00",
		"u:p@tcp(h)/n", "mysql://u:p@h,h/n", "mysql://,@,/,", "mysql://u@h:/n", "mysql://u@h/%2F?tls=false",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := sqlstore.ParseURL(raw)
		if err != nil {
			require.ErrorIs(t, err, sqlstore.ErrURL, "%q", raw)
			require.Nil(t, u)
			return
		}
		requireSame(t, u)
	})
}

// FuzzPasswordIsNotShown: neither an error nor what is printed has the password, not
// even if characters of it should have been percent-encoded and were not. Only
// an @ is beyond that: what comes before it cannot be told from a user or a host.
func FuzzPasswordIsNotShown(f *testing.F) {
	const marker = "S3cr3tOfTests"
	f.Add("", "", "h:3306/n?tls=true", true)
	f.Add("a/", "#", "h/n", false)
	f.Add("12,", ","+marker+"/x", "h/n", false)
	f.Add("12,h,", "?x", "h/n", false)
	f.Add("%", "%zz", "h,h/n", false)
	f.Add("1/n?tls=", "", "h/n", false)
	f.Add("\x00", "\xff", "h/n?charset=x", true)
	f.Fuzz(func(t *testing.T, before, behind, rest string, encoded bool) {
		password := before + marker + behind
		if encoded {
			password = url.UserPassword("", password).String()[1:]
		} else if strings.Contains(password, "@") {
			return
		}
		if strings.Contains(rest, "@") {
			return // the last one counts
		}
		raw := "mysql://user:" + password + "@" + rest
		u, err := sqlstore.ParseURL(raw)
		shown := fmt.Sprint(err)
		if err == nil {
			shown = fmt.Sprintf("%v %+v %#v %s %q", u, *u, *u, u.Redacted(), u.LogValue())
		}
		if strings.Contains(shown, marker) && !strings.Contains(rest, marker) {
			t.Fatalf("%q shows the password: %s", raw, shown)
		}
	})
}
