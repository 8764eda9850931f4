package failover

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// A URL may name several servers that replicate to each other. A new connection goes to
// the server that was reached last. If that server refuses, is gone, is not the primary,
// or does not answer within hostPatience, the others are tried as well, in the order of
// the URL. The first that accepts writes is used. primary.go makes all connections agree
// on it.
//
// A server whose machine is gone does not answer for as long as a connection may take, and another
// one becomes the primary in this time. So those that refused are tried again, every hostPatience.

// hostPatience is how long one server may take before the next one is tried in
// parallel: longer than a connection takes on a busy machine, and short compared with
// the election of a new primary.
const hostPatience = time.Second

// hosts are the servers of a URL. Safe for concurrent use.
type hosts struct {
	names    []string
	sessions []*sqldb.Session
	last     atomic.Int64 // index of the server that was reached last
}

// connect returns the connection to the first server for which open succeeds. The
// goroutines it starts have ended when it returns.
func (h *hosts) connect(ctx context.Context, open func(context.Context, *sqldb.Session) (*conn, error)) (*conn, error) {
	if len(h.sessions) == 1 {
		return open(ctx, h.sessions[0])
	}
	type outcome struct {
		host int
		conn *conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	outcomes := make(chan outcome)
	all, begun, running := len(h.sessions), 0, 0
	first, idle := int(h.last.Load()), make([]int, 0, all)
	for i := range all {
		idle = append(idle, (first+i)%all)
	}
	next := time.NewTimer(hostPatience)
	defer next.Stop()
	begin := func() {
		next.Reset(hostPatience)
		if len(idle) == 0 {
			return
		}
		host := idle[0]
		idle = idle[1:]
		begun++
		running++
		go func() {
			c, err := open(ctx, h.sessions[host])
			outcomes <- outcome{host, c, err}
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
	errs := make([]error, all) // the last of each
	for begin(); running > 0; {
		select {
		case <-next.C:
			begin()
			for begun > all && len(idle) > 0 {
				begin()
			}
		case o := <-outcomes:
			running--
			if o.err == nil {
				h.last.Store(int64(o.host))
				return o.conn, nil
			}
			errs[o.host] = fmt.Errorf("%s: %w", h.names[o.host], o.err)
			idle = append(idle, o.host)
			if begun < all {
				begin()
			}
		}
	}
	return nil, errors.Join(errs...)
}
