package transport

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// maxRouted bounds the bytes of a connection that are read, and kept, to route it. A
// HEADERS frame of the default size fits. gRPC allocates as much for the reads of each
// connection.
const maxRouted = 32 * 1024

// Router accepts the connections of one listener and gives each to the gRPC or to the
// HTTP server, according to its first bytes. gRPC gets its connections from here and
// not, as in etcd under TLS, through net/http: that path is slower, and delays one
// watch's events by another's.
type Router struct {
	// GRPC and HTTP accept the connections of each protocol. Closing one closes the router's listener.
	GRPC, HTTP net.Listener

	listener   net.Listener
	grpc, http *routedListener
	done       chan struct{} // closed when the listener accepts no more

	conns                    *Connections
	requests                 *Requests
	headTimeout, idleTimeout time.Duration
}

// NewRouter returns the router of l's connections, which are among conns. requests follows what those of gRPC send.
// headTimeout bounds the TLS handshake together with the first bytes, idleTimeout the wait for the first request of an
// HTTP/2 connection.
func NewRouter(l net.Listener, conns *Connections, requests *Requests, headTimeout, idleTimeout time.Duration) *Router {
	r := &Router{listener: l, done: make(chan struct{}), conns: conns, requests: requests, headTimeout: headTimeout,
		idleTimeout: idleTimeout}
	r.grpc = &routedListener{Listener: l, conns: make(chan net.Conn), done: r.done}
	r.http = &routedListener{Listener: l, conns: make(chan net.Conn), done: r.done}
	r.GRPC, r.HTTP = r.grpc, r.http
	return r
}

// Serve routes connections until the listener fails or is closed, and returns its
// error. It waits for the connections that are still being routed; the caller may
// close them.
func (r *Router) Serve() error {
	var routing sync.WaitGroup
	defer routing.Wait()
	defer close(r.done)
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return err
		}
		routing.Go(func() {
			to, routed, err := r.route(c)
			if err == nil {
				err = to.give(routed)
			}
			if err != nil {
				// The client sent nothing that could be answered, or is gone.
				_ = c.Close()
			}
		})
	}
}

// route reads the first bytes of c and returns the listener to give it to, with a
// connection that reads those bytes again. On error the caller must close c.
func (r *Router) route(c net.Conn) (*routedListener, net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(r.headTimeout)); err != nil {
		return nil, nil, err
	}
	h := &head{conn: c}
	isHTTP2, err := h.isHTTP2()
	if err != nil {
		return nil, nil, err
	}
	isGRPC := false
	if isHTTP2 {
		if err := c.SetDeadline(time.Now().Add(r.idleTimeout)); err != nil {
			return nil, nil, err
		}
		if isGRPC, err = h.isGRPC(); err != nil {
			return nil, nil, err
		}
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	again := io.MultiReader(bytes.NewReader(h.read), c)
	switch {
	case isGRPC:
		in := newInbound(again, c, r.requests)
		in.answers = r.conns.account(c.RemoteAddr())
		return r.grpc, &routedConn{Conn: c, in: in, close: in.close}, nil
	case isHTTP2:
		return r.http, &routedConn{Conn: c, in: newAckDropper(again)}, nil
	}
	return r.http, &routedConn{Conn: c, in: again}, nil
}

// routedListener accepts the connections that a router gives it. Close closes the
// router's listener.
type routedListener struct {
	net.Listener
	conns chan net.Conn
	done  <-chan struct{}
}

func (l *routedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *routedListener) give(c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.done:
		return net.ErrClosed
	}
}

// routedConn is a connection that is read through in.
type routedConn struct {
	net.Conn
	in    io.Reader
	close func() // is called with Close; nil: nothing is
}

func (c *routedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *routedConn) Close() error {
	if c.close != nil {
		c.close()
	}
	return c.Conn.Close()
}

// errLongHead is the error of a head that has read maxRouted bytes.
var errLongHead = errors.New("server: first request is too long")

// head reads the first bytes of a connection, and keeps them.
type head struct {
	conn net.Conn
	read []byte
}

func (h *head) Read(p []byte) (int, error) {
	if len(h.read) == maxRouted {
		return 0, errLongHead
	}
	n, err := h.conn.Read(p[:min(len(p), maxRouted-len(h.read))])
	h.read = append(h.read, p[:n]...)
	return n, err
}

// isHTTP2 reads until the bytes are HTTP/2's preface, or cannot be.
func (h *head) isHTTP2() (bool, error) {
	p := make([]byte, len(http2.ClientPreface))
	for len(h.read) < len(p) {
		if _, err := h.Read(p[len(h.read):]); err != nil {
			return false, err
		}
		if !strings.HasPrefix(http2.ClientPreface, string(h.read)) {
			return false, nil
		}
	}
	return true, nil
}

// isGRPC reads the frames after the preface up to the first request, and reports
// whether that is gRPC's. gRPC clients wait for the server's settings before they
// send a request, so isGRPC writes settings first; the server that gets the
// connection sends its own again.
//
// A connection that shows no request of another protocol is gRPC's. Its clients may
// connect long before their first call, may send a ping before it, and may send more
// metadata than a head keeps. gRPC answers floods and mistakes as well. Only a
// request that is begun and not completed in time is an error.
func (h *head) isGRPC() (bool, error) {
	framer := http2.NewFramer(h.conn, h)
	framer.SetMaxReadFrameSize(16 * 1024)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = maxRouted
	if err := framer.WriteSettings(); err != nil {
		return false, err
	}
	for {
		complete := len(h.read)
		frame, err := framer.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) && len(h.read) > complete {
			return false, err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame, *http2.WindowUpdateFrame, *http2.PriorityFrame:
		case *http2.MetaHeadersFrame:
			for _, field := range f.RegularFields() {
				if field.Name == "content-type" {
					return strings.HasPrefix(field.Value, "application/grpc"), nil
				}
			}
			return f.Truncated, nil
		default: // no frame after an error
			return true, nil
		}
	}
}

// ackDropper drops the client's first acknowledgement of settings from an HTTP/2
// connection. It acknowledges the settings that isGRPC wrote. net/http did not write
// them, and takes an acknowledgement that it does not expect as a protocol error.
type ackDropper struct {
	in      *bufio.Reader
	frame   int // bytes left of the current frame, or of the preface
	dropped bool
}

func newAckDropper(in io.Reader) *ackDropper {
	return &ackDropper{in: bufio.NewReader(in), frame: len(http2.ClientPreface)}
}

func (d *ackDropper) Read(p []byte) (int, error) {
	const header = 9 // length(3) type(1) flags(1) stream(4)
	for !d.dropped && d.frame == 0 {
		h, err := d.in.Peek(header)
		if err != nil {
			return 0, err
		}
		length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if http2.FrameType(h[3]) == http2.FrameSettings && http2.Flags(h[4]).Has(http2.FlagSettingsAck) {
			if _, err := d.in.Discard(header + length); err != nil {
				return 0, err
			}
			d.dropped = true
			break
		}
		d.frame = header + length
	}
	if !d.dropped {
		p = p[:min(len(p), d.frame)]
	}
	n, err := d.in.Read(p)
	if !d.dropped {
		d.frame -= n
	}
	return n, err
}
