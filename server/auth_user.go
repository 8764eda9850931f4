package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
)

// hashPasswords replaces a password in a client's request by its hash, once, before
// the request is executed anywhere, or sent to another member.
func (f *front) hashPasswords(req any) error {
	var password, hashed *string
	switch r := req.(type) {
	case *pb.AuthUserAddRequest:
		if r.GetOptions().GetNoPassword() {
			return nil
		}
		password, hashed = &r.Password, &r.HashedPassword
	case *pb.AuthUserChangePasswordRequest:
		if r.Password == "" {
			return nil
		}
		password, hashed = &r.Password, &r.HashedPassword
	default:
		return nil
	}
	hash, err := f.guard.HashPassword(*password)
	if err != nil {
		return err
	}
	*password, *hashed = "", hash
	return nil
}

// UserAdd adds a user.
func (s *authServer) UserAdd(ctx context.Context, r *pb.AuthUserAddRequest) (resp *pb.AuthUserAddResponse, err error) {
	header, err := s.change(ctx, "user add", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.UserAdd(r)
		return err
	}, r.Name)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}

// UserGet tells the roles of a user, to itself too.
func (s *authServer) UserGet(ctx context.Context, r *pb.AuthUserGetRequest) (resp *pb.AuthUserGetResponse, err error) {
	revision, err := s.guard.Ask(ctx, func(as etcdauth.AuthStore, user string, admin error) (err error) {
		if admin != nil && r.Name != user {
			return admin
		}
		resp, err = as.UserGet(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.headers.at(revision)
	return resp, nil
}

// UserList names the users.
func (s *authServer) UserList(ctx context.Context, r *pb.AuthUserListRequest) (resp *pb.AuthUserListResponse, err error) {
	revision, err := s.guard.Ask(ctx, func(as etcdauth.AuthStore, _ string, admin error) (err error) {
		if admin != nil {
			return admin
		}
		resp, err = as.UserList(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.headers.at(revision)
	return resp, nil
}

// UserDelete removes a user; its tokens are void.
func (s *authServer) UserDelete(ctx context.Context, r *pb.AuthUserDeleteRequest) (resp *pb.AuthUserDeleteResponse, err error) {
	header, err := s.change(ctx, "user delete", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.UserDelete(r)
		return err
	}, r.Name)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}

// UserChangePassword replaces a user's password; its tokens are void.
func (s *authServer) UserChangePassword(ctx context.Context, r *pb.AuthUserChangePasswordRequest) (resp *pb.AuthUserChangePasswordResponse, err error) {
	header, err := s.change(ctx, "user change password", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.UserChangePassword(r)
		return err
	}, r.Name)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}

// UserGrantRole gives a user a role.
func (s *authServer) UserGrantRole(ctx context.Context, r *pb.AuthUserGrantRoleRequest) (resp *pb.AuthUserGrantRoleResponse, err error) {
	header, err := s.change(ctx, "user grant role", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.UserGrantRole(r)
		return err
	}, r.User, r.Role)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}

// UserRevokeRole takes a role from a user.
func (s *authServer) UserRevokeRole(ctx context.Context, r *pb.AuthUserRevokeRoleRequest) (resp *pb.AuthUserRevokeRoleResponse, err error) {
	header, err := s.change(ctx, "user revoke role", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.UserRevokeRole(r)
		return err
	}, r.Name, r.Role)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}
