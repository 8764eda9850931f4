package console

import (
	"cmp"
	"context"
	"net/http"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// accessBody is who may do what. Only root sees all of it; others see themselves.
type accessBody struct {
	AuthEnabled bool       `json:"auth_enabled"`
	Users       []userBody `json:"users"`
	Roles       []roleBody `json:"roles"`
	// MayEdit: changes are not refused from the start.
	MayEdit bool `json:"may_edit"`
}

type userBody struct {
	Name  string   `json:"name"`
	Roles []string `json:"roles"`
}

type roleBody struct {
	Name        string       `json:"name"`
	Permissions []permission `json:"permissions"`
}

// access lists users and roles, as far as the caller may see them.
func (h *Handler) access(_ http.ResponseWriter, r *http.Request) (any, error) {
	who, err := h.whoLooks(r)
	if err != nil {
		return nil, err
	}
	if who.AuthEnabled && who.User == "" {
		return nil, failure{http.StatusUnauthorized, cmp.Or(who.Problem, rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty))}
	}
	ctx := caller(r)
	out := &accessBody{AuthEnabled: who.AuthEnabled, MayEdit: who.MayWrite && (who.Root || !who.AuthEnabled),
		Users: []userBody{}, Roles: []roleBody{}}
	names, roles := []string{who.User}, who.Roles
	if who.Root || !who.AuthEnabled {
		users, err := h.auth.UserList(ctx, &pb.AuthUserListRequest{})
		if err != nil {
			return nil, err
		}
		list, err := h.auth.RoleList(ctx, &pb.AuthRoleListRequest{})
		if err != nil {
			return nil, err
		}
		names, roles = users.Users, list.Roles
	}
	for _, name := range names {
		user, err := h.auth.UserGet(ctx, &pb.AuthUserGetRequest{Name: name})
		if err != nil {
			return nil, err
		}
		out.Users = append(out.Users, userBody{name, append([]string{}, user.Roles...)})
	}
	for _, name := range roles {
		role, err := h.auth.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: name})
		if err != nil {
			return nil, err
		}
		b := roleBody{name, []permission{}}
		for _, p := range role.Perm {
			b.Permissions = append(b.Permissions, permissionOf(p))
		}
		out.Roles = append(out.Roles, b)
	}
	return out, nil
}

// accessChange is a change of users and roles as the page asks for it; what one does not need
// is empty.
type accessChange struct {
	User     string `json:"user"`
	Password string `json:"password"`
	Role     string `json:"role"`
	Type     string `json:"type"` // read, write, readwrite
	Key      []byte `json:"key"`
	RangeEnd []byte `json:"range_end"`
}

var permissionTypes = map[string]authpb.Permission_Type{"read": authpb.READ, "write": authpb.WRITE,
	"readwrite": authpb.READWRITE}

// by makes a change by one call.
func by[Q, A any](call func(context.Context, *Q,
	...grpc.CallOption) (*A, error), request func(*accessChange) *Q) func(context.Context, *accessChange) error {
	return func(ctx context.Context, c *accessChange) error {
		_, err := call(ctx, request(c))
		return err
	}
}

// accessChanges are the changes by their names below /ui/api/access/. A user without a
// password is one that logs in by certificate.
func (h *Handler) accessChanges() map[string]func(context.Context, *accessChange) error {
	return map[string]func(context.Context, *accessChange) error{
		"user-add": by(h.auth.UserAdd, func(c *accessChange) *pb.AuthUserAddRequest {
			return &pb.AuthUserAddRequest{Name: c.User, Password: c.Password,
				Options: &authpb.UserAddOptions{NoPassword: c.Password == ""}}
		}),
		"user-delete": by(h.auth.UserDelete,
			func(c *accessChange) *pb.AuthUserDeleteRequest { return &pb.AuthUserDeleteRequest{Name: c.User} }),
		"user-password": func(ctx context.Context, c *accessChange) error {
			if c.Password == "" {
				return badRequest("the new password is empty")
			}
			_, err := h.auth.UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: c.User, Password: c.Password})
			return err
		},
		"user-grant": by(h.auth.UserGrantRole, func(c *accessChange) *pb.AuthUserGrantRoleRequest {
			return &pb.AuthUserGrantRoleRequest{User: c.User, Role: c.Role}
		}),
		"user-revoke": by(h.auth.UserRevokeRole, func(c *accessChange) *pb.AuthUserRevokeRoleRequest {
			return &pb.AuthUserRevokeRoleRequest{Name: c.User, Role: c.Role}
		}),
		"role-add": by(h.auth.RoleAdd,
			func(c *accessChange) *pb.AuthRoleAddRequest { return &pb.AuthRoleAddRequest{Name: c.Role} }),
		"role-delete": by(h.auth.RoleDelete,
			func(c *accessChange) *pb.AuthRoleDeleteRequest { return &pb.AuthRoleDeleteRequest{Role: c.Role} }),
		"role-grant": func(ctx context.Context, c *accessChange) error {
			kind, ok := permissionTypes[c.Type]
			if !ok {
				return badRequest("the type of a permission is read, write or readwrite")
			}
			_, err := h.auth.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{
				Name: c.Role, Perm: &authpb.Permission{PermType: kind, Key: c.Key, RangeEnd: c.RangeEnd},
			})
			return err
		},
		"role-revoke": by(h.auth.RoleRevokePermission, func(c *accessChange) *pb.AuthRoleRevokePermissionRequest {
			return &pb.AuthRoleRevokePermissionRequest{Role: c.Role, Key: c.Key, RangeEnd: c.RangeEnd}
		}),
	}
}

// changesAccess is the endpoint of one change.
func (h *Handler) changesAccess(apply func(context.Context, *accessChange) error) endpoint {
	return h.writes(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		var in accessChange
		if err := decode(r, &in); err != nil {
			return nil, err
		}
		return struct{}{}, apply(caller(r), &in)
	})
}
