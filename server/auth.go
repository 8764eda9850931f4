package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// authServer serves etcd's Auth service as far as it can be told that there is
// no authentication: users, roles and permissions are not kept.
type authServer struct {
	pb.UnsafeAuthServer

	headers headers
}

// firstAuthRevision is the auth revision of a store without users and roles.
const firstAuthRevision = 1

// AuthStatus says that authentication is off.
func (s *authServer) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: s.headers.now(), AuthRevision: firstAuthRevision}, nil
}

// Authenticate answers as etcd does without authentication; a client that was
// given a name and password goes on without a token then.
func (s *authServer) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

func (s *authServer) AuthEnable(context.Context, *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) AuthDisable(context.Context, *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) UserAdd(context.Context, *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) UserGet(context.Context, *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) UserList(context.Context, *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) UserDelete(context.Context, *pb.AuthUserDeleteRequest) (*pb.AuthUserDeleteResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) UserChangePassword(context.Context, *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) UserGrantRole(context.Context, *pb.AuthUserGrantRoleRequest) (*pb.AuthUserGrantRoleResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) UserRevokeRole(context.Context, *pb.AuthUserRevokeRoleRequest) (*pb.AuthUserRevokeRoleResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) RoleAdd(context.Context, *pb.AuthRoleAddRequest) (*pb.AuthRoleAddResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) RoleGet(context.Context, *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) RoleList(context.Context, *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) RoleDelete(context.Context, *pb.AuthRoleDeleteRequest) (*pb.AuthRoleDeleteResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) RoleGrantPermission(context.Context, *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}

func (s *authServer) RoleRevokePermission(context.Context, *pb.AuthRoleRevokePermissionRequest) (*pb.AuthRoleRevokePermissionResponse, error) {
	return nil, unsupported("authentication, users and roles are")
}
