package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"
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
func parseEndpoint(raw string) (endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return endpoint{}, fmt.Errorf("server: listen URL: %w", err)
	}
	e := endpoint{url: raw}
	switch u.Scheme {
	case "http", "https":
		if u.Host == "" || u.Port() == "" {
			return endpoint{}, fmt.Errorf("server: listen URL %q needs a host and a port", raw)
		}
		if u.Path != "" && u.Path != "/" {
			return endpoint{}, fmt.Errorf("server: listen URL %q must not have a path", raw)
		}
		e.network, e.address, e.secure = "tcp", u.Host, u.Scheme == "https"
	case "unix", "unixs":
		if u.Host+u.Path == "" {
			return endpoint{}, fmt.Errorf("server: listen URL %q needs a path", raw)
		}
		e.network, e.address, e.secure = "unix", u.Host+u.Path, u.Scheme == "unixs"
	default:
		return endpoint{}, fmt.Errorf("server: listen URL %q: scheme must be http, https, unix or unixs", raw)
	}
	return e, nil
}

// listen opens e. An address that is taken is an error that says so.
func (e endpoint) listen() (net.Listener, error) {
	if e.network == "unix" {
		if err := removeStaleSocket(e.address); err != nil {
			return nil, fmt.Errorf("server: listen on %s: %w", e.url, err)
		}
	}
	l, err := net.Listen(e.network, e.address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("server: listen on %s: the address is in use by another process: %w", e.url, err)
	case err != nil:
		return nil, fmt.Errorf("server: listen on %s: %w", e.url, err)
	}
	return l, nil
}

// removeStaleSocket removes a socket that a process left behind. One that
// somebody answers on stays, and is in use.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("%s is in use by another process", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// reached returns the URL under which l is reached, with the port it really has.
func (e endpoint) reached(l net.Listener) string {
	if e.network == "unix" {
		return e.url
	}
	scheme := "http"
	if e.secure {
		scheme = "https"
	}
	return scheme + "://" + l.Addr().String()
}

// local reports whether only processes of this host reach b.
func (b *binding) local() bool {
	a, ok := b.listener.Addr().(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}

// connections are the open connections of all listeners. Those that nobody
// serves yet, because they have not said what they want, are only known here.
type connections struct {
	mu     sync.Mutex
	open   map[*connection]struct{}
	closed bool
}

type connection struct {
	net.Conn
	of   *connections
	once sync.Once
	err  error
}

func (c *connection) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
		c.err = c.Conn.Close()
	})
	return c.err
}

// add returns c as one of cs; a late one is closed at once.
func (cs *connections) add(c net.Conn) *connection {
	conn := &connection{Conn: c, of: cs}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		conn.once.Do(func() { conn.err = c.Close() })
		return conn
	}
	if cs.open == nil {
		cs.open = make(map[*connection]struct{})
	}
	cs.open[conn] = struct{}{}
	return conn
}

// closeAll closes all connections, and those that come later.
func (cs *connections) closeAll() {
	cs.mu.Lock()
	cs.closed = true
	open := make([]*connection, 0, len(cs.open))
	for c := range cs.open {
		open = append(open, c)
	}
	cs.mu.Unlock()
	for _, c := range open {
		// The other side may have been faster; there is nobody left to tell.
		_ = c.Close()
	}
}

const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// listener hands its connections to cs. When the process has no file descriptor
// left it pauses: those that accept from it would try again at once, for ever.
type listener struct {
	net.Listener
	cs *connections

	once   sync.Once
	closed chan struct{}
	err    error
}

func newListener(l net.Listener, cs *connections) *listener {
	return &listener{Listener: l, cs: cs, closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	for pause := minAcceptPause; ; pause = min(2*pause, maxAcceptPause) {
		c, err := l.Listener.Accept()
		if err == nil {
			return l.cs.add(c), nil
		}
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return nil, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.closed:
			timer.Stop()
			return nil, err
		}
	}
}

// Close may be called by each of those that accept from l.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.Listener.Close()
	})
	return l.err
}
