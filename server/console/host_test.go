package console_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
)

// called asks as a browser does whose page has the origin http://host.
func (b *browser) called(method, path, host string) int {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.address+path,
		strings.NewReader(`{"key":"YQ==","value":"","mod_revision":0}`))
	require.NoError(b.t, err)
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Origin", "http://"+host)
	resp, err := b.client.Do(r)
	require.NoError(b.t, err)
	require.NoError(b.t, resp.Body.Close())
	return resp.StatusCode
}

var (
	strangers = []string{"evil.example", "evil.example:2379", "127.0.0.1.evil.example", "localhost.evil.example",
		"localhost.evil.example:2379", "*", "n1.example.evil.example"}
	friends = []string{"localhost:2379", "LocalHost", "localhost.:2379", "127.0.0.1:2379", "192.0.2.7", "[::1]:2379",
		"[::1]"}
)

// The page of a site whose name was made to lead here is of the same origin as the console for the
// browser: only the name shows that it is another site's.
func TestUnknownHostNamesAreRefused(t *testing.T) {
	named := func(c *server.Config) {
		c.AdvertiseClientURLs = []string{"http://n1.example:2379", "http://192.0.2.1:2379"}
		c.HostWhitelist = []string{"*", "Console.example"}
	}
	for name, change := range map[string]func(*server.Config){"as it is": func(*server.Config) {}, "with names": named} {
		t.Run(name, func(t *testing.T) {
			b := newBrowser(t, start(t, writing, change))
			for _, host := range strangers {
				for _, path := range []string{"/ui/", "/ui/api/session", "/ui/api/keys", "/ui/api/sizes"} {
					require.Equal(t, http.StatusMisdirectedRequest, b.called(http.MethodGet, path, host), "%s %s", host, path)
				}
				require.Equal(t, http.StatusMisdirectedRequest, b.called(http.MethodPost, "/ui/api/put", host), host)
			}
			require.EqualValues(t, 0, b.ok(b.ask("sizes"))["keys"])
			for _, host := range friends {
				require.Equal(t, http.StatusOK, b.called(http.MethodGet, "/ui/api/session", host), host)
			}
			want := map[bool]int{true: http.StatusOK, false: http.StatusMisdirectedRequest}[name == "with names"]
			for _, host := range []string{"n1.example:2379", "console.example", "CONSOLE.example:80"} {
				require.Equal(t, want, b.called(http.MethodGet, "/ui/api/session", host), host)
			}
			require.Equal(t, http.StatusOK, b.called(http.MethodPost, "/ui/api/put", "127.0.0.1:2379"))
		})
	}
}

// With TLS the browser has compared the name with the certificate.
func TestUnknownHostNamesPassOverTLS(t *testing.T) {
	ca, d := tlstest.NewAuthority(t, "ca"), tlstest.NewDir(t)
	d.Write(t, ca, "server")
	address := start(t, func(c *server.Config) {
		c.ListenClientURLs, c.TLS = []string{"https://127.0.0.1:0"}, d.Config
	})
	for _, http2 := range []bool{false, true} {
		b := newBrowser(t, address)
		b.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: http2}
		t.Cleanup(b.client.CloseIdleConnections)
		require.Equal(t, http.StatusOK, b.called(http.MethodGet, "/ui/api/session", "any.example"))
	}
}

func TestPagesOfOtherSitesCannotStartCounts(t *testing.T) {
	b := newBrowser(t, start(t))
	for site, want := range map[string]int{
		"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "same-origin": http.StatusOK,
		"none": http.StatusOK,
	} {
		resp, _ := b.do(http.MethodGet, "/ui/api/sizes", nil, map[string]string{"Sec-Fetch-Site": site})
		require.Equal(t, want, resp.StatusCode, site)
	}
	resp, _ := b.do(http.MethodGet, "/ui/", nil, map[string]string{"Sec-Fetch-Site": "cross-site"})
	require.Equal(t, http.StatusOK, resp.StatusCode, "a link to the console")
}
