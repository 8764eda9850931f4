package failover

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// leftFor is how long a connection may take after its caller has left. A later caller waits for it,
	// so this delays a new attempt, which may reach another server.
	leftFor = 5 * time.Second
	// leftOver is how long a connection is kept that no caller takes.
	leftOver = 30 * time.Second
)

var errClosed = errors.New("the database is closed")

// Finishing returns a connector that finishes connections whose callers have left, and gives them to later callers.
// It must be closed.
//
// A connection takes several round trips. A server that has too much to do may need more time for them than a caller
// has. If each caller began anew, and left before the end, the server would never have served one of them, and would do
// nothing else.
func Finishing(c driver.Connector) driver.Connector {
	f := &finishing{Connector: c}
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

type finishing struct {
	driver.Connector
	life  context.Context // ends with Close
	end   context.CancelFunc
	dials sync.WaitGroup

	mu   sync.Mutex
	left []*dial // by their callers, the oldest first: at most as many as there were callers at a time
}

// dial is one attempt to connect.
type dial struct {
	cancel context.CancelFunc
	done   chan struct{} // closed once conn or err is set
	conn   driver.Conn
	err    error
	since  time.Time // of done
	limit  *time.Timer
}

// Connect implements driver.Connector.
func (f *finishing) Connect(ctx context.Context) (driver.Conn, error) {
	for ctx.Err() == nil {
		d, begun, err := f.next(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.leave(d)
		case <-d.done:
			switch {
			case d.err == nil && d.usable() && (begun || reset(ctx, d.conn)):
				return d.conn, nil
			case d.err == nil:
				_ = d.conn.Close() // it was never used
			case begun:
				return nil, d.err
			}
		}
	}
	return nil, fmt.Errorf("connect to the database: %w", ctx.Err())
}

// next returns an attempt that its caller has left, or begins one.
func (f *finishing) next(ctx context.Context) (d *dial, begun bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life.Err() != nil {
		return nil, false, errClosed
	}
	if len(f.left) > 0 {
		d, f.left = f.left[0], f.left[1:]
		return d, false, nil
	}
	d = &dial{done: make(chan struct{})}
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	closed := context.AfterFunc(f.life, d.cancel)
	f.dials.Go(func() {
		defer d.cancel()
		defer closed()
		d.conn, d.err = f.Connector.Connect(ctx)
		d.since = time.Now()
		close(d.done)
	})
	return d, true, nil
}

// leave gives an attempt to the next caller.
func (f *finishing) leave(d *dial) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.limit == nil {
		d.limit = time.AfterFunc(leftFor, d.cancel)
	}
	f.left = append(f.left, d)
}

// usable reports whether the connection, which is there, can be given to a caller.
func (d *dial) usable() bool {
	v, ok := d.conn.(driver.Validator)
	return time.Since(d.since) < leftOver && (!ok || v.IsValid())
}

// reset prepares a connection that was made for another caller. The pool does that only with connections that it
// had before, and they ask then whether their server is still the primary.
func reset(ctx context.Context, c driver.Conn) bool {
	r, ok := c.(driver.SessionResetter)
	return !ok || r.ResetSession(ctx) == nil
}

// Close implements io.Closer. It ends all attempts, and closes the connections that no caller has taken.
func (f *finishing) Close() error {
	f.mu.Lock()
	f.end()
	f.mu.Unlock()
	f.dials.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.left {
		if d.limit.Stop(); d.err == nil {
			_ = d.conn.Close() // it was never used
		}
	}
	f.left = nil
	return nil
}
