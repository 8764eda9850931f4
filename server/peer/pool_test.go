package peer

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/watch"
)

// closedPort returns a URL that nothing listens at.
func closedPort(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))
}

func TestARefusedConnectionIsEvidence(t *testing.T) {
	c := newClient(t, closedPort(t))
	for range 3 { // between two attempts to connect too
		_, err := c.Position(testContext(t))
		require.ErrorIs(t, err, ErrRefused)
	}
	_, err := c.Follow(testContext(t), 1)
	require.ErrorIs(t, err, ErrRefused)

	missing := "unix://" + filepath.Join(t.TempDir(), "socket")
	_, err = newClient(t, missing).Position(testContext(t))
	require.ErrorIs(t, err, ErrRefused)
}

// resetting is a listener that closes whatever it accepts.
func resetting(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // a reset; without it, it is closed all the same
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-done
	})
	return "http://" + l.Addr().String()
}

func TestOtherFailuresAreNoEvidence(t *testing.T) {
	_, err := newClient(t, resetting(t)).Position(testContext(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrRefused)

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = newClient(t, "http://"+silent.Addr().String()).Position(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrRefused)

	c, err := newPool(t).Member(member, []string{closedPort(t), resetting(t)})
	require.NoError(t, err)
	_, err = c.Position(testContext(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrRefused, "one address of two is no evidence")
}

func TestAMemberIsFoundAtAnyOfItsAddresses(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c, err := newPool(t).Member(member, []string{closedPort(t), serve(t, newService(l), l)})
	require.NoError(t, err)
	_, err = c.Position(testContext(t))
	require.NoError(t, err)
}

func TestAMemberIsNotTakenForAnother(t *testing.T) {
	l := newLeader(t, watch.Config{})
	url := serve(t, newService(l), l)
	for name, c := range map[string]*Client{
		"another cluster": newClient(t, url, func(c *Config) { c.ClusterID++ }),
		"another member":  must(newPool(t).Member(member+1, []string{url})),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Position(testContext(t))
			require.ErrorIs(t, err, ErrOtherNode)
			require.ErrorIs(t, failure(follow(t, c, 1)), ErrOtherNode)
		})
	}
	_, err := must(newPool(t).Member(0, []string{url})).Position(testContext(t))
	require.NoError(t, err, "anybody of the cluster will do")

	conn, err := grpc.NewClient(url[len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	err = conn.Invoke(testContext(t), positionMethod, &emptypb.Empty{}, &emptypb.Empty{})
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "a client that is no member")
	require.NotContains(t, err.Error(), hexID(cluster), "the refusal does not say what would have been accepted")
	err = conn.Invoke(address(testContext(t), cluster+1, member), positionMethod, &emptypb.Empty{}, &emptypb.Empty{})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.NotContains(t, err.Error(), "cluster "+hexID(cluster))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestThePoolReusesConnections(t *testing.T) {
	p := newPool(t)
	here, there := []string{"http://127.0.0.1:1"}, []string{"http://127.0.0.1:2"}
	c := must(p.Member(member, here))
	require.Same(t, c, must(p.Member(member, here)))
	require.NotSame(t, c, must(p.Member(member+1, here)))
	moved := must(p.Member(member, there))
	require.NotSame(t, c, moved)
	_, err := c.Position(testContext(t))
	require.Error(t, err, "the connection to where the member was is closed")
	require.NotErrorIs(t, err, ErrRefused)
	require.Equal(t, there, moved.URLs())

	for _, urls := range [][]string{nil, {"127.0.0.1:1"}, {"http://127.0.0.1"}, {"ftp://h:1"}} {
		_, err := p.Member(9, urls)
		require.Error(t, err, urls)
	}
	require.NoError(t, p.Close())
	_, err = p.Member(member, here)
	require.ErrorIs(t, err, ErrClosed)
}

func TestUnixSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "peer") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "s")
	l := newLeader(t, watch.Config{})
	lis, err := net.Listen("unix", path)
	require.NoError(t, err)
	g := grpc.NewServer(grpc.UnaryInterceptor(CheckUnary(l)))
	Register(g, l)
	done := make(chan error)
	go func() { done <- g.Serve(lis) }()
	_, err = newClient(t, "unix://"+path).Position(testContext(t))
	require.NoError(t, err)
	g.Stop()
	require.NoError(t, <-done)
}
