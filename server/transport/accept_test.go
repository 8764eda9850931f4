package transport

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// acceptStub is a listener whose results a test provides.
type acceptStub struct {
	results chan error // nil: a connection
	closed  chan struct{}
}

func (l *acceptStub) Accept() (net.Conn, error) {
	select {
	case err := <-l.results:
		if err != nil {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
		}
		c, _ := net.Pipe()
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *acceptStub) Close() error {
	close(l.closed)
	return nil
}

func (l *acceptStub) Addr() net.Addr { return &net.TCPAddr{} }

func newAcceptStub() *acceptStub {
	return &acceptStub{results: make(chan error, 100), closed: make(chan struct{})}
}

// TestPassingErrorsOfAcceptAreNoEnd: what lacks for a moment, and what happened to a connection before it was accepted,
// does not stop the server.
func TestPassingErrorsOfAcceptAreNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stub := newAcceptStub()
		l := newListener(stub, &Connections{}, nil)
		for _, err := range []syscall.Errno{
			syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPROTO, syscall.EPERM,
		} {
			stub.results <- err
		}
		stub.results <- nil
		c, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, c.Close())

		stub.results <- syscall.EINVAL
		_, err = l.Accept()
		require.ErrorIs(t, err, syscall.EINVAL)
		require.NoError(t, l.Close())
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// TestFurtherConnectionsWait: more than the limit are accepted once others are closed, on whichever URL.
func TestFurtherConnectionsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := NewLimit("client", 2, nil)
		first, second := newAcceptStub(), newAcceptStub()
		conns := &Connections{}
		a, b := newListener(first, conns, limit), newListener(second, conns, limit)
		for range 2 {
			first.results <- nil
			second.results <- nil
		}
		one, err := a.Accept()
		require.NoError(t, err)
		first.results <- syscall.EINVAL
		<-first.results // the connection is left; an error must not take its place
		_, err = a.Accept()
		require.ErrorIs(t, err, syscall.EINVAL)
		two, err := b.Accept()
		require.NoError(t, err)

		accepted := make(chan net.Conn)
		go func() {
			c, err := b.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		synctest.Wait()
		select {
		case <-accepted:
			t.Error("a third connection was accepted")
		default:
		}
		require.NoError(t, one.Close())
		require.NoError(t, errors.Join(one.Close(), one.Close()), "only the first time counts")
		three := <-accepted

		ended := make(chan error)
		go func() {
			_, err := a.Accept()
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, a.Close())
		require.ErrorIs(t, <-ended, net.ErrClosed)
		conns.CloseAll()
		require.NoError(t, b.Close())
		_, _ = two, three
	})
}
