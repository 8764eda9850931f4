package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
)

// RoleAdd adds a role without permissions.
func (s *authServer) RoleAdd(ctx context.Context, r *pb.AuthRoleAddRequest) (resp *pb.AuthRoleAddResponse, err error) {
	header, err := s.change(ctx, "role add", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.RoleAdd(r)
		return err
	}, r.Name)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}

// RoleGet tells the permissions of a role, also to those who have it.
func (s *authServer) RoleGet(ctx context.Context, r *pb.AuthRoleGetRequest) (resp *pb.AuthRoleGetResponse, err error) {
	revision, err := s.guard.Ask(ctx, func(as etcdauth.AuthStore, user string, admin error) (err error) {
		if admin != nil && !as.HasRole(user, r.Role) {
			return admin
		}
		resp, err = as.RoleGet(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.headers.at(revision)
	return resp, nil
}

// RoleList names the roles.
func (s *authServer) RoleList(ctx context.Context, r *pb.AuthRoleListRequest) (resp *pb.AuthRoleListResponse, err error) {
	revision, err := s.guard.Ask(ctx, func(as etcdauth.AuthStore, _ string, admin error) (err error) {
		if admin != nil {
			return admin
		}
		resp, err = as.RoleList(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.headers.at(revision)
	return resp, nil
}

// RoleDelete removes a role, also from the users that have it.
func (s *authServer) RoleDelete(ctx context.Context, r *pb.AuthRoleDeleteRequest) (resp *pb.AuthRoleDeleteResponse, err error) {
	header, err := s.change(ctx, "role delete", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.RoleDelete(r)
		return err
	}, r.Role)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}

// RoleGrantPermission adds a permission on a key or a range of keys, or replaces the
// one on the same.
func (s *authServer) RoleGrantPermission(ctx context.Context, r *pb.AuthRoleGrantPermissionRequest) (resp *pb.AuthRoleGrantPermissionResponse, err error) {
	header, err := s.change(ctx, "role grant permission", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.RoleGrantPermission(r)
		return err
	}, r.Name)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}

// RoleRevokePermission takes the permission on a key or a range of keys away.
func (s *authServer) RoleRevokePermission(ctx context.Context, r *pb.AuthRoleRevokePermissionRequest) (resp *pb.AuthRoleRevokePermissionResponse, err error) {
	header, err := s.change(ctx, "role revoke permission", func(as etcdauth.AuthStore) (err error) {
		resp, err = as.RoleRevokePermission(r)
		return err
	}, r.Role)
	if err != nil {
		return nil, err
	}
	resp.Header = header
	return resp, nil
}
