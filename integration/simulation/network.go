package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// network connects the hosts of a world. A connection keeps the order of its bytes, and each
// of its directions has its own latency. Writes never block: what a host sends is queued
// until it arrives.
type network struct {
	w *world

	mu    sync.Mutex // also guards everything of connections and listeners
	hosts map[string]*host
	cut   map[direction]int // how many partitions there are
	slow  map[direction]time.Duration
	dials int
}

// The ports of nodes.
const clientPort, peerPort = ":2379", ":2380"

// direction is one way between two hosts.
type direction struct{ from, to string }

// host is one machine.
type host struct {
	name      string
	stalled   int  // how many pauses there are
	refusing  int  // how many faults refuse the connections of other nodes
	silent    bool // its machine is off: it does not even refuse connections
	listeners map[string]*listener
	conns     []*conn // including those of processes that died silently
}

func newNetwork(w *world) *network {
	return &network{w: w, hosts: make(map[string]*host), cut: make(map[direction]int),
		slow: make(map[direction]time.Duration)}
}

func (n *network) host(name string) *host {
	h := n.hosts[name]
	if h == nil {
		h = &host{name: name, listeners: make(map[string]*listener)}
		n.hosts[name] = h
	}
	return h
}

// blocked reports whether packets in direction d are lost now. They are sent again later.
func (n *network) blocked(d direction) bool {
	a, b := n.host(d.from), n.host(d.to)
	return n.cut[d] > 0 || a.stalled > 0 || b.stalled > 0 || a.silent || b.silent
}

// retransmission is the longest time after which a lost packet is sent again.
const retransmission = 300 * time.Millisecond

// partition adds by to the partitions in direction d.
func (n *network) partition(d direction, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[d] += by
	if n.cut[d] == 0 {
		n.resume(func(p *pipe) bool { return p.direction == d })
	}
}

// delay sets an additional latency in direction d.
func (n *network) delay(d direction, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[d] = by
}

// stall adds by to the pauses of a host.
func (n *network) stall(name string, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.host(name)
	h.stalled += by
	if h.stalled == 0 {
		n.resume(func(p *pipe) bool { return p.from == name || p.to == name })
	}
}

// resume lets packets through that were lost. The mutex is held.
func (n *network) resume(which func(*pipe) bool) {
	now := time.Now()
	for _, name := range sortedKeys(n.hosts) {
		for _, c := range n.hosts[name].conns {
			if p := c.in; which(p) {
				p.resumed = now.Add(time.Duration(p.rnd.Int64N(int64(retransmission))))
				p.arm(now)
			}
		}
	}
}

// hang makes a share of a host's open connections bring nothing in either direction until they are closed.
func (n *network) hang(name string, rnd *rand.Rand, share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.host(name).conns {
		if rnd.Float64() < share {
			c.in.hangs, c.out.hangs = true, true
			n.w.trace(name, "connection %d hangs", c.id)
		}
	}
}

// refuse adds by to the faults that refuse the connections of other nodes to a host.
func (n *network) refuse(name string, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host(name).refusing += by
}

// reset breaks a share of a host's connections.
func (n *network) reset(name string, rnd *rand.Rand, share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.host(name).conns {
		if rnd.Float64() < share {
			n.w.trace(name, "connection %d is reset", c.id)
			c.in.break_(syscall.ECONNRESET)
			c.out.break_(syscall.ECONNRESET)
		}
	}
}

// kill ends all connections and listeners of a process. If its machine is off, the other
// sides do not notice.
func (n *network) kill(p *process, silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.host(p.host)
	h.silent = silent
	for _, address := range sortedKeys(h.listeners) {
		h.listeners[address].shut()
	}
	for _, c := range h.conns {
		c.dead = true
		c.in.cond.Broadcast()
		if !silent {
			c.out.send(nil, syscall.ECONNRESET)
		}
	}
	if !silent {
		h.conns = nil
	}
}

// restart turns a machine on again. It answers packets of old connections with a reset.
func (n *network) restart(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.host(name)
	h.silent = false
	for _, c := range h.conns {
		c.out.send(nil, syscall.ECONNRESET)
	}
	h.conns = nil
}

// address is a host and a port.
type address string

func (address) Network() string  { return "sim" }
func (a address) String() string { return string(a) }

func hostOf(address string) string {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	return name
}

// listener implements net.Listener.
type listener struct {
	n       *network
	address string
	queue   []*conn
	cond    sync.Cond
	closed  bool
}

// listen opens a listener of a process.
func (n *network) listen(p *process, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.dead() {
		return nil, net.ErrClosed
	}
	h := n.host(p.host)
	if h.listeners[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &listener{n: n, address: address, cond: sync.Cond{L: &n.mu}}
	h.listeners[address] = l
	return l, nil
}

func (l *listener) Accept() (net.Conn, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for !l.closed && len(l.queue) == 0 {
		l.cond.Wait()
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

func (l *listener) Addr() net.Addr { return address(l.address) }

func (l *listener) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.shut()
	return nil
}

// shut closes the listener, and resets what was not accepted. The mutex is held.
func (l *listener) shut() {
	if l.closed {
		return
	}
	l.closed = true
	for _, c := range l.queue {
		c.out.send(nil, syscall.ECONNRESET)
		c.closed = true
	}
	l.cond.Broadcast()
	if h := l.n.host(hostOf(l.address)); h.listeners[l.address] == l {
		delete(h.listeners, l.address)
	}
}

// dial connects a process to an address.
func (n *network) dial(ctx context.Context, from *process, to string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: err}
	}
	n.mu.Lock()
	n.dials++
	id := n.dials
	n.mu.Unlock()
	there, back := direction{from.host, hostOf(to)}, direction{hostOf(to), from.host}
	rnd := n.w.rand(fmt.Sprintf("connection %d", id))
	out, in := n.newPipe(there, rnd.Uint64()), n.newPipe(back, rnd.Uint64())
	wait := out.base + in.base
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fail(ctx.Err())
		case <-from.gone:
			timer.Stop()
			return fail(net.ErrClosed)
		}
		n.mu.Lock()
		if !n.blocked(there) && !n.blocked(back) {
			break
		}
		n.mu.Unlock()
		wait = retransmission/2 + time.Duration(rnd.Int64N(int64(retransmission/2)))
	}
	defer n.mu.Unlock()
	if from.dead() {
		return fail(net.ErrClosed)
	}
	l := n.host(there.to).listeners[to]
	if l == nil || n.host(there.to).refusing > 0 && strings.HasSuffix(to, peerPort) {
		n.w.trace(from.host, "connection to %s refused", to)
		return fail(syscall.ECONNREFUSED)
	}
	n.w.trace(from.host, "connection %d to %s", id, to)
	mine := &conn{n: n, id: id, local: address(fmt.Sprintf("%s:%d", from.host, 30000+id)), remote: address(to), in: in,
		out: out}
	theirs := &conn{n: n, id: id, local: mine.remote, remote: mine.local, in: out, out: in}
	out.reader, in.reader = theirs, mine
	out.sender, in.sender = mine, theirs
	if strings.HasSuffix(to, peerPort) {
		mine.userTimeout, theirs.userTimeout = timing.PeerPingTimeout, timing.PeerPingTimeout
	}
	n.host(there.from).conns = append(n.host(there.from).conns, mine)
	n.host(there.to).conns = append(n.host(there.to).conns, theirs)
	l.queue = append(l.queue, theirs)
	l.cond.Signal()
	return mine, nil
}

// pipe is one direction of a connection.
type pipe struct {
	direction
	n            *network
	reader       *conn
	rnd          *rand.Rand
	base, jitter time.Duration
	cond         sync.Cond
	queue        []segment
	hangs        bool
	broken       error     // what its reader gets now
	last         time.Time // when the newest segment arrives
	resumed      time.Time // segments do not arrive before
	timer        *time.Timer
	sender       *conn
	checking     bool // give is due
}

// segment is a piece of data, or the end of a direction, on its way.
type segment struct {
	sent time.Time
	at   time.Time
	data []byte
	err  error
}

// newPipe returns a direction with a latency that is usually below a millisecond, and of tens of
// milliseconds at times.
func (n *network) newPipe(d direction, seed uint64) *pipe {
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := &pipe{direction: d, n: n, rnd: rnd, cond: sync.Cond{L: &n.mu}}
	p.base = 50*time.Microsecond + time.Duration(rnd.Int64N(int64(500*time.Microsecond)))
	p.jitter = time.Duration(rnd.Int64N(int64(time.Millisecond))) + 1
	if rnd.IntN(8) == 0 {
		p.base += time.Duration(rnd.Int64N(int64(30 * time.Millisecond)))
	}
	return p
}

// send queues data, or the end, that arrives later. The mutex is held.
func (p *pipe) send(data []byte, err error) {
	now := time.Now()
	at := now.Add(p.base + time.Duration(p.rnd.Int64N(int64(p.jitter))) + p.n.slow[p.direction])
	if p.rnd.IntN(200) == 0 { // it is lost, and sent again
		at = at.Add(time.Duration(p.rnd.Int64N(int64(retransmission))))
	}
	if at.Before(p.last) {
		at = p.last
	}
	p.last = at
	p.queue = append(p.queue, segment{now, at, data, err})
	p.arm(now)
	if !p.checking && p.sender != nil && p.sender.userTimeout > 0 {
		p.checking = true
		time.AfterFunc(p.sender.userTimeout, p.giveUp)
	}
}

// giveUp breaks the connection for its sender if what it sent was not received for the
// user timeout, as the kernel does for the connections of gRPC that have keepalive pings.
func (p *pipe) giveUp() {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.checking = false
	if len(p.queue) == 0 || p.sender.closed || p.sender.dead {
		return
	}
	timeout, waited := p.sender.userTimeout, time.Since(p.queue[0].sent)
	if (p.hangs || p.n.blocked(p.direction)) && waited >= timeout {
		p.n.w.trace(string(p.sender.local), "connection %d timed out", p.sender.id)
		p.sender.in.break_(syscall.ETIMEDOUT)
		return
	}
	p.checking = true
	time.AfterFunc(max(timeout-waited, timeout/4), p.giveUp)
}

func (p *pipe) break_(err error) {
	p.broken = err
	p.cond.Broadcast()
}

// next returns when the first segment arrives, the zero time for never. The mutex is held.
func (p *pipe) next() time.Time {
	if len(p.queue) == 0 || p.hangs || p.n.blocked(p.direction) {
		return time.Time{}
	}
	if at := p.queue[0].at; at.After(p.resumed) {
		return at
	}
	return p.resumed
}

// arm wakes the reader when there is something to read, or its deadline is over. The mutex is held.
func (p *pipe) arm(now time.Time) {
	at := p.next()
	if d := p.reader.deadline; !d.IsZero() && (at.IsZero() || d.Before(at)) {
		at = d
	}
	switch {
	case at.IsZero():
	case !at.After(now):
		p.cond.Broadcast()
	case p.timer == nil:
		p.timer = time.AfterFunc(at.Sub(now), p.wake)
	default:
		p.timer.Reset(at.Sub(now))
	}
}

func (p *pipe) wake() {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.cond.Broadcast()
}

// conn is one end of a connection. It implements net.Conn.
type conn struct {
	n             *network
	id            int
	local, remote address
	in, out       *pipe
	deadline      time.Time     // of reads
	userTimeout   time.Duration // how long the other side may not receive what is sent; 0: without a limit
	closed        bool
	dead          bool // its process was killed
}

func (c *conn) Read(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	p := c.in
	for {
		now := time.Now()
		switch {
		case c.closed || c.dead:
			return 0, net.ErrClosed
		case p.broken != nil:
			return 0, p.broken
		case !c.deadline.IsZero() && !now.Before(c.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		}
		if at := p.next(); !at.IsZero() && !now.Before(at) {
			s := &p.queue[0]
			if s.err != nil {
				p.broken = s.err
				continue
			}
			k := copy(b, s.data)
			if s.data = s.data[k:]; len(s.data) == 0 {
				p.queue = p.queue[1:]
			}
			return k, nil
		}
		p.arm(now)
		p.cond.Wait()
	}
}

func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	switch {
	case c.closed || c.dead:
		return 0, net.ErrClosed
	case c.in.broken != nil && !errors.Is(c.in.broken, io.EOF):
		// Only if reads fail too: gRPC relies on that.
		return 0, syscall.EPIPE
	}
	c.n.w.note(string(c.local), strconv.Itoa(len(b))+" bytes to "+string(c.remote))
	c.out.send(append([]byte(nil), b...), nil)
	return len(b), nil
}

func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed || c.dead {
		c.closed = true
		return net.ErrClosed
	}
	c.closed = true
	c.out.send(nil, io.EOF)
	c.in.cond.Broadcast()
	h := c.n.host(hostOf(string(c.local)))
	for i, other := range h.conns {
		if other == c {
			h.conns = append(h.conns[:i:i], h.conns[i+1:]...)
			break
		}
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.deadline = t
	c.in.arm(time.Now())
	return nil
}

// SetWriteDeadline does nothing: writes do not block.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
