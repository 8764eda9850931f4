package harness

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

// Place is where programs run. The zero Place is this machine's loopback interface.
type Place struct {
	Address string   // where they listen
	Network *os.File // the network namespace that has the address, which only root may choose
}

// at returns the address of a port in the place.
func (p Place) at(port int) string { return fmt.Sprintf("%s:%d", p.host(), port) }

func (p Place) host() string { return cmp.Or(p.Address, "127.0.0.1") }

// Dial makes a TCP connection from the place.
func (p Place) Dial(ctx context.Context, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err = process.EnterNetwork(p.Network); err == nil {
			conn, err = new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}()
	<-done
	return conn, err
}

// Dial, if set, makes the connections of clients. It must be set before the first of them is made.
var Dial func(ctx context.Context, address string) (net.Conn, error)
