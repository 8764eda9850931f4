package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"golang.org/x/sync/semaphore"
)

// endpoint is a URL to listen on, taken apart.
type endpoint struct {
	url     string
	network string // "tcp" or "unix"
	address string
	secure  bool
}

// parseEndpoint takes http://host:port, https://host:port, unix://path and
// unixs://path, the last two as etcd has them: the host is part of the path.
// Its error says what is wrong with the URL, and does not name it.
func parseEndpoint(raw string) (endpoint, error) {
	if !utf8.ValidString(raw) {
		return endpoint{}, errors.New("is not UTF-8") // and could not be in the answer to MemberList
	}
	u, err := url.Parse(raw)
	if err != nil {
		return endpoint{}, errors.New("is not a URL")
	}
	switch u.Scheme {
	case "unix", "unixs":
		if u.Host+u.Path == "" {
			return endpoint{}, errors.New("needs a path")
		}
		return endpoint{url: raw, network: "unix", address: u.Host + u.Path, secure: u.Scheme == "unixs"}, nil
	case "http", "https":
	default:
		return endpoint{}, errors.New("must begin with http://, https://, unix:// or unixs://")
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return endpoint{}, errors.New("needs a port, as in http://127.0.0.1:2379")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return endpoint{}, errors.New("has a port that is not between 0 and 65535")
	}
	if path.Clean("/"+u.Path) != "/" || u.RawQuery != "" || u.User != nil {
		return endpoint{}, errors.New("must end after the port")
	}
	return endpoint{url: raw, network: "tcp", address: u.Host, secure: u.Scheme == "https"}, nil
}

// CheckURL returns what is wrong with a URL to listen on, in words that follow the URL.
func CheckURL(raw string) error {
	_, err := parseEndpoint(raw)
	return err
}

// listen opens e with open, and gives a socket the mode, if that is not 0. An address that is taken is an error that
// says so.
func (e endpoint) listen(open func(network,
	address string) (net.Listener, error), mode fs.FileMode) (net.Listener, error) {
	if e.network == "unix" {
		if err := removeStaleSocket(e.address); err != nil {
			return nil, fmt.Errorf("server: listen on %s: %w", e.url, err)
		}
	}
	l, err := open(e.network, e.address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("server: listen on %s: the address is in use by another process: %w", e.url, err)
	case err != nil:
		return nil, fmt.Errorf("server: listen on %s: %w", e.url, err)
	}
	if e.network == "unix" && mode != 0 {
		if err := os.Chmod(e.address, mode); err != nil {
			return nil, errors.Join(fmt.Errorf("server: listen on %s: %w", e.url, err), l.Close())
		}
	}
	return l, nil
}

// removeStaleSocket removes a socket that a dead process left. It returns an error for a
// socket that a process still answers on.
func removeStaleSocket(socket string) error {
	info, err := os.Lstat(socket)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket", socket)
	}
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("%s is in use by another process", socket), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(socket)
}

// Listener listens on one URL. TLS, if any, is taken off what it accepts.
type Listener struct {
	net.Listener
	endpoint endpoint
}

// Options say how to listen.
type Options struct {
	// Conns get the connections.
	Conns *Connections
	// Limit bounds how many are open; nil: it does not.
	Limit *Limit
	// Listen opens a listener; nil: net.Listen.
	Listen func(network, address string) (net.Listener, error)
	// Credentials: the caller decides on TLS, whatever the scheme of a URL.
	Credentials bool
	// SocketMode is the mode of the files of unix and unixs URLs; 0: what the umask leaves.
	SocketMode fs.FileMode
	// Files are the certificates of https and unixs URLs; nil: there are none.
	Files *tlsfiles.Files
	Log   *slog.Logger
}

// Listen opens a listener on each URL: http, https, unix or unixs, where port 0 lets the system choose. It returns
// the listeners that it has opened with an error too; the caller must close them.
func Listen(urls []string, o Options) (listeners []*Listener, err error) {
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	for _, raw := range urls {
		e, err := parseEndpoint(raw)
		if err != nil {
			return listeners, fmt.Errorf("server: listen URL %q %w", raw, err)
		}
		tls := e.secure && !o.Credentials
		if tls && o.Files == nil {
			return listeners, fmt.Errorf("server: listen on %s: a certificate and a key are needed", e.url)
		}
		if !e.secure && o.Files != nil {
			o.Log.Warn("certificates do not apply to this URL", "url", e.url)
		}
		l, err := e.listen(o.Listen, o.SocketMode)
		if err != nil {
			return listeners, err
		}
		l = newListener(l, o.Conns, o.Limit)
		if tls {
			l = &tlsListener{Listener: l, config: o.Files.Listener(), log: o.Log}
		}
		listeners = append(listeners, &Listener{l, e})
	}
	return listeners, nil
}

// URL is the URL that was asked for.
func (l *Listener) URL() string { return l.endpoint.url }

// Secure reports whether the URL's scheme has TLS.
func (l *Listener) Secure() bool { return l.endpoint.secure }

// Reached returns the URL under which l is reached, with its real port.
func (l *Listener) Reached() string {
	if l.endpoint.network == "unix" {
		return l.endpoint.url
	}
	scheme := "http"
	if l.endpoint.secure {
		scheme = "https"
	}
	return scheme + "://" + l.Addr().String()
}

// Local reports whether only processes of this host reach l.
func (l *Listener) Local() bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}

// Connections are the open connections of listeners. The zero value has none. Those
// that no server has yet, because they have sent no request, are known only here.
type Connections struct {
	mu      sync.Mutex
	open    map[*connection]struct{}
	closed  bool
	answers *Answers // nil: answers are not counted
	// accounts are those of open connections, by the remote address.
	accounts map[net.Addr]*account
}

type connection struct {
	net.Conn
	of    *Connections
	from  net.Addr     // its key in of.accounts, nil if it has none
	close func() error // once
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	answers := c.of.accounts[c.from]
	delete(c.of.accounts, c.from)
	c.of.mu.Unlock()
	if answers != nil {
		answers.close()
	}
	return c.close()
}

// account returns the account of the answers of the connection from addr, nil if there is none.
func (cs *Connections) account(addr net.Addr) *account {
	key, _ := addrKey(addr)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.accounts[key]
}

// add returns c as one of cs; a late one is closed at once. closed is called when it is.
func (cs *Connections) add(c net.Conn, closed func()) *connection {
	conn := &connection{Conn: c, of: cs, close: sync.OnceValue(func() error {
		defer closed()
		return c.Close()
	})}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		_ = conn.close() // nothing was written
		return conn
	}
	if cs.open == nil {
		cs.open = make(map[*connection]struct{})
	}
	cs.open[conn] = struct{}{}
	if cs.answers == nil {
		return conn
	}
	if key, ok := addrKey(c.RemoteAddr()); ok {
		if cs.accounts == nil {
			cs.accounts = make(map[net.Addr]*account)
		}
		conn.from = key
		cs.accounts[key] = cs.answers.account(func() { _ = conn.Close() }) // the other side may have been faster
	}
	return conn
}

// CloseAll closes all connections, and those that come later.
func (cs *Connections) CloseAll() {
	cs.mu.Lock()
	cs.closed = true
	cs.mu.Unlock()
	cs.Cut()
}

// Cut closes the connections that are open.
func (cs *Connections) Cut() {
	cs.mu.Lock()
	open := slices.Collect(maps.Keys(cs.open))
	cs.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // the other side may have been faster
	}
}

// Limit bounds how many connections of listeners are open; further ones wait in the queues of the operating system.
// A process has a limited number of file descriptors, and needs some for other things than clients.
type Limit struct {
	urls string
	most int
	open *semaphore.Weighted // is held by each connection, and by each call of Accept
	log  *slog.Logger

	mu       sync.Mutex
	reported time.Time
}

// NewLimit returns a limit of most connections of URLs of a kind; nil, which is none, for 0. log may be nil.
func NewLimit(urls string, most int, log *slog.Logger) *Limit {
	if most == 0 {
		return nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Limit{urls: urls, most: most, open: semaphore.NewWeighted(int64(most)), log: log}
}

// reportInterval is the shortest time between two reports that the limit was reached.
const reportInterval = time.Minute

// enter waits until one more connection may be open. It returns false if ctx ends first.
func (m *Limit) enter(ctx context.Context) bool {
	if m == nil {
		return ctx.Err() == nil
	}
	if m.open.TryAcquire(1) {
		return true
	}
	m.report()
	return m.open.Acquire(ctx, 1) == nil
}

func (m *Limit) leave() {
	if m != nil {
		m.open.Release(1)
	}
}

func (m *Limit) report() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.reported) >= reportInterval {
		m.reported = now
		m.log.Warn("as many connections are open as the limit on file descriptors allows, further ones wait",
			"urls", m.urls, "connections", m.most)
	}
}

// accepting spaces out attempts to accept a connection.
var accepting = retry.Backoff{Min: 5 * time.Millisecond, Max: time.Second}

// passing are the errors of an attempt to accept a connection after which another one may succeed: the process or the
// system lacks descriptors or memory for the moment, the connection ended before it was accepted, or a firewall forbids
// that one.
var passing = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPROTO, syscall.EPERM,
}

// listener hands its connections to cs. After a passing error it
// pauses; the servers would otherwise retry at once, without end, or stop.
type listener struct {
	net.Listener
	cs    *Connections
	limit *Limit // nil: none

	ctx   context.Context // ends with Close
	close func() error    // once
}

func newListener(l net.Listener, cs *Connections, limit *Limit) *listener {
	ctx, cancel := context.WithCancel(context.Background())
	return &listener{Listener: l, cs: cs, limit: limit, ctx: ctx, close: sync.OnceValue(func() error {
		cancel()
		return l.Close()
	})}
}

func (l *listener) Accept() (net.Conn, error) {
	if !l.limit.enter(l.ctx) {
		return nil, net.ErrClosed
	}
	for failures := 1; ; failures++ {
		c, err := l.Listener.Accept()
		if err == nil {
			return l.cs.add(c, l.limit.leave), nil
		}
		passes := slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
		if !passes || accepting.Wait(l.ctx, failures) != nil {
			l.limit.leave()
			return nil, err
		}
	}
}

// Close may be called by each of those that accept from l.
func (l *listener) Close() error { return l.close() }
