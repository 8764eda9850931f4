package enginetest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports of servers are below those that the system gives to outgoing connections. Tests
// make many of these, and one could take the port before its server does, or while the
// server is down.
const (
	lowestPort  = 10_000
	highestPort = 32_000
)

// FreePort returns a TCP port of the loopback interface that is free now. No other caller,
// in this process or another, gets the same port before t ends.
func FreePort(t testing.TB) int {
	t.Helper()
	port, reservation, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reservation.Close(); err != nil {
			t.Error(err)
		}
	})
	return port
}

// ReservePort returns a port as FreePort does, which is free again when the
// reservation is closed. The reservation is the UDP port of the same number:
// the kernel gives it to one process, and takes it back however that ends.
func ReservePort() (port int, reservation io.Closer, err error) {
	const attempts = 200
	for range attempts {
		port = lowestPort + rand.IntN(highestPort-lowestPort)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		held, listenErr := net.ListenPacket("udp", address)
		if err = listenErr; err != nil {
			continue // another test's
		}
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			if err = l.Close(); err == nil {
				return port, held, nil
			}
		}
		err = errors.Join(err, held.Close())
	}
	return 0, nil, fmt.Errorf("no free port in %d attempts: %w", attempts, err)
}
