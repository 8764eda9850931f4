package enginetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports of servers are taken from below those that the system gives to outgoing
// connections, of which tests make many: one of them could take the port before
// its server does, or while it is down.
const (
	lowestPort  = 10_000
	highestPort = 32_000
)

// FreePort returns a TCP port of the loopback interface that nobody uses now,
// and that no other caller, of this process or another, is given before t ends.
func FreePort(t testing.TB) int {
	t.Helper()
	port, reservation, err := reservePort()
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

// reservePort returns a port as FreePort does, which is free again when the
// reservation is closed. The reservation is the UDP port of the same number:
// the kernel gives it to one process, and takes it back however that ends.
func reservePort() (port int, reservation net.PacketConn, err error) {
	const attempts = 200
	for range attempts {
		port = lowestPort + rand.IntN(highestPort-lowestPort)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if reservation, err = net.ListenPacket("udp", address); err != nil {
			continue // another test's
		}
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			if err = l.Close(); err == nil {
				return port, reservation, nil
			}
		}
		err = errors.Join(err, reservation.Close())
	}
	return 0, nil, fmt.Errorf("no free port in %d attempts: %w", attempts, err)
}
