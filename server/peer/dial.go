package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"
)

const unixPrefix = "unix:"

// target is one address of a member.
type target struct {
	url     string
	address string // with unixPrefix for a socket
	host    string // the name that a certificate in files must have
	secure  bool   // the scheme asks for TLS
}

// parseURLs returns the addresses of a member's URLs. A host is looked up at every
// connection.
func parseURLs(urls []string) ([]target, error) {
	if len(urls) == 0 {
		return nil, errors.New("peer: a member without URLs cannot be reached")
	}
	targets := make([]target, len(urls))
	for i, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("peer: %w", err)
		}
		t := target{url: raw, address: u.Host, host: u.Hostname(), secure: strings.HasSuffix(u.Scheme, "s")}
		switch u.Scheme {
		case "http", "https":
			if u.Port() == "" {
				return nil, fmt.Errorf("peer: URL %q needs a host and a port", raw)
			}
		case "unix", "unixs":
			t.address, t.host = unixPrefix+u.Host+u.Path, "localhost"
		default:
			return nil, fmt.Errorf("peer: URL %q: scheme must be http, https, unix or unixs", raw)
		}
		targets[i] = t
	}
	return targets, nil
}

func resolved(targets []target) resolver.State {
	var state resolver.State
	for _, t := range targets {
		// gRPC hands the server name to the handshake, which has to know the address.
		state.Addresses = append(state.Addresses, resolver.Address{Addr: t.address, ServerName: t.address})
	}
	return state
}

// dialer connects to a member, and remembers how that went: what gRPC says of a
// failure is text only.
type dialer struct {
	member   uint64
	targets  []target
	security *Security
	log      *slog.Logger
	outcomes *prometheus.CounterVec

	mu          sync.Mutex
	attempts    map[string]*attempts // by address
	incarnation uint64               // of the process that was reached last; 0: unknown
}

// attempts is what is known of the attempts to connect to one address.
type attempts struct {
	last     error  // what the last one ended with
	logged   string // the outcome that was logged last
	loggedAt time.Time
}

// logPause is the least time between two log lines about one address.
const logPause = 5 * time.Second

func newDialer(member uint64, targets []target, p *Pool) *dialer {
	d := &dialer{
		member: member, targets: targets, security: p.cfg.Security, log: p.cfg.Logger, outcomes: p.outcomes,
		attempts: make(map[string]*attempts),
	}
	for _, t := range targets {
		d.attempts[t.address] = &attempts{logged: outcomeConnected}
	}
	return d
}

// dial connects to one of the member's addresses. It returns the system's own
// connection, because gRPC bounds how long data may go unacknowledged on no other.
func (d *dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	network, to := "tcp", address
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, to = "unix", path
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, to)
	if network == "unix" && errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %w", syscall.ECONNREFUSED, err) // no process listens there either
	}
	if err != nil {
		d.ended(address, err)
	}
	return conn, err
}

// handshake authenticates the member on a connection to its address.
func (d *dialer) handshake(ctx context.Context, address string, conn net.Conn) (net.Conn, error) {
	t := d.target(address)
	secured, incarnation, err := d.security.connect(ctx, conn, d.member, t.host, t.secure)
	if err != nil {
		d.ended(address, err)
		return nil, err
	}
	d.reached(address, incarnation)
	return &dialedConn{Conn: secured, d: d, address: address}, nil
}

// dialerCredentials are a dialer's handshake for gRPC, which sees connections without
// transport security and takes the address for the server's name.
type dialerCredentials struct {
	credentials.TransportCredentials
	d *dialer
}

func (c dialerCredentials) ClientHandshake(ctx context.Context, address string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, err := c.d.handshake(ctx, address, conn)
	if err != nil {
		return nil, nil, err
	}
	return c.TransportCredentials.ClientHandshake(ctx, address, secured)
}

func (c dialerCredentials) Clone() credentials.TransportCredentials { return c }

func (d *dialer) target(address string) target {
	for _, t := range d.targets {
		if t.address == address {
			return t
		}
	}
	return target{address: address}
}

func (d *dialer) reached(address string, incarnation uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.incarnation = incarnation
	d.attempts[address].last = nil
}

// ended takes in how an attempt to connect ended, nil if the member has answered. It
// logs each change, at most one per logPause.
func (d *dialer) ended(address string, err error) {
	outcome := outcomeOf(err)
	d.outcomes.WithLabelValues(outcome).Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.attempts[address]
	a.last = err
	if outcome == a.logged || time.Since(a.loggedAt) < logPause {
		return
	}
	a.logged, a.loggedAt = outcome, time.Now()
	m, _ := d.security.lookUp(func(m Member) bool { return m.ID == d.member })
	log := d.log.With("member", m.Name, "member_id", fmt.Sprintf("%x", d.member), "url", d.target(address).url)
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

// failure returns what the last attempts say of the member: ErrRefused if every address
// refused, ErrOtherNode or ErrNoCertificate if an address led to another process or needs one;
// nil if they say nothing for certain.
func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused := 0
	for _, a := range d.attempts {
		switch {
		case errors.Is(a.last, syscall.ECONNREFUSED):
			refused++
		case errors.Is(a.last, ErrOtherNode):
			return ErrOtherNode
		case errors.Is(a.last, ErrNoCertificate):
			return ErrNoCertificate
		}
	}
	if refused == len(d.attempts) {
		return ErrRefused
	}
	return nil
}

// outdated reports whether the process that was reached last is no longer the
// member's.
func (d *dialer) outdated() bool {
	m, ok := d.security.lookUp(func(m Member) bool { return m.ID == d.member })
	d.mu.Lock()
	defer d.mu.Unlock()
	return !ok || d.incarnation != 0 && d.incarnation != m.Incarnation
}

// Outcomes of attempts to connect, in metrics and in logs.
const (
	outcomeConnected     = "connected"
	outcomeRefused       = "refused"
	outcomeTimeout       = "timeout"
	outcomeOtherNode     = "other_node"
	outcomeNoCertificate = "no_certificate"
	outcomeRejected      = "rejected" // by the member
	outcomeFailed        = "failed"
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
	case errors.Is(err, ErrNoCertificate):
		return outcomeNoCertificate
	case errors.Is(err, errRejected):
		return outcomeRejected
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return outcomeTimeout
	}
	return outcomeFailed
}

// errRejected: the member ended a connection before it sent anything on it.
var errRejected = errors.New("the member rejected the connection, probably for this one's certificate; its log has the reason")

// dialedConn is a connection whose first Read says whether the member accepts it: in TLS
// 1.3 a dialer's handshake ends before the acceptor has seen its certificate.
type dialedConn struct {
	net.Conn
	d       *dialer
	address string
	known   bool // of the one goroutine that reads
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

// probe connects to each address, and waits for the member's first byte. It returns
// the first error.
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
	defer conn.Close()                                          //nolint:errcheck // it has served its purpose
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends the Read
	secured, err := d.handshake(ctx, address, conn)
	if err != nil {
		return err
	}
	_, err = secured.Read(make([]byte, 1))
	return err
}
