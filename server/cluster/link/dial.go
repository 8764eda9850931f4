package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
)

const unixPrefix = "unix:"

// target is one address of a member, and what happened when it was dialed.
type target struct {
	url     string
	address string // with unixPrefix for a socket
	host    string // the name that a configured certificate must have

	// dialer.mu guards these.
	last     error  // error of the last attempt to connect, nil if it succeeded
	logged   string // the outcome that was logged last
	loggedAt time.Time
}

// parseURLs returns the addresses of a member's URLs, each once. Host names are resolved for
// every connection.
func parseURLs(urls []string) ([]*target, error) {
	if len(urls) == 0 {
		return nil, errors.New("link: a member without URLs cannot be reached")
	}
	var targets []*target
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("link: %w", err)
		}
		t := &target{url: raw, address: u.Host, host: u.Hostname(), logged: outcomeConnected}
		switch u.Scheme {
		case "http", "https":
			if u.Port() == "" {
				return nil, fmt.Errorf("link: URL %q needs a host and a port", raw)
			}
		case "unix", "unixs":
			t.address, t.host = unixPrefix+u.Host+u.Path, "localhost"
		default:
			return nil, fmt.Errorf("link: URL %q: scheme must be http, https, unix or unixs", raw)
		}
		if !slices.ContainsFunc(targets, func(o *target) bool { return o.address == t.address }) {
			targets = append(targets, t)
		}
	}
	return targets, nil
}

func resolved(targets []*target) resolver.State {
	var state resolver.State
	for _, t := range targets {
		// gRPC passes the server name to the handshake, which needs the address.
		state.Addresses = append(state.Addresses, resolver.Address{Addr: t.address, ServerName: t.address})
	}
	return state
}

// dialer connects to a member and keeps the outcome of each attempt, because gRPC reports
// failures as text only.
type dialer struct {
	member   uint64
	targets  []*target
	security *Security
	connect  func(ctx context.Context, network, address string) (net.Conn, error)
	log      *slog.Logger
	outcomes *prometheus.CounterVec

	mu          sync.Mutex
	incarnation uint64 // of the process at the end of the last connection; 0: unknown
}

// logPause is the least time between two log lines about one address.
const logPause = 5 * time.Second

func newDialer(id uint64, targets []*target, p *Pool) *dialer {
	return &dialer{member: id, targets: targets, security: p.cfg.Security, connect: p.cfg.Dial, log: p.cfg.Logger,
		outcomes: p.outcomes}
}

// dial connects to one of the member's addresses. It returns the operating system's
// connection without a wrapper: gRPC sets the timeout for unacknowledged data only there.
func (d *dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	network, to := "tcp", address
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, to = "unix", path
	}
	conn, err := d.connect(ctx, network, to)
	if network == "unix" && errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %w", syscall.ECONNREFUSED, err) // no process listens there
	}
	if err != nil {
		d.ended(address, err)
	}
	return conn, err
}

// handshake authenticates the member on a connection to its address.
func (d *dialer) handshake(ctx context.Context, address string, conn net.Conn) (net.Conn, error) {
	t := d.target(address)
	secured, incarnation, err := d.security.connect(ctx, conn, d.member, t.host)
	if err != nil {
		d.ended(address, err)
		return nil, err
	}
	d.reached(address, incarnation)
	return &dialedConn{Conn: secured, d: d, address: address}, nil
}

// dialerCredentials run a dialer's handshake for gRPC. To gRPC the connections have no
// transport security, and the address is the server's name.
type dialerCredentials struct {
	credentials.TransportCredentials
	d *dialer
}

func (c dialerCredentials) ClientHandshake(ctx context.Context, address string,
	conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, err := c.d.handshake(ctx, address, conn)
	if err != nil {
		return nil, nil, err
	}
	return c.TransportCredentials.ClientHandshake(ctx, address, secured)
}

func (c dialerCredentials) Clone() credentials.TransportCredentials { return c }

// target returns the target with an address, which must be one of the dialer's.
func (d *dialer) target(address string) *target {
	return d.targets[slices.IndexFunc(d.targets, func(t *target) bool { return t.address == address })]
}

func (d *dialer) reached(address string, incarnation uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.incarnation = incarnation
	d.target(address).last = nil
}

// ended records the outcome of an attempt to connect: nil if the member has answered. It
// logs each change of outcome, at most one per logPause.
func (d *dialer) ended(address string, err error) {
	outcome := outcomeOf(err)
	d.outcomes.WithLabelValues(outcome).Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.target(address)
	t.last = err
	if outcome == t.logged || time.Since(t.loggedAt) < logPause {
		return
	}
	t.logged, t.loggedAt = outcome, time.Now()
	m, _ := d.security.lookUp(func(m member.Member) bool { return m.ID == d.member })
	log := d.log.With("member", m.Name, "member_id", fmt.Sprintf("%x", d.member), "url", t.url)
	if err == nil {
		log.Info("connected to the member again")
		return
	}
	message := "cannot connect to a member at its peer URL"
	if outcome == outcomeRefused || outcome == outcomeTimeout || outcome == outcomeOtherNode {
		message += "; check its --initial-advertise-peer-urls and the network"
	}
	log.Warn(message, "error", err)
}

// failure returns what the last attempts prove: ErrRefused if every address refused,
// ErrOtherNode if an address led to another process, nil if they prove none of these.
func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused := 0
	for _, t := range d.targets {
		switch {
		case errors.Is(t.last, syscall.ECONNREFUSED):
			refused++
		case errors.Is(t.last, ErrOtherNode):
			return ErrOtherNode
		}
	}
	if refused == len(d.targets) {
		return ErrRefused
	}
	return nil
}

func (d *dialer) unreachable() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(d.targets, func(t *target) bool { return t.last == nil })
}

// outdated reports whether the process at the end of the last connection is no longer
// the member's.
func (d *dialer) outdated() bool {
	m, ok := d.security.lookUp(func(m member.Member) bool { return m.ID == d.member })
	d.mu.Lock()
	defer d.mu.Unlock()
	return !ok || d.incarnation != 0 && d.incarnation != m.Incarnation
}

// Outcomes of attempts to connect, in metrics and in logs.
const (
	outcomeConnected = "connected"
	outcomeRefused   = "refused"
	outcomeTimeout   = "timeout"
	outcomeOtherNode = "other_node"
	outcomeRejected  = "rejected" // by the member
	outcomeFailed    = "failed"
)

func outcomeOf(err error) string {
	var timeout net.Error
	switch {
	case err == nil:
		return outcomeConnected
	case errors.Is(err, syscall.ECONNREFUSED):
		return outcomeRefused
	case errors.Is(err, ErrOtherNode):
		return outcomeOtherNode
	case errors.Is(err, errRejected):
		return outcomeRejected
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return outcomeTimeout
	}
	return outcomeFailed
}

// errRejected: the member ended a connection before it sent anything on it.
var errRejected = errors.New("the member rejected the connection, probably for this one's certificate; its log has " +
	"the reason")

// dialedConn is a connection whose first Read reports whether the member accepts it. In
// TLS 1.3 a dialer's handshake ends before the acceptor has seen the dialer's certificate.
type dialedConn struct {
	net.Conn
	d       *dialer
	address string
	known   bool // whether the member accepts it; only the reading goroutine uses it
}

func (c *dialedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case c.known || n == 0 && (err == nil || errors.Is(err, net.ErrClosed)): // closed by this side
	case n > 0:
		c.known = true
		c.d.ended(c.address, nil)
	default:
		c.known = true
		c.d.ended(c.address, fmt.Errorf("%w: %w", errRejected, err))
	}
	return n, err
}

// probe connects to each address and waits for the member's first byte. It returns the
// first error.
func (d *dialer) probe(ctx context.Context) error {
	var first error
	for _, t := range d.targets {
		if err := d.probeOne(ctx, t.address); first == nil {
			first = err
		}
	}
	return first
}

func (d *dialer) probeOne(ctx context.Context, address string) error {
	conn, err := d.dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()                                          //nolint:errcheck // no longer needed
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends the Read
	secured, err := d.handshake(ctx, address, conn)
	if err != nil {
		return err
	}
	_, err = secured.Read(make([]byte, 1))
	return err
}
