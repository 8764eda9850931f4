package node

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// door is where the other nodes reach a node. It passes on what comes, until the
// test closes it (connections are reset, and new ones refused, as when the process
// is gone) or jams it (connections are made and nothing passes, as when the process
// hangs).
type door struct {
	t       testing.TB
	address string
	target  string // where the node itself listens

	mu       sync.Mutex
	listener net.Listener // nil while closed
	pipes    map[*pipe]struct{}
	jammed   chan struct{} // nil, or closed when the jam is over
	group    sync.WaitGroup
}

// pipe is one connection through the door.
type pipe struct {
	ends [2]*net.TCPConn
	over chan struct{}
}

// freeAddress is where a door can be, and be opened again: no connection takes the
// port meanwhile.
func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
}

func newDoor(t testing.TB, address, target string) *door {
	d := &door{t: t, address: address, target: target, pipes: map[*pipe]struct{}{}}
	d.open()
	t.Cleanup(d.close)
	return d
}

func (d *door) url() string { return "http://" + d.address }

func (d *door) open() {
	l, err := net.Listen("tcp", d.address)
	require.NoError(d.t, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.address, d.listener = l.Addr().String(), l
	d.group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			d.admit(l, conn.(*net.TCPConn))
		}
	})
}

func (d *door) admit(l net.Listener, outside *net.TCPConn) {
	inside, err := net.Dial("tcp", d.target)
	if err != nil {
		_ = outside.Close() // the node is closed already
		return
	}
	p := &pipe{ends: [2]*net.TCPConn{outside, inside.(*net.TCPConn)}, over: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener != l {
		p.reset()
		return
	}
	d.pipes[p] = struct{}{}
	var both sync.WaitGroup
	both.Go(func() { d.carry(p, p.ends[0], p.ends[1]) })
	both.Go(func() { d.carry(p, p.ends[1], p.ends[0]) })
	d.group.Go(both.Wait)
}

func (d *door) carry(p *pipe, to, from *net.TCPConn) {
	defer d.end(p)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !d.pass(p) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pass waits while the door is jammed. It is false if the pipe ended.
func (d *door) pass(p *pipe) bool {
	for {
		d.mu.Lock()
		jammed := d.jammed
		d.mu.Unlock()
		if jammed == nil {
			return true
		}
		select {
		case <-jammed:
		case <-p.over:
			return false
		}
	}
}

func (d *door) end(p *pipe) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.pipes[p]; ok {
		delete(d.pipes, p)
		p.reset()
	}
}

// reset ends both connections at once. They may have ended by themselves before.
func (p *pipe) reset() {
	close(p.over)
	for _, c := range p.ends {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

func (d *door) close() {
	d.mu.Lock()
	if d.listener != nil {
		_ = d.listener.Close() // nobody else closes it
		d.listener = nil
	}
	for p := range d.pipes {
		delete(d.pipes, p)
		p.reset()
	}
	d.mu.Unlock()
	d.group.Wait()
}

func (d *door) jam() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jammed = make(chan struct{})
}

func (d *door) unjam() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.jammed != nil {
		close(d.jammed)
		d.jammed = nil
	}
}
