package enginetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Forward passes connections on, each to the host and port that route, which is
// called by one goroutine, names for it; open ones stay where they are. It returns
// its own host and port. When the test ends it waits for the connections' ends.
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
