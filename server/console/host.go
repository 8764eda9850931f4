package console

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// knownHosts refuses requests whose host name is not the server's. By DNS rebinding, another site can
// make its name resolve to this server. The browser then takes the site's page for one of the console's
// origin, so the page could read and change what the user may. The attack needs a name, so addresses
// pass. Requests over TLS pass too, because the browser has compared the name with the certificate.
func knownHosts(names []string, encrypted func(*http.Request) bool, next http.Handler) http.Handler {
	known := map[string]bool{"localhost": true}
	for _, name := range names {
		// "*", etcd's default, names no host that belongs to this server.
		if name = plainHost(name); name != "" && name != "*" {
			known[name] = true
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r)
		if _, err := netip.ParseAddr(host); err != nil && !known[host] && !encrypted(r) {
			http.Error(w, fmt.Sprintf("The console does not know the name %q that it was called by, and so it may be another "+
				"site's, by DNS rebinding.\n"+
				"Call it by localhost, an address, a name of --listen-client-urls or --advertise-client-urls, or https;\n"+
				"or name it besides: --host-whitelist='*,%s'.", host, host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf returns the name or address that r calls the server by, without the port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]")
	}
	return plainHost(host)
}

// plainHost is the one form of a name that has several.
func plainHost(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// ownPages refuses what other sites' pages ask for. Browsers keep the answer from them in any
// case; but a count of sizes reads everything, and should not be theirs to start.
func ownPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "same-origin", "none": // no browser, the console's page, or the address bar
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "another site's page may not call the console", http.StatusForbidden)
		}
	})
}
