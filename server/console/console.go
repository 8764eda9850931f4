package console

import (
	"cmp"
	"net/http"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/semaphore"
)

// New returns the console. It serves Path and everything below.
func New(cfg Config) *Handler {
	cfg.SizesTimeout = cmp.Or(cfg.SizesTimeout, defaultSizesTimeout)
	h := &Handler{
		cfg: cfg, kv: pb.NewKVClient(cfg.Conn), auth: pb.NewAuthClient(cfg.Conn), lease: pb.NewLeaseClient(cfg.Conn),
		watches: pb.NewWatchClient(cfg.Conn), fingerprint: newFingerprint(),
		rendering: newRendering(),
		counting:  semaphore.NewWeighted(1), examining: semaphore.NewWeighted(1),
		watching: semaphore.NewWeighted(maxWatching),
	}
	mux := http.NewServeMux()
	mux.Handle(Path, files())
	mux.Handle("GET "+Path+"api/watch", ownPages(http.HandlerFunc(h.watch)))
	for path, read := range map[string]endpoint{
		"session": h.session, "status": h.status, "sizes": h.sizes,
		"keys": h.keys, "search": h.search,
		"key": h.renders(h.key), "raw": h.renders(h.raw),
		"history": h.renders(h.history), "compare": h.renders(h.compare),
		"members": h.members, "doctor": h.doctor, "leases": h.leases, "watchers": h.watchers,
		"removal": h.removal, "access": h.access, "samples": h.samples,
	} {
		mux.Handle("GET "+Path+"api/"+path, ownPages(h.answers(read)))
	}
	for path, act := range map[string]endpoint{
		"login": h.login, "logout": h.logout,
		"put": h.writes(h.put), "delete": h.writes(h.delete), "remove": h.writes(h.remove), "object": h.writes(h.object),
		"restore": h.writes(h.restore),
	} {
		mux.Handle("POST "+Path+"api/"+path, h.answers(act))
	}
	for name, change := range h.accessChanges() {
		mux.Handle("POST "+Path+"api/access/"+name, h.answers(h.changesAccess(change)))
	}
	mux.Handle(Path+"api/", h.answers(func(http.ResponseWriter, *http.Request) (any, error) {
		return nil, failure{http.StatusNotFound, "the console has no such address"}
	}))
	h.http = protect(knownHosts(cfg.Hosts, cfg.Encrypted, http.NewCrossOriginProtection().Handler(mux)))
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.http.ServeHTTP(w, r) }

// policy lets a page load what this server has, and run scripts from files only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// protect adds the headers that restrict what pages of the console may do.
func protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
