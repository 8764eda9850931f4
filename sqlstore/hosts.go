package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A URL may name several servers, which replicate to each other, where there is no
// proxy and no name that follows the primary. A new connection goes to the server
// that the last one went to; if that refuses, is gone, is no primary, or says
// nothing for hostPatience, the others are asked as well, in the order of the
// URL, and the first that takes writes is used. That all connections then agree
// on it is primary.go's matter.

// hostPatience is how long one server may take before the next one is tried beside
// it: longer than a connection takes on a busy machine, and short beside what a
// database takes to choose a new primary.
const hostPatience = time.Second

// hosts are the servers of a URL. Safe for concurrent use.
type hosts struct {
	names      []string
	connectors []driver.Connector
	last       atomic.Int64 // index of the server that was reached last
}

func newHosts(u *URL, connectors []driver.Connector) *hosts {
	return &hosts{names: u.Addresses(), connectors: connectors}
}

func (h *hosts) several() bool { return len(h.connectors) > 1 }

// connect returns what open answers for the first server it succeeds on. It owns
// the goroutines it starts: they have ended when it returns.
func (h *hosts) connect(ctx context.Context, open func(context.Context, driver.Connector) (*cachedConn, error)) (*cachedConn, error) {
	if !h.several() {
		return open(ctx, h.connectors[0])
	}
	type outcome struct {
		host int
		conn *cachedConn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	outcomes := make(chan outcome)
	first, begun, running := int(h.last.Load()), 0, 0
	next := time.NewTimer(hostPatience)
	defer next.Stop()
	begin := func() {
		if begun == len(h.connectors) {
			return
		}
		host := (first + begun) % len(h.connectors)
		begun++
		running++
		next.Reset(hostPatience)
		go func() {
			conn, err := open(ctx, h.connectors[host])
			outcomes <- outcome{host, conn, err}
		}()
	}
	defer func() {
		cancel()
		for ; running > 0; running-- {
			if o := <-outcomes; o.err == nil {
				_ = o.conn.Close() // it came too late to be used
			}
		}
	}()
	var errs []error
	for begin(); running > 0; {
		select {
		case <-next.C:
			begin()
		case o := <-outcomes:
			running--
			if o.err == nil {
				h.last.Store(int64(o.host))
				return o.conn, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", h.names[o.host], o.err))
			begin()
		}
	}
	return nil, errors.Join(errs...)
}
