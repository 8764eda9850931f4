package enginetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Forward forwards connections. route, which one goroutine calls, returns the host and port
// for each new connection; open ones stay where they are. Forward returns the host and port
// it listens on. When the test ends it waits for its connections to end.
func Forward(t testing.TB, route func() string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close() // what it interrupts is the loop below
		wg.Wait()
	})
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", route())
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // either end may break it off
					_ = pair[0].Close()
					_ = pair[1].Close()
				})
			}
		}
	})
	return l.Addr().String()
}
