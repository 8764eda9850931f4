package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Path is where the console is served.
const Path = "/ui/"

// Keys are the guarded reads that etcd's RPCs do not have. The contexts carry the
// caller's token as outgoing metadata, like those of calls; the errors are gRPC's.
type Keys interface {
	// Administer returns nil if the caller is root, or authentication is off.
	Administer(ctx context.Context) error
	// AuthEnabled reports whether authentication is on, as far as this node knows.
	AuthEnabled() bool
	// Logout revokes the caller's token on all nodes.
	Logout(ctx context.Context) error
	// Admit returns nil if the caller is a known user, or authentication is off.
	Admit(ctx context.Context) error
	Children(ctx context.Context, q *read.ChildrenRequest) (*read.Children, error)
	KeyHistory(ctx context.Context, q *read.KeyHistoryRequest) (*read.KeyHistory, error)
	// RevisionAt returns the last revision that was committed at or before a time.
	RevisionAt(ctx context.Context, at time.Time) (revision int64, err error)
	// CommitOf returns the commit that made a revision, the zero Commit if it is not known.
	CommitOf(ctx context.Context, revision int64) (history.Commit, error)
	// Watched lists what is watched on this node, for root only: at most so many ranges, those with the most
	// watchers first, and how many ranges there are.
	Watched(ctx context.Context, most int) (ranges []watch.Watched, count int, err error)
}

// Node is the node that the overview describes.
type Node interface {
	ClusterID() uint64
	MemberID() uint64
	Status() replica.Status
}

// Alarms knows the raised alarms.
type Alarms interface{ All() []quota.Alarm }

// Config configures a Handler. Everything is needed but those with a default.
type Config struct {
	Logger *slog.Logger
	// Conn leads to the server's own RPCs.
	Conn    grpc.ClientConnInterface
	Keys    Keys
	Node    Node
	Alarms  Alarms
	Members func() []member.Member // as this node last saw them
	// Figures asks another member what its process measures; nil: there are no others.
	Figures func(ctx context.Context, member uint64) (map[string]float64, error)
	Metrics prometheus.Gatherer
	// Examine returns what `sqlbrain doctor --output json` prints; nil: the database cannot be examined.
	Examine func(ctx context.Context) (report any, err error)

	Name, Product, EtcdVersion string

	// Hosts are names that browsers may call the server by, in addition to localhost and addresses.
	Hosts []string
	// Encrypted reports whether TLS protects the connection of a request.
	Encrypted func(*http.Request) bool

	// Write lets every visitor change keys, users and roles while authentication is off.
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

	watches     pb.WatchClient
	series      series
	rendering   *rendering
	counting    *semaphore.Weighted // of the one request that goes through all keys
	examining   *semaphore.Weighted // of the one request that examines the database
	watching    *semaphore.Weighted // of the requests that watch
	fingerprint func([]byte) string // of hidden values, to show that one has changed
}

// failure is an error with its HTTP status.
type failure struct {
	status int
	text   string
}

func (f failure) Error() string { return f.text }

func badRequest(text string) error { return failure{http.StatusBadRequest, text} }

// errGone: the client has disconnected.
var errGone = errors.New("console: the request was cancelled")
