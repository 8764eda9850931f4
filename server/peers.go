package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/peer"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
)

// Connections between members are kept and watched by both sides.
const (
	peerPingMinTime  = 5 * time.Second // gRPC's clients ping every 10 s at most
	peerPingInterval = 10 * time.Second
	peerPingTimeout  = 3 * time.Second
)

// newPeerGRPC returns the gRPC server behind the peer URLs: sqlbrain.Peer, and the
// handlers that other members forward their clients' calls to. Sizes and rates of
// calls are not bounded here, as the member that forwards has done so; handlers
// check requests again. files is nil if no peer URL has TLS.
func newPeerGRPC(cfg Config, sv *services, ss *streams, files *tlsfiles.Files) *grpc.Server {
	log := &requestLog{log: cfg.Logger, slow: cfg.SlowRequest, count: sv.slow, forwarded: true}
	front := &peerFront{streams: ss, log: cfg.Logger}
	s := grpc.NewServer(append(traced(cfg),
		grpc.Creds(newPeerCredentials(files, cfg.Logger)),
		grpc.ChainUnaryInterceptor(peer.CheckUnary(cfg.PeerNode), log.unary, front.unary),
		grpc.ChainStreamInterceptor(peer.CheckStream(cfg.PeerNode), front.stream),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: peerPingMinTime, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: peerPingInterval, Timeout: peerPingTimeout}),
	)...)
	sv.registerForPeers(s)
	peer.Register(s, cfg.PeerNode)
	return s
}

// peerFront is what a member's call passes before and after its handler. It says
// unmistakably when a call was not executed because this node does not lead; only
// then may the member try elsewhere. Nothing is forwarded from here: two nodes that
// take each other for the leader would never end.
type peerFront struct {
	streams *streams
	log     *slog.Logger
}

func (f *peerFront) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(auth.From(ctx, auth.Peer), req)
	if errors.Is(err, backend.ErrNotLeader) {
		if err := grpc.SetTrailer(ctx, metadata.Pairs(notLeaderKey, "true")); err != nil {
			return nil, err
		}
	}
	return resp, answer(ctx, f.log, info.FullMethod, err)
}

func (f *peerFront) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ss = sourcedStream{ss, auth.From(ss.Context(), auth.Peer)}
	err := f.streams.run(ss, info.FullMethod, false, func(ss grpc.ServerStream) error { return handler(srv, ss) })
	return answer(ss.Context(), f.log, info.FullMethod, err)
}

// secureConn is a connection that has a TLS handshake to make.
type secureConn struct{ net.Conn }

// secureListener marks its connections as such.
type secureListener struct{ net.Listener }

func (l secureListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return secureConn{c}, nil
}

// peerCredentials are gRPC's credentials for connections of both kinds.
type peerCredentials struct {
	credentials.TransportCredentials                                  // of plain connections
	secure                           credentials.TransportCredentials // nil if there are none
	log                              *slog.Logger
}

func newPeerCredentials(files *tlsfiles.Files, log *slog.Logger) peerCredentials {
	c := peerCredentials{TransportCredentials: insecure.NewCredentials(), log: log}
	if files != nil {
		c.secure = credentials.NewTLS(files.Listener())
	}
	return c
}

func (c peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	sc, ok := conn.(secureConn)
	if !ok {
		return c.TransportCredentials.ServerHandshake(conn)
	}
	wrapped, info, err := c.secure.ServerHandshake(sc.Conn)
	if err != nil {
		c.log.Warn("peer connection rejected", "remote", conn.RemoteAddr().String(), "error", err)
	}
	return wrapped, info, err
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }
