package console

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/membership"
)

// Path is where the console is served.
const Path = "/ui/"

// Keys are the guarded reads that etcd's RPCs do not have. The contexts carry the
// caller's token as outgoing metadata, like those of calls; the errors are gRPC's.
type Keys interface {
	// AuthEnabled is what this node knows of it, which may be old.
	AuthEnabled() bool
	// Logout makes the caller's token void on all nodes.
	Logout(ctx context.Context) error
	// Admit returns nil if the caller is anybody at all, or authentication is off.
	Admit(ctx context.Context) error
	Children(ctx context.Context, q *backend.ChildrenRequest) (*backend.Children, error)
	KeyHistory(ctx context.Context, q *backend.KeyHistoryRequest) (*backend.KeyHistory, error)
}

// Node is what the overview tells of this node.
type Node interface {
	ClusterID() uint64
	MemberID() uint64
	Status() backend.Status
	Alarms() []backend.Alarm
}

// Config configures a Handler. Everything is needed but those with a default.
type Config struct {
	Logger *slog.Logger
	// Conn leads to the server's own RPCs.
	Conn    grpc.ClientConnInterface
	Keys    Keys
	Node    Node
	Members func() []membership.Member // as this node last saw them
	Metrics prometheus.Gatherer

	Name, Product, EtcdVersion string

	// Hosts are names that browsers may call the server by, besides localhost and addresses.
	Hosts []string
	// Encrypted reports whether TLS protects the connection of a request.
	Encrypted func(*http.Request) bool

	// Write lets anybody change keys, users and roles while authentication is off.
	Write bool
	// MaxRequestBytes is the largest request that writes, in bytes.
	MaxRequestBytes int
	// SizesTimeout bounds the count of sizes by prefix; 20 s.
	SizesTimeout time.Duration
}

const defaultSizesTimeout = 20 * time.Second

// Handler serves the console.
type Handler struct {
	cfg   Config
	kv    pb.KVClient
	auth  pb.AuthClient
	lease pb.LeaseClient
	http  http.Handler

	counting    chan struct{}       // holds one count of sizes at a time
	fingerprint func([]byte) string // tells hidden values apart
}

var _ http.Handler = (*Handler)(nil)

// New returns the console. It serves Path and everything below.
func New(cfg Config) *Handler {
	cfg.SizesTimeout = cmp.Or(cfg.SizesTimeout, defaultSizesTimeout)
	h := &Handler{
		cfg: cfg, kv: pb.NewKVClient(cfg.Conn), auth: pb.NewAuthClient(cfg.Conn), lease: pb.NewLeaseClient(cfg.Conn),
		counting: make(chan struct{}, 1), fingerprint: newFingerprint(),
	}
	mux := http.NewServeMux()
	mux.Handle(Path, files())
	for path, read := range map[string]endpoint{
		"session": h.session, "status": h.status, "sizes": h.sizes,
		"keys": h.keys, "key": h.key, "history": h.history, "access": h.access,
	} {
		mux.Handle("GET "+Path+"api/"+path, ownPages(h.answers(read)))
	}
	for path, act := range map[string]endpoint{
		"login": h.login, "logout": h.logout, "put": h.writes(h.put), "delete": h.writes(h.delete),
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

// protect adds the headers that tell browsers what pages of the console may do.
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

// failure is an error with its HTTP status.
type failure struct {
	status int
	text   string
}

func (f failure) Error() string { return f.text }

func badRequest(text string) error { return failure{http.StatusBadRequest, text} }

// errGone: whoever asked went away.
var errGone = errors.New("console: the request was cancelled")
