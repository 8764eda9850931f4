package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
)

// hashPasswords replaces a password in a client's request by its hash, once, before
// the request is executed anywhere, or sent to another member. A hash costs much, so callers
// who may not change users are refused first.
func (f *front) hashPasswords(ctx context.Context, req any) error {
	var name string
	var password, hashed *string
	switch r := req.(type) {
	case *pb.AuthUserAddRequest:
		if r.GetOptions().GetNoPassword() {
			return nil
		}
		name, password, hashed = r.Name, &r.Password, &r.HashedPassword
	case *pb.AuthUserChangePasswordRequest:
		if r.Password == "" {
			return nil
		}
		name, password, hashed = r.Name, &r.Password, &r.HashedPassword
	default:
		return nil
	}
	if err := validateAuthNames(name); err != nil {
		return err
	}
	if _, err := f.guard.Admin(ctx); err != nil {
		return err
	}
	hash, err := f.guard.HashPassword(ctx, *password)
	if err != nil {
		return err
	}
	*password, *hashed = "", hash
	return nil
}

// UserAdd adds a user.
func (s *authServer) UserAdd(ctx context.Context, r *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	header, err := changed(ctx, s, "user add", etcdauth.AuthStore.UserAdd, r, r.Name)
	return &pb.AuthUserAddResponse{Header: header}, err
}

// UserGet returns the roles of a user to administrators and to that user.
func (s *authServer) UserGet(ctx context.Context, r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	return asked(ctx, s, etcdauth.AuthStore.UserGet, r,
		func(_ etcdauth.AuthStore, user string) bool { return r.Name == user },
		func(resp *pb.AuthUserGetResponse) **pb.ResponseHeader { return &resp.Header })
}

// UserList names the users.
func (s *authServer) UserList(ctx context.Context, r *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return asked(ctx, s, etcdauth.AuthStore.UserList, r, adminsOnly,
		func(resp *pb.AuthUserListResponse) **pb.ResponseHeader { return &resp.Header })
}

// UserDelete removes a user; its tokens are void.
func (s *authServer) UserDelete(ctx context.Context, r *pb.AuthUserDeleteRequest) (*pb.AuthUserDeleteResponse, error) {
	header, err := changed(ctx, s, "user delete", etcdauth.AuthStore.UserDelete, r, r.Name)
	return &pb.AuthUserDeleteResponse{Header: header}, err
}

// UserChangePassword replaces a user's password; its tokens are void.
func (s *authServer) UserChangePassword(ctx context.Context,
	r *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	header, err := changed(ctx, s, "user change password", etcdauth.AuthStore.UserChangePassword, r, r.Name)
	return &pb.AuthUserChangePasswordResponse{Header: header}, err
}

// UserGrantRole gives a user a role.
func (s *authServer) UserGrantRole(ctx context.Context,
	r *pb.AuthUserGrantRoleRequest) (*pb.AuthUserGrantRoleResponse, error) {
	header, err := changed(ctx, s, "user grant role", etcdauth.AuthStore.UserGrantRole, r, r.User, r.Role)
	return &pb.AuthUserGrantRoleResponse{Header: header}, err
}

// UserRevokeRole takes a role from a user.
func (s *authServer) UserRevokeRole(ctx context.Context,
	r *pb.AuthUserRevokeRoleRequest) (*pb.AuthUserRevokeRoleResponse, error) {
	header, err := changed(ctx, s, "user revoke role", etcdauth.AuthStore.UserRevokeRole, r, r.Name, r.Role)
	return &pb.AuthUserRevokeRoleResponse{Header: header}, err
}
