package harness

import (
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy to a database or a node. It can make their network fail.
type Proxy struct {
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	target string
	conns  map[net.Conn]bool
	refuse bool
	flow   chan struct{} // closed while bytes may pass
	made   int           // connections so far
	silent int           // connections up to this number pass nothing
	delay  time.Duration // of each direction
}

// StartProxy starts a proxy to the server that datastore names and returns it
// with the URL that leads through it.
func StartProxy(t testing.TB, datastore string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(datastore)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(u.Host)
	p.listener = l
	p.done.Go(p.accept)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		p.Refuse()
		p.done.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

// newProxy returns a proxy without a listener, whose connections are given to serve.
func newProxy(target string) *Proxy {
	p := &Proxy{target: target, conns: make(map[net.Conn]bool), flow: make(chan struct{})}
	close(p.flow)
	return p
}

// Cut resets all connections; new ones work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// Refuse resets all connections, and new ones as soon as they are made.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	p.pass()
	p.cut()
}

func (p *Proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refuse
}

// Lead directs new connections to another server, given by host and port. Open
// connections keep their server.
func (p *Proxy) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Swallow keeps connections open and accepts new ones, but forwards nothing, like a
// dropped route.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass() // what an earlier Swallow holds back
	p.flow = make(chan struct{})
}

// Silence makes all connections swallow everything permanently; new ones work. A server
// whose address has moved to another machine behaves like this.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = p.made
}

// Delay makes the server as far away as a round trip says. It delays what is sent and bounds
// no bandwidth.
func (p *Proxy) Delay(roundTrip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = roundTrip / 2
}

// Heal ends Refuse and Swallow. Bytes held back by Swallow arrive now.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
	p.pass()
}

func (p *Proxy) pass() {
	select {
	case <-p.flow:
	default:
		close(p.flow)
	}
}

func (p *Proxy) cut() {
	for c := range p.conns {
		// Without lingering, the peer sees a reset rather than an orderly end.
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed by the cleanup
		}
		p.done.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	p.mu.Lock()
	target, delay := p.target, p.delay
	p.mu.Unlock()
	// The client's system has connected it to the proxy at once. The handshake with a server
	// far away takes three ways.
	time.Sleep(3 * delay)
	server, err := net.Dial("tcp", target)
	if err != nil || !p.add(server) {
		return
	}
	defer p.remove(server)
	p.mu.Lock()
	p.made++
	number := p.made
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(number, server, client) })
	both.Go(func() { p.copy(number, client, server) })
	both.Wait()
}

// underWay bounds the chunks of one direction that wait for their time.
const underWay = 1024

// chunk is what was read at once, and when it is due at the other side.
type chunk struct {
	bytes []byte
	due   time.Time
}

// copy passes bytes on until either side ends, and then ends both.
func (p *Proxy) copy(number int, to, from net.Conn) {
	chunks := make(chan chunk, underWay)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			p.mu.Lock()
			due := time.Now().Add(p.delay)
			p.mu.Unlock()
			chunks <- chunk{slices.Clone(buf[:n]), due}
			if err != nil {
				return
			}
		}
	})
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		p.mu.Lock()
		flow, silent := p.flow, number <= p.silent
		p.mu.Unlock()
		<-flow
		if silent {
			continue
		}
		if _, err := to.Write(c.bytes); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range chunks { // until the reader has found that it is closed
	}
	reading.Wait()
}

func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	if p.refuse {
		p.cut()
		delete(p.conns, c)
		return false
	}
	return true
}

func (p *Proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close() // closed before, in most cases
}
