package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sqlbrain/sqlbrain/server/console"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// newConsole returns the console, whose calls come in like those of the gateway.
func newConsole(cfg Config, n node, sv *etcd.Services, inside *transport.InProcess) (*console.Handler, error) {
	conn, err := inside.Connect()
	if err != nil {
		return nil, err
	}
	return console.New(console.Config{
		Logger: cfg.Logger, Conn: conn, Keys: sv.ConsoleKeys(),
		Node: n.Node, Alarms: n.Alarms, Members: sv.Members, Figures: cfg.Figures, Metrics: cfg.Registry,
		Examine: cfg.Examine,
		Name:    cfg.Name, Product: cfg.Version, EtcdVersion: EtcdVersion,
		Hosts: consoleHosts(cfg), Encrypted: transport.Encrypted,
		Write: cfg.ConsoleWrite, MaxRequestBytes: cfg.MaxRequestBytes,
	}), nil
}

// consoleHosts are the names that browsers may call the console by.
func consoleHosts(cfg Config) []string {
	hosts := slices.Clone(cfg.HostWhitelist)
	for _, raw := range slices.Concat(cfg.ListenClientURLs, cfg.AdvertiseClientURLs) {
		if u, err := url.Parse(raw); err == nil {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// withConsole serves the console in addition to h. Other origins must not call the
// console.
func withConsole(page, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, console.Path):
			page.ServeHTTP(w, r)
		case r.URL.Path+"/" == console.Path:
			http.Redirect(w, r, console.Path, http.StatusMovedPermanently)
		case r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
			// Other clients get etcd's answer. A temporary redirect: the console may be turned off later.
			http.Redirect(w, r, console.Path, http.StatusFound)
		default:
			h.ServeHTTP(w, r)
		}
	})
}
