package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/console"
)

// newConsole returns the console, whose calls come in like those of the gateway.
func newConsole(cfg Config, n node, sv *services, inside *inProcess) (http.Handler, error) {
	conn, err := inside.connect()
	if err != nil {
		return nil, err
	}
	return console.New(console.Config{
		Logger: cfg.Logger, Conn: conn, Keys: &consoleReads{backend: n, guard: sv.guard, audit: sv.audit, logout: sv.auth.logout, log: cfg.Logger},
		Node: n, Members: sv.cluster.members.Cached, Metrics: cfg.Registry,
		Name: cfg.Name, Product: cfg.Version, EtcdVersion: EtcdVersion,
		Hosts: consoleHosts(cfg), Encrypted: func(r *http.Request) bool { return tlsOf(r) != nil },
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

// withConsole serves the console beside h. It is no part of what other origins may
// call.
func withConsole(page, h http.Handler) http.Handler {
	if page == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, console.Path):
			page.ServeHTTP(w, r)
		case r.URL.Path+"/" == console.Path:
			http.Redirect(w, r, console.Path, http.StatusMovedPermanently)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// consoleReads implements console.Keys: what etcd has no RPC for, guarded like a range.
type consoleReads struct {
	backend consoleBackend
	guard   *auth.Guard
	audit   *auditor
	logout  func(context.Context) error
	log     *slog.Logger
}

// fromConsole turns the metadata of an outgoing call into that of one that a client
// made.
func fromConsole(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return withRequestID(auth.From(metadata.NewIncomingContext(ctx, md), auth.Client))
}

func (c *consoleReads) AuthEnabled() bool { return c.backend.AuthRows().Enabled }

func (c *consoleReads) Admit(ctx context.Context) error {
	ctx = fromConsole(ctx)
	return c.answer(ctx, "console status", nil, nil, c.guard.Somebody(ctx))
}

func (c *consoleReads) Logout(ctx context.Context) error {
	return answer(ctx, c.log, "console logout", c.logout(fromConsole(ctx)))
}

func (c *consoleReads) Children(ctx context.Context, q *backend.ChildrenRequest) (*backend.Children, error) {
	kr := q.KeyRange()
	ctx = fromConsole(ctx)
	permitted, read := c.guard.Range(ctx, kr.Key, kr.End)
	res, err := c.backend.Children(permitted, q)
	if changed := read.Done(); changed != nil {
		err = changed
	}
	return res, c.answer(ctx, "console keys", kr.Key, kr.End, err)
}

func (c *consoleReads) KeyHistory(ctx context.Context, q *backend.KeyHistoryRequest) (*backend.KeyHistory, error) {
	ctx = fromConsole(ctx)
	permitted, read := c.guard.Range(ctx, q.Key, nil)
	res, err := c.backend.KeyHistory(permitted, q)
	if changed := read.Done(); changed != nil {
		err = changed
	}
	return res, c.answer(ctx, "console history", q.Key, nil, err)
}

// answer returns the gRPC error for err, and records it if it is a denial.
func (c *consoleReads) answer(ctx context.Context, method string, key, end []byte, err error) error {
	err = answer(ctx, c.log, method, err)
	c.audit.denied(ctx, method, err, func() []slog.Attr { return keyRange(key, end) })
	return err
}
