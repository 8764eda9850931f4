package replicated

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy passes connections on to a server, and may be told another one: new
// connections go there, open ones stay.
type proxy struct {
	address string

	mu     sync.Mutex
	target string
	conns  map[net.Conn]bool
	ended  bool
}

func (p *proxy) lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{address: l.Addr().String(), target: target, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close() // what it interrupts is the loop below
		p.end()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(in) })
		}
	})
	return p
}

func (p *proxy) serve(in net.Conn) {
	defer in.Close() //nolint:errcheck // its peer is told
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer out.Close() //nolint:errcheck // its peer is told
	p.mu.Lock()
	ended := p.ended
	p.conns[in], p.conns[out] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, in)
		delete(p.conns, out)
	}()
	if ended {
		return
	}
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // either end may break it off
			_ = pair[0].Close()
			_ = pair[1].Close()
		})
	}
	both.Wait()
}

func (p *proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for c := range p.conns {
		_ = c.Close() // ends its copying
	}
}
