package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
)

// RoleAdd adds a role without permissions.
func (s *authServer) RoleAdd(ctx context.Context, r *pb.AuthRoleAddRequest) (*pb.AuthRoleAddResponse, error) {
	header, err := changed(ctx, s, "role add", etcdauth.AuthStore.RoleAdd, r, r.Name)
	return &pb.AuthRoleAddResponse{Header: header}, err
}

// RoleGet returns the permissions of a role to administrators and to users that have it.
func (s *authServer) RoleGet(ctx context.Context, r *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	return asked(ctx, s, etcdauth.AuthStore.RoleGet, r,
		func(as etcdauth.AuthStore, user string) bool { return as.HasRole(user, r.Role) },
		func(resp *pb.AuthRoleGetResponse) **pb.ResponseHeader { return &resp.Header })
}

// RoleList names the roles.
func (s *authServer) RoleList(ctx context.Context, r *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return asked(ctx, s, etcdauth.AuthStore.RoleList, r, adminsOnly,
		func(resp *pb.AuthRoleListResponse) **pb.ResponseHeader { return &resp.Header })
}

// RoleDelete removes a role, also from the users that have it.
func (s *authServer) RoleDelete(ctx context.Context, r *pb.AuthRoleDeleteRequest) (*pb.AuthRoleDeleteResponse, error) {
	header, err := changed(ctx, s, "role delete", etcdauth.AuthStore.RoleDelete, r, r.Role)
	return &pb.AuthRoleDeleteResponse{Header: header}, err
}

// RoleGrantPermission adds a permission on a key or a range of keys, or replaces the
// one on the same.
func (s *authServer) RoleGrantPermission(ctx context.Context,
	r *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	header, err := changed(ctx, s, "role grant permission", etcdauth.AuthStore.RoleGrantPermission, r, r.Name)
	return &pb.AuthRoleGrantPermissionResponse{Header: header}, err
}

// RoleRevokePermission takes the permission on a key or a range of keys away.
func (s *authServer) RoleRevokePermission(ctx context.Context,
	r *pb.AuthRoleRevokePermissionRequest) (*pb.AuthRoleRevokePermissionResponse, error) {
	header, err := changed(ctx, s, "role revoke permission", etcdauth.AuthStore.RoleRevokePermission, r, r.Role)
	return &pb.AuthRoleRevokePermissionResponse{Header: header}, err
}
