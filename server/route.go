package server

import (
	"bufio"
	"io"
	"net"
	"strings"

	"github.com/soheilhy/cmux"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// routes are the listeners that the connections of one listener are spread over,
// by what their first bytes say.
type routes struct {
	mux  cmux.CMux
	grpc net.Listener
	http []net.Listener
}

// route tells gRPC from other HTTP on l. gRPC gets its connections from here and
// not, as in etcd under TLS, through net/http: that path is slower, and lets one
// watch's events wait behind another's.
func route(l net.Listener) routes {
	m := cmux.New(l)
	return routes{
		mux:  m,
		grpc: m.MatchWithWriters(isGRPC),
		http: []net.Listener{
			ackDroppingListener{m.Match(cmux.HTTP2())},
			m.Match(cmux.Any()),
		},
	}
}

// maxFirstHeaders bounds the headers that are read to tell what a connection is for.
const maxFirstHeaders = 64 * 1024

// isGRPC reads an HTTP/2 connection up to its first request and reports whether
// that is gRPC's. gRPC clients wait for the server's settings before they send
// one, so these are written first; the server that gets the connection sends its
// own again. A client that sends anything else first, such as a ping, is taken
// for gRPC.
func isGRPC(w io.Writer, r io.Reader) bool {
	for i := range len(http2.ClientPreface) {
		var b [1]byte
		if _, err := io.ReadFull(r, b[:]); err != nil || b[0] != http2.ClientPreface[i] {
			return false
		}
	}
	framer := http2.NewFramer(w, r)
	framer.SetMaxReadFrameSize(16 * 1024)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = maxFirstHeaders
	if err := framer.WriteSettings(); err != nil {
		return false
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return false
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame, *http2.WindowUpdateFrame, *http2.PriorityFrame:
		case *http2.MetaHeadersFrame:
			for _, h := range f.RegularFields() {
				if h.Name == "content-type" {
					return strings.HasPrefix(h.Value, "application/grpc")
				}
			}
			return false
		default:
			return true
		}
	}
}

// ackDroppingListener accepts HTTP/2 connections that isGRPC looked at.
type ackDroppingListener struct{ net.Listener }

func (l ackDroppingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newAckDropper(c), nil
}

// ackDropper takes the client's first acknowledgement of settings out of what it
// reads. It belongs to the settings isGRPC wrote; net/http knows nothing of those
// and takes an acknowledgement it did not wait for as a protocol error.
type ackDropper struct {
	net.Conn
	in      *bufio.Reader
	frame   int // bytes left of the current frame, or of the preface
	dropped bool
}

func newAckDropper(c net.Conn) *ackDropper {
	return &ackDropper{Conn: c, in: bufio.NewReader(c), frame: len(http2.ClientPreface)}
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
