package link

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
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// closedPort returns a URL that nothing listens at.
func closedPort(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))
}

func TestRefusedConnectionReturnsErrRefused(t *testing.T) {
	c := newClient(t, closedPort(t))
	for range 3 { // between two attempts to connect too
		require.ErrorIs(t, ask(testContext(t), c), ErrRefused)
	}
	missing := "unix://" + filepath.Join(t.TempDir(), "socket")
	require.ErrorIs(t, ask(testContext(t), newClient(t, missing)), ErrRefused)
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

func TestOtherFailuresAreNotErrRefused(t *testing.T) {
	err := ask(testContext(t), newClient(t, resetting(t)))
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrRefused)

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = ask(ctx, newClient(t, "http://"+silent.Addr().String()))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrRefused)

	c, err := newPool(t).Member(memberID, []string{closedPort(t), resetting(t)})
	require.NoError(t, err)
	err = ask(testContext(t), c)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrRefused, "one address of two is no evidence")
}

func TestAMemberIsFoundAtAnyOfItsAddresses(t *testing.T) {
	c, err := newPool(t).Member(memberID, []string{closedPort(t), serve(t)})
	require.NoError(t, err)
	require.NoError(t, ask(testContext(t), c))
}

func TestCallsForAnotherMemberAreRefused(t *testing.T) {
	url := serve(t)
	for name, c := range map[string]*Client{
		"another cluster": newClient(t, url, func(c *Config) { c.ClusterID++ }),
		"another member":  must(newPool(t).Member(memberID+1, []string{url})),
	} {
		t.Run(name, func(t *testing.T) {
			err := ask(testContext(t), c)
			require.ErrorIs(t, err, ErrOtherNode)
			s, err := healthpb.NewHealthClient(c.Conn()).Watch(testContext(t), &healthpb.HealthCheckRequest{})
			require.NoError(t, err)
			_, err = s.Recv()
			require.ErrorIs(t, c.Failure(testContext(t), err, s.Trailer(), true), ErrOtherNode)
		})
	}

	config := shared().cfg.Certificate.client("")
	config.InsecureSkipVerify = true
	conn, err := grpc.NewClient(url[len("http://"):], grpc.WithTransportCredentials(credentials.NewTLS(config)))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	err = conn.Invoke(testContext(t), healthpb.Health_Check_FullMethodName, &emptypb.Empty{}, &emptypb.Empty{})
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "a client that is no member")
	require.NotContains(t, err.Error(), hexID(cluster), "the refusal does not say what would have been accepted")
	err = conn.Invoke(address(testContext(t), cluster+1, memberID), healthpb.Health_Check_FullMethodName,
		&emptypb.Empty{}, &emptypb.Empty{})
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
	c := must(p.Member(memberID, here))
	require.Same(t, c, must(p.Member(memberID, here)))
	require.NotSame(t, c, must(p.Member(memberID+1, here)))
	moved := must(p.Member(memberID, there))
	require.NotSame(t, c, moved)
	err := ask(testContext(t), c)
	require.Error(t, err, "the connection to where the member was is closed")
	require.NotErrorIs(t, err, ErrRefused)
	require.Equal(t, there, moved.URLs())

	for _, urls := range [][]string{nil, {"127.0.0.1:1"}, {"http://127.0.0.1"}, {"ftp://h:1"}} {
		_, err := p.Member(9, urls)
		require.Error(t, err, urls)
	}
	require.NoError(t, p.Close())
	_, err = p.Member(memberID, here)
	require.ErrorIs(t, err, ErrClosed)
}

func TestUnixSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "peer") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "s")
	lis, err := net.Listen("unix", path)
	require.NoError(t, err)
	serveOn(t, lis)
	require.NoError(t, ask(testContext(t), newClient(t, "unix://"+path)))
}
