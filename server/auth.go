package server

import (
	"context"
	"log/slog"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
)

// authServer serves etcd's Auth service; users are in auth_user.go, roles in
// auth_role.go.
type authServer struct {
	pb.UnsafeAuthServer

	guard   *auth.Guard
	headers headers
	forward *forwarder // of the making of tokens; nil: none
	log     *slog.Logger
}

// AuthEnable switches authentication on, for which there must be a user root with
// the role root.
func (s *authServer) AuthEnable(ctx context.Context, _ *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	header, err := s.change(ctx, "enable", func(as etcdauth.AuthStore) error { return as.AuthEnable() })
	if err != nil {
		return nil, err
	}
	return &pb.AuthEnableResponse{Header: header}, nil
}

// AuthDisable switches authentication off, and makes all tokens void.
func (s *authServer) AuthDisable(ctx context.Context, _ *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	header, err := s.change(ctx, "disable", func(as etcdauth.AuthStore) error {
		as.AuthDisable()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.AuthDisableResponse{Header: header}, nil
}

// AuthStatus tells whether authentication is on; to anybody, as in etcd.
func (s *authServer) AuthStatus(ctx context.Context, _ *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	var resp pb.AuthStatusResponse
	revision, err := s.guard.Ask(ctx, func(as etcdauth.AuthStore, _ string, _ error) error {
		resp.Enabled, resp.AuthRevision = as.IsAuthEnabled(), as.Revision()
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.headers.at(revision)
	return &resp, nil
}

// Authenticate gives a token for a name and a password. Any node checks these; a
// simple token is then made by the leader, who never sees the password.
func (s *authServer) Authenticate(ctx context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	token, revision, err := s.guard.Authenticate(ctx, r.Name, r.Password, s.issue)
	if err != nil {
		return nil, err
	}
	header := s.headers.now()
	header.Revision = max(header.Revision, revision)
	return &pb.AuthenticateResponse{Header: header, Token: token}, nil
}

// issue has the leader make a token.
func (s *authServer) issue(ctx context.Context, name, prefix string) (token string, revision int64, err error) {
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: issueMethod}
	out, err := s.forward.unary(ctx, &pb.InternalAuthenticateRequest{Name: name, SimpleToken: prefix}, info, s.issueHere)
	if err != nil {
		return "", 0, err
	}
	resp := out.(*pb.AuthenticateResponse)
	return resp.Token, resp.Header.Revision, nil
}

func (s *authServer) issueHere(ctx context.Context, req any) (any, error) {
	r := req.(*pb.InternalAuthenticateRequest)
	token, revision, err := s.guard.IssueToken(ctx, r.Name, r.SimpleToken)
	if err != nil {
		return nil, err
	}
	return &pb.AuthenticateResponse{Header: s.headers.at(revision), Token: token}, nil
}

// change changes users and roles, and returns the answer's header.
func (s *authServer) change(ctx context.Context, what string, apply func(etcdauth.AuthStore) error, names ...string) (*pb.ResponseHeader, error) {
	for _, name := range names {
		if err := coder.CheckAuthName(name); err != nil {
			return nil, status.Error(codes.InvalidArgument, "sqlbrain: the name of a user or role is too long")
		}
	}
	revision, err := s.guard.Change(ctx, apply)
	if err != nil {
		return nil, err
	}
	s.log.Info("authentication changed", "change", what, "of", slices.Clip(names), "auth_revision", s.guard.Revision())
	return s.headers.at(revision), nil
}
