package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Requests bounds the bytes of the messages and bodies that clients have begun to send: the server holds them until the
// rest comes, before it knows who the client is. Safe for concurrent use.
type Requests struct {
	maxMessage int // a longer one is refused by gRPC, or by what reads a body
	budget
}

// A connection that resets many calls is read slowly: the handler of a call that was reset at once has begun all the
// same, and does not count for the limit on the calls of a connection. So many are free, and so many a second. Streams
// that were answered are free as well: clients end them so, and have waited for the answer.
const (
	freeResets      = 500
	resetsPerSecond = 500
	// mostPause is below the time that clients wait for the answer to a ping.
	mostPause = 2 * time.Second
)

// pace spaces out resets.
type pace struct {
	next time.Time // of the reset after all that were counted, without freeResets
}

// count counts n resets, and returns how long the client has to wait.
func (p *pace) count(n int) time.Duration {
	const each = time.Second / resetsPerSecond
	now := time.Now()
	if free := now.Add(-freeResets * each); p.next.Before(free) {
		p.next = free
	}
	p.next = p.next.Add(time.Duration(n) * each)
	if most := now.Add(mostPause); p.next.After(most) {
		p.next = most
	}
	return p.next.Sub(now)
}

// NewRequests returns Requests of most bytes in all, each of maxMessage at most. A message or body that makes no
// progress for progressTimeout is refused.
func NewRequests(most, maxMessage int, progressTimeout time.Duration) *Requests {
	return &Requests{maxMessage: maxMessage,
		budget: budget{most: int64(most), spare: stalledAfter, progressTimeout: progressTimeout}}
}

// messageOverhead is about what the server has of a message in addition to its bytes.
const messageOverhead = 512

// frameHead is the length of the head of a frame: length(3) type(1) flags(1) stream(4).
const frameHead = 9

// messageHead is the length of what comes before each message of gRPC: compressed(1) length(4).
const messageHead = 5

// inbound reads a connection of gRPC, and follows the messages in it: gRPC waits for the rest of one as long as the
// client likes. It has a stream reset whose message has to go.
type inbound struct {
	in   io.Reader
	conn net.Conn
	of   *Requests

	// These belong to the goroutine that reads.
	preface int             // bytes left of the client's preface
	head    [frameHead]byte // of the current frame
	heads   int             // bytes of it that are known
	left    int             // bytes left of the frame's payload
	padding int             // of these, bytes of padding; -1: the first byte says how many
	stream  uint32
	resets  []byte // frames for gRPC
	begun   []*incoming
	counted int // resets that the client has sent since it waited
	pace    pace
	answers *account      // of the connection; nil: none
	done    chan struct{} // is closed by close

	mu       sync.Mutex
	messages map[uint32]*incoming // that have begun, by stream
	cut      []uint32             // streams to be reset
	late     bool                 // frameGrace has begun
}

// mostMessages is how many unfinished messages a connection may have; more than it may have calls, because a message
// of a call that the server has ended stays until the client ends the stream.
const mostMessages = 20_000

// incoming is a message that has begun.
type incoming struct {
	claim claim
	head  [messageHead]byte
	heads int
	size  int // once head is known
	left  int
	sent  int // bytes since the last progress
}

func newInbound(in io.Reader, conn net.Conn, of *Requests) *inbound {
	return &inbound{in: in, conn: conn, of: of, preface: len(http2.ClientPreface), done: make(chan struct{}),
		messages: make(map[uint32]*incoming)}
}

// frameGrace is how long a connection has for the rest of a frame, if a stream has to be reset after it.
const frameGrace = time.Second

var errUnfinished = errors.New("server: the connection has stopped inside of a message that has to go")

// Read implements io.Reader. One goroutine calls it.
func (c *inbound) Read(p []byte) (int, error) {
	for {
		if n := c.reset(p); n > 0 {
			return n, nil
		}
		n, err := c.in.Read(p)
		c.follow(p[:n])
		c.slowDown()
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !c.cutting() {
			return n, err
		}
		// The deadline is cutStream's; reset ends it.
		if c.between() {
			continue
		}
		if err := c.grace(); err != nil {
			return 0, err
		}
	}
}

// grace gives the client time for the rest of a frame, once.
func (c *inbound) grace() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late {
		return errUnfinished
	}
	c.late = true
	return c.conn.SetReadDeadline(time.Now().Add(frameGrace))
}

// slowDown has the client wait if it resets too much, or sends too much that is not complete: gRPC does not see what
// was read before.
func (c *inbound) slowDown() {
	for _, m := range c.begun {
		m.claim.pause()
	}
	waited := false
	for _, m := range c.begun {
		waited = m.claim.reserve(m.size, c.done) || waited
	}
	if waited {
		c.resume()
	}
	c.begun = c.begun[:0]
	if c.counted == 0 {
		return
	}
	wait := c.pace.count(c.counted - c.answers.forgive(c.counted))
	c.counted = 0
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-c.done:
	}
}

// resume has all messages begin to wait for the client again: nothing was read from it.
func (c *inbound) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.messages {
		m.claim.add(0, true)
	}
}

// between reports whether the next byte is the first of a frame.
func (c *inbound) between() bool { return c.preface == 0 && c.heads == 0 && c.left == 0 }

func (c *inbound) cutting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.cut) > 0
}

// cutStream has a stream reset, unless its message m is complete by now. Its bytes are free at once: the connection
// itself may be waiting for them.
func (c *inbound) cutStream(stream uint32, m *incoming) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.messages[stream] != m {
		return
	}
	m.claim.close() // what still comes is dropped by gRPC
	c.cut = append(c.cut, stream)
	if !c.late {
		_ = c.conn.SetReadDeadline(time.Now()) // fails if the connection is closed
	}
}

// reset fills p with frames that have gRPC reset the streams that are cut: a window may not grow by nothing. gRPC has
// no other way to end a stream, and to tell its client, before its handler has the message.
func (c *inbound) reset(p []byte) int {
	if len(c.resets) == 0 && c.between() {
		c.mu.Lock()
		for _, stream := range c.cut {
			c.resets = append(c.resets, 0, 0, 4, byte(http2.FrameWindowUpdate), 0)
			c.resets = binary.BigEndian.AppendUint32(c.resets, stream)
			c.resets = append(c.resets, 0, 0, 0, 0)
		}
		if len(c.cut) > 0 {
			c.cut, c.late = nil, false
			_ = c.conn.SetReadDeadline(time.Time{}) // fails if the connection is closed
		}
		c.mu.Unlock()
	}
	n := copy(p, c.resets)
	c.resets = c.resets[n:]
	return n
}

// drop forgets the message that a stream has begun. The lock is held.
func (c *inbound) drop(stream uint32) {
	if m := c.messages[stream]; m != nil {
		m.claim.close()
		delete(c.messages, stream)
	}
}

// close forgets all messages.
func (c *inbound) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for stream := range c.messages {
		c.drop(stream)
	}
	if c.messages != nil {
		close(c.done)
	}
	c.messages = nil
}

// follow takes note of bytes that were read.
func (c *inbound) follow(b []byte) {
	n := min(c.preface, len(b))
	c.preface -= n
	b = b[n:]
	if len(b) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) > 0 {
		if c.left == 0 {
			n = copy(c.head[c.heads:], b)
			b = b[n:]
			if c.heads += n; c.heads < frameHead {
				return
			}
			c.begin()
			continue
		}
		n = min(c.left, len(b))
		c.payload(b[:n])
		b = b[n:]
		if c.left -= n; c.left == 0 {
			c.endFrame()
		}
	}
}

// begin begins the frame of head.
func (c *inbound) begin() {
	c.left = int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
	c.stream = binary.BigEndian.Uint32(c.head[5:]) &^ (1 << 31)
	c.padding = 0
	if c.is(http2.FrameData) && c.has(http2.FlagDataPadded) {
		c.padding = -1
	}
	if c.left == 0 {
		c.endFrame()
	}
}

func (c *inbound) is(t http2.FrameType) bool { return http2.FrameType(c.head[3]) == t }
func (c *inbound) has(f http2.Flags) bool    { return http2.Flags(c.head[4]).Has(f) }

// endFrame ends the frame of head.
func (c *inbound) endFrame() {
	c.heads = 0
	if c.is(http2.FrameRSTStream) {
		c.counted++
	}
	if c.is(http2.FrameRSTStream) || c.is(http2.FrameData) && c.has(http2.FlagDataEndStream) {
		c.drop(c.stream)
	}
}

// payload takes some of the frame's payload, of which left bytes are left with it.
func (c *inbound) payload(b []byte) {
	if !c.is(http2.FrameData) || c.messages == nil {
		return
	}
	left := c.left
	if c.padding < 0 {
		c.padding = int(b[0])
		b, left = b[1:], left-1
	}
	if data := left - c.padding; len(b) > data {
		b = b[:max(data, 0)]
	}
	if len(b) > 0 {
		c.data(b)
	}
}

// data takes some of a stream's data. Only a message that does not end in it is remembered.
func (c *inbound) data(b []byte) {
	m := c.messages[c.stream]
	for len(b) > 0 {
		if m == nil {
			if len(b) >= messageHead {
				if n := int(binary.BigEndian.Uint32(b[1:])); n <= len(b)-messageHead {
					b = b[messageHead+n:]
					continue
				}
			}
			stream := c.stream
			m = &incoming{claim: claim{of: &c.of.budget}}
			m.claim.end = func() { c.cutStream(stream, m) }
			m.claim.add(messageOverhead, false)
			if c.messages[stream] = m; len(c.messages) > mostMessages {
				_ = c.conn.Close() // fails if it is closed
			}
		}
		headed := m.heads == messageHead
		b = m.consume(b)
		switch known := m.heads == messageHead; {
		case known && m.left == 0:
			c.drop(c.stream)
			m = nil
		case known && m.size > c.of.maxMessage:
			m.claim.close() // gRPC refuses it
		case known && !headed:
			c.begun = append(c.begun, m)
		}
	}
}

// consume takes what belongs to m from b, and returns the rest.
func (m *incoming) consume(b []byte) (rest []byte) {
	if m.heads < messageHead {
		n := copy(m.head[m.heads:], b)
		b = b[n:]
		if m.heads += n; m.heads == messageHead {
			m.size = int(binary.BigEndian.Uint32(m.head[1:]))
			m.left = m.size
		}
	}
	if m.heads == messageHead {
		n := min(m.left, len(b))
		m.left -= n
		m.sent += n
		b = b[n:]
	}
	if m.sent >= smallClaim { // a byte now and then is not progress
		m.sent = 0
		m.claim.add(0, true)
	}
	return b
}

// body counts the bytes of an HTTP request's body until they are used.
type body struct {
	io.ReadCloser
	claim    claim
	reserved int // bytes that are counted and were not read
	sent     int // bytes since the last progress
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	known := min(n, b.reserved)
	b.reserved -= known
	b.sent += n
	switch {
	case b.sent >= smallClaim:
		b.sent = 0
		b.claim.add(n-known, true)
	case len(bytes.TrimSpace(p[:n])) > 0: // a line's end after a message begins none
		b.claim.add(n-known, false)
	}
	if err != nil {
		b.used()
	}
	return n, err
}

// used forgets the bytes that were read, and those that were to come.
func (b *body) used() {
	b.claim.clear()
	b.reserved = 0
}

// Bodies follows the bodies of requests on their way to h.
func (q *Requests) Bodies(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			h.ServeHTTP(w, r)
			return
		}
		var ended sync.Once // or the handler has returned, after which w must not be used
		b := &body{ReadCloser: r.Body, claim: claim{of: &q.budget, end: func() {
			ended.Do(func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now()) }) // fails if it is closed
		}}}
		defer func() {
			b.claim.close()
			ended.Do(func() {})
		}()
		b.reserved = min(int(max(r.ContentLength, 0)), 2*q.maxMessage)
		b.claim.reserve(messageOverhead+b.reserved, r.Context().Done())
		r.Body = b
		h.ServeHTTP(w, r)
	})
}
