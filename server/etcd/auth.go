package etcd

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/forward"
)

// authServer serves etcd's Auth service; users are in auth_user.go, roles in
// auth_role.go.
type authServer struct {
	pb.UnsafeAuthServer

	guard   *guard.Guard
	headers headers
	forward *forward.Forwarder // of the making of tokens; nil: none
	log     *slog.Logger
}

// AuthEnable switches authentication on, for which there must be a user root with
// the role root.
func (s *authServer) AuthEnable(ctx context.Context, _ *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	header, err := s.change(ctx, "enable", etcdauth.AuthStore.AuthEnable)
	return &pb.AuthEnableResponse{Header: header}, err
}

// AuthDisable switches authentication off, and makes all tokens void.
func (s *authServer) AuthDisable(ctx context.Context, _ *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	header, err := s.change(ctx, "disable", func(as etcdauth.AuthStore) error {
		as.AuthDisable()
		return nil
	})
	return &pb.AuthDisableResponse{Header: header}, err
}

// AuthStatus reports whether authentication is on. As in etcd it needs no permission.
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
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: forward.AuthenticateMethod}
	out, err := s.forward.Unary(ctx, &pb.InternalAuthenticateRequest{Name: name, SimpleToken: prefix}, info, s.IssueToken)
	if err != nil {
		return "", 0, err
	}
	resp := out.(*pb.AuthenticateResponse)
	return resp.Token, resp.Header.Revision, nil
}

// IssueToken implements forward.Handlers.
func (s *authServer) IssueToken(ctx context.Context, req any) (any, error) {
	r := req.(*pb.InternalAuthenticateRequest)
	token, revision, err := s.guard.IssueToken(ctx, r.Name, r.SimpleToken)
	if err != nil {
		return nil, err
	}
	return &pb.AuthenticateResponse{Header: s.headers.at(revision), Token: token}, nil
}

// logout makes the caller's token void on all nodes.
func (s *authServer) logout(ctx context.Context) error {
	return s.guard.Logout(ctx, func(ctx context.Context, h coder.TokenHash) error {
		info := &grpc.UnaryServerInfo{Server: s, FullMethod: forward.RevokeMethod}
		_, err := s.forward.Unary(ctx, &pb.InternalAuthenticateRequest{SimpleToken: hex.EncodeToString(h[:])}, info,
			s.RevokeToken)
		return err
	})
}

// RevokeToken implements forward.Handlers.
func (s *authServer) RevokeToken(ctx context.Context, req any) (any, error) {
	raw, err := hex.DecodeString(req.(*pb.InternalAuthenticateRequest).SimpleToken)
	if err != nil || len(raw) != len(coder.TokenHash{}) {
		return nil, status.Error(codes.InvalidArgument, "sqlbrain: no hash of a token")
	}
	if err := s.guard.RevokeToken(ctx, coder.TokenHash(raw)); err != nil {
		return nil, err
	}
	return &pb.AuthenticateResponse{Header: s.headers.now()}, nil
}

// changed is change by one of the store's methods. Nothing else is in the answers to
// changes than the header; gRPC drops an answer that comes with an error.
func changed[Req, Resp any](ctx context.Context, s *authServer, what string,
	method func(etcdauth.AuthStore, Req) (Resp, error), r Req, names ...string) (*pb.ResponseHeader, error) {
	return s.change(ctx, what, func(as etcdauth.AuthStore) error {
		_, err := method(as, r)
		return err
	}, names...)
}

// asked returns what one of the store's methods answers to administrators, and to a
// user who may see it too. header returns where the answer keeps its header.
func asked[Req, Resp any](ctx context.Context, s *authServer,
	method func(etcdauth.AuthStore, Req) (*Resp, error), r Req,
	mayToo func(as etcdauth.AuthStore, user string) bool, header func(*Resp) **pb.ResponseHeader) (resp *Resp, err error) {
	revision, err := s.guard.Ask(ctx, func(as etcdauth.AuthStore, user string, admin error) (err error) {
		if admin != nil && (errors.Is(admin, etcdauth.ErrAuthOldRevision) || !mayToo(as, user)) {
			return admin
		}
		resp, err = method(as, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	*header(resp) = s.headers.at(revision)
	return resp, nil
}

// adminsOnly admits no caller other than administrators.
func adminsOnly(etcdauth.AuthStore, string) bool { return false }

// change changes users and roles, and returns the answer's header.
func (s *authServer) change(ctx context.Context, what string, apply func(etcdauth.AuthStore) error,
	names ...string) (*pb.ResponseHeader, error) {
	if err := validateAuthNames(names...); err != nil {
		return nil, err
	}
	revision, err := s.guard.Change(ctx, apply)
	if err != nil {
		return nil, err
	}
	s.log.Info("authentication changed", "change", what, "of", slices.Clip(names), "auth_revision", s.guard.Revision())
	return s.headers.at(revision), nil
}

// validateAuthNames refuses names of users and roles whose rows would not fit.
func validateAuthNames(names ...string) error {
	for _, name := range names {
		if err := coder.CheckAuthName(name); err != nil {
			return status.Error(codes.InvalidArgument, "sqlbrain: the name of a user or role is too long")
		}
	}
	return nil
}
