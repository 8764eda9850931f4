package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below those that the system gives to outgoing connections,
// one of which could take a port before its server does.
const (
	lowestPort  = 10_000
	highestPort = 32_000
)

// Port is a TCP port of the loopback interface that is reserved. The reservation is
// the UDP port of the same number, as in enginetest: neither takes the other's.
type Port struct {
	Number      int
	reservation net.PacketConn
}

// ReservePort returns a port that nobody uses.
func ReservePort() (*Port, error) {
	const attempts = 200
	var last error
	for range attempts {
		n := lowestPort + rand.IntN(highestPort-lowestPort)
		address := fmt.Sprintf("127.0.0.1:%d", n)
		reservation, err := net.ListenPacket("udp", address)
		if err != nil {
			last = err
			continue
		}
		l, err := net.Listen("tcp", address)
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			return &Port{Number: n, reservation: reservation}, nil
		}
		last = errors.Join(err, reservation.Close())
	}
	return nil, fmt.Errorf("no free port in %d attempts: %w", attempts, last)
}

// Release gives the port back.
func (p *Port) Release() error { return p.reservation.Close() }
