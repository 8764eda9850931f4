package compat

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// cheapPasswords makes both servers hash them quickly.
const cheapPasswords = "--bcrypt-cost=4"

func password(user string) string { return user + "-password" }

func (c *checker) auth(method string, req proto.Message) answer { return c.ask("Auth/"+method, req) }

// as makes the following requests as a user with a new token, or without a token if user is "".
func (c *checker) as(user string) {
	c.t.Helper()
	c.withTokens(func(*side) string { return "" })
	if user == "" {
		return
	}
	tokens := make(map[*side]string)
	for _, s := range c.p.sides() {
		a := s.ask(call{"Auth/Authenticate", &pb.AuthenticateRequest{Name: user, Password: password(user)}})
		r, ok := a.only().(*pb.AuthenticateResponse)
		if !ok {
			c.t.Fatalf("%s gives %s no token: %s", s.name, user, a)
		}
		tokens[s] = r.Token
	}
	c.trace = append(c.trace, "as "+user)
	c.withTokens(func(s *side) string { return tokens[s] })
}

func (c *checker) withTokens(token func(*side) string) {
	for _, s := range c.p.sides() {
		t := token(s)
		s.caller = nil
		if t != "" {
			s.caller = metadata.Pairs(rpctypes.TokenFieldNameGRPC, t)
		}
	}
}

// users makes root, ann, who may read and write what begins with a/, and ron, who may
// only read that, and switches authentication on. All of it is removed after the claim.
func (c *checker) users() {
	c.t.Helper()
	for _, u := range []string{"root", "ann", "ron"} {
		c.auth("UserAdd", &pb.AuthUserAddRequest{Name: u, Password: password(u)})
	}
	for role, kind := range map[string]authpb.Permission_Type{"writer": authpb.Permission_READWRITE,
		"reader": authpb.Permission_READ} {
		c.auth("RoleAdd", &pb.AuthRoleAddRequest{Name: role})
		c.auth("RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: &authpb.Permission{
			Key: []byte("a/"), RangeEnd: []byte("a0"), PermType: kind,
		}})
	}
	for user, role := range map[string]string{"root": "root", "ann": "writer", "ron": "reader"} {
		c.auth("UserGrantRole", &pb.AuthUserGrantRoleRequest{User: user, Role: role})
	}
	c.auth("AuthEnable", &pb.AuthEnableRequest{})
}

func (c *checker) noUsers() {
	c.as("root")
	c.auth("AuthDisable", &pb.AuthDisableRequest{})
	c.as("")
	for _, u := range response[pb.AuthUserListResponse](c.auth("UserList", &pb.AuthUserListRequest{})).Users {
		c.auth("UserDelete", &pb.AuthUserDeleteRequest{Name: u})
	}
	for _, r := range response[pb.AuthRoleListResponse](c.auth("RoleList", &pb.AuthRoleListRequest{})).Roles {
		c.auth("RoleDelete", &pb.AuthRoleDeleteRequest{Role: r})
	}
}

// bound makes a claim of one about users that are there.
func bound(text string, check func(c *checker)) claim {
	return claim{text, func(c *checker) {
		c.users()
		defer c.noUsers()
		check(c)
	}}
}

func TestAuth(t *testing.T) {
	ask := func(c *checker, method string, reqs ...proto.Message) {
		for _, r := range reqs {
			c.auth(method, r)
		}
	}
	revision := func(c *checker) uint64 {
		return response[pb.AuthStatusResponse](c.auth("AuthStatus", &pb.AuthStatusRequest{})).AuthRevision
	}
	testClaims(t, []string{cheapPasswords}, []claim{
		{"users, while authentication is off", func(c *checker) {
			before := revision(c)
			c.holds(before == 1, "the first auth revision is %d", before)
			ask(c, "UserAdd", &pb.AuthUserAddRequest{Name: "u", Password: "p"}, &pb.AuthUserAddRequest{Name: "u", Password: "p"},
				&pb.AuthUserAddRequest{}, &pb.AuthUserAddRequest{Name: "n", Options: &authpb.UserAddOptions{NoPassword: true}},
				&pb.AuthUserAddRequest{Name: "e"}, &pb.AuthUserAddRequest{Name: "h", HashedPassword: "not base64"},
				&pb.AuthUserAddRequest{Name: "long", Password: strings.Repeat("p", 73)},
				&pb.AuthUserAddRequest{Name: "\u00e9 $%", Password: "p"})
			c.holds(revision(c) == before+5, "each user raises the auth revision")
			ask(c, "UserList", &pb.AuthUserListRequest{})
			ask(c, "UserGet", &pb.AuthUserGetRequest{Name: "u"}, &pb.AuthUserGetRequest{Name: "x"}, &pb.AuthUserGetRequest{})
			ask(c, "UserChangePassword", &pb.AuthUserChangePasswordRequest{Name: "u", Password: "q"},
				&pb.AuthUserChangePasswordRequest{Name: "x", Password: "q"},
				&pb.AuthUserChangePasswordRequest{Name: "n", Password: "q"}, &pb.AuthUserChangePasswordRequest{Name: "u"},
				&pb.AuthUserChangePasswordRequest{Name: "u", HashedPassword: "not base64"},
				&pb.AuthUserChangePasswordRequest{Name: "u", HashedPassword: base64.StdEncoding.EncodeToString([]byte("hash"))})
			ask(c, "UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "u", Role: "r"},
				&pb.AuthUserGrantRoleRequest{User: "x", Role: "root"},
				&pb.AuthUserGrantRoleRequest{User: "u", Role: "root"}, &pb.AuthUserGrantRoleRequest{User: "u", Role: "root"})
			ask(c, "UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: "u", Role: "r"},
				&pb.AuthUserRevokeRoleRequest{Name: "x", Role: "root"},
				&pb.AuthUserRevokeRoleRequest{Name: "u", Role: "root"}, &pb.AuthUserRevokeRoleRequest{Name: "u", Role: "root"})
			for _, u := range []string{"u", "n", "e", "h", "\u00e9 $%", "u", ""} {
				c.auth("UserDelete", &pb.AuthUserDeleteRequest{Name: u})
			}
			revision(c)
		}},
		{"roles, while authentication is off", func(c *checker) {
			ask(c, "RoleAdd", &pb.AuthRoleAddRequest{Name: "r"}, &pb.AuthRoleAddRequest{Name: "r"}, &pb.AuthRoleAddRequest{},
				&pb.AuthRoleAddRequest{Name: "q"})
			ask(c, "RoleList", &pb.AuthRoleListRequest{})
			permission := func(kind authpb.Permission_Type, key, end string) *pb.AuthRoleGrantPermissionRequest {
				return &pb.AuthRoleGrantPermissionRequest{Name: "r",
					Perm: &authpb.Permission{Key: []byte(key), RangeEnd: []byte(end), PermType: kind}}
			}
			ask(c, "RoleGrantPermission", permission(authpb.Permission_READ, "m", ""),
				permission(authpb.Permission_WRITE, "m", ""),
				permission(authpb.Permission_READWRITE, "a", "b"), permission(authpb.Permission_READ, "a", ""),
				permission(authpb.Permission_READ, "a", "c"),
				permission(authpb.Permission_READ, "\x00", "\x00"), permission(authpb.Permission_READ, "z", "\x00"),
				permission(authpb.Permission_READ, "z", "a"),
				permission(authpb.Permission_READ, "z", "z"), permission(authpb.Permission_READ, "", ""), permission(99, "u", ""),
				&pb.AuthRoleGrantPermissionRequest{Name: "r"},
				&pb.AuthRoleGrantPermissionRequest{Name: "x", Perm: &authpb.Permission{Key: []byte("k")}})
			ask(c, "RoleGet", &pb.AuthRoleGetRequest{Role: "r"}, &pb.AuthRoleGetRequest{Role: "x"},
				&pb.AuthRoleGetRequest{Role: "root"})
			revoke := func(role, key, end string) *pb.AuthRoleRevokePermissionRequest {
				return &pb.AuthRoleRevokePermissionRequest{Role: role, Key: []byte(key), RangeEnd: []byte(end)}
			}
			ask(c, "RoleRevokePermission", revoke("r", "a", ""), revoke("r", "a", ""), revoke("r", "a", "b"),
				revoke("x", "a", ""), revoke("r", "nothing", ""))
			ask(c, "RoleGet", &pb.AuthRoleGetRequest{Role: "r"})
			c.auth("UserAdd", &pb.AuthUserAddRequest{Name: "u", Password: "p"})
			ask(c, "UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "u", Role: "r"},
				&pb.AuthUserGrantRoleRequest{User: "u", Role: "q"})
			ask(c, "RoleDelete", &pb.AuthRoleDeleteRequest{Role: "r"}, &pb.AuthRoleDeleteRequest{Role: "r"},
				&pb.AuthRoleDeleteRequest{Role: "root"})
			ask(c, "UserGet", &pb.AuthUserGetRequest{Name: "u"})
			ask(c, "RoleAdd", &pb.AuthRoleAddRequest{Name: "root"})
			ask(c, "RoleGet", &pb.AuthRoleGetRequest{Role: "root"})
			ask(c, "RoleDelete", &pb.AuthRoleDeleteRequest{Role: "root"}, &pb.AuthRoleDeleteRequest{Role: "q"})
			c.auth("UserDelete", &pb.AuthUserDeleteRequest{Name: "u"})
			revision(c)
		}},
		{"enabling needs a user root with the role root", func(c *checker) {
			enable, disable := &pb.AuthEnableRequest{}, &pb.AuthDisableRequest{}
			c.refused("Auth/AuthEnable", enable, codes.FailedPrecondition, "etcdserver: root user does not exist")
			c.auth("UserAdd", &pb.AuthUserAddRequest{Name: "root", Password: password("root")})
			c.refused("Auth/AuthEnable", enable, codes.FailedPrecondition, "etcdserver: root user does not have root role")
			c.auth("UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
			c.auth("AuthDisable", disable)
			before := revision(c)
			c.auth("AuthEnable", enable)
			c.refused("Auth/AuthEnable", enable, codes.InvalidArgument, "etcdserver: user name is empty")
			c.refused("Auth/AuthDisable", disable, codes.InvalidArgument, "etcdserver: user name is empty")
			c.as("root")
			c.auth("AuthEnable", enable)
			c.holds(revision(c) == before, "enabling does not raise the auth revision")
			c.auth("AuthDisable", disable)
			c.holds(revision(c) == before+1, "disabling does")
			c.auth("AuthDisable", disable)
			c.as("")
			c.auth("UserDelete", &pb.AuthUserDeleteRequest{Name: "root"})
		}},
		bound("passwords and tokens", func(c *checker) {
			ask(c, "Authenticate", &pb.AuthenticateRequest{Name: "ann", Password: password("ann")},
				&pb.AuthenticateRequest{Name: "ann", Password: "wrong"},
				&pb.AuthenticateRequest{Name: "ann"}, &pb.AuthenticateRequest{Name: "nobody", Password: "p"},
				&pb.AuthenticateRequest{})
			c.as("root")
			c.auth("UserAdd", &pb.AuthUserAddRequest{Name: "certified", Options: &authpb.UserAddOptions{NoPassword: true}})
			ask(c, "Authenticate", &pb.AuthenticateRequest{Name: "certified"},
				&pb.AuthenticateRequest{Name: "certified", Password: "p"})
			ask(c, "UserDelete", &pb.AuthUserDeleteRequest{Name: "root"})
			ask(c, "RoleAdd", &pb.AuthRoleAddRequest{Name: "root"})
			ask(c, "RoleDelete", &pb.AuthRoleDeleteRequest{Role: "root"})

			keys := func() { c.rng(&pb.RangeRequest{Key: []byte("a/1")}) }
			rootTokens := map[*side]metadata.MD{c.p.etcd: c.p.etcd.caller, c.p.subject: c.p.subject.caller}
			asRootDo := func(method string, req proto.Message) { // and go on as before
				before := map[*side]metadata.MD{}
				for _, s := range c.p.sides() {
					before[s], s.caller = s.caller, rootTokens[s]
				}
				c.auth(method, req)
				for _, s := range c.p.sides() {
					s.caller = before[s]
				}
			}
			c.as("ann")
			keys()
			asRootDo("RoleAdd", &pb.AuthRoleAddRequest{Name: "other"})
			keys()
			asRootDo("UserChangePassword", &pb.AuthUserChangePasswordRequest{Name: "ann", Password: password("ann")})
			c.refused("KV/Range", &pb.RangeRequest{Key: []byte("a/1")}, codes.Unauthenticated, "etcdserver: invalid auth token")
			c.as("ann")
			keys()
			asRootDo("UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: "ann", Role: "writer"})
			c.refused("KV/Range", &pb.RangeRequest{Key: []byte("a/1")}, codes.PermissionDenied, "etcdserver: permission denied")
			asRootDo("UserDelete", &pb.AuthUserDeleteRequest{Name: "ann"})
			keys()
			c.as("ron")
			keys()
			asRootDo("RoleRevokePermission", &pb.AuthRoleRevokePermissionRequest{Role: "reader", Key: []byte("a/"),
				RangeEnd: []byte("a0")})
			keys()
			asRootDo("AuthDisable", &pb.AuthDisableRequest{})
			keys()
			c.as("")
			c.auth("AuthEnable", &pb.AuthEnableRequest{})
			c.withTokens(func(s *side) string { return rootTokens[s].Get(rpctypes.TokenFieldNameGRPC)[0] })
			keys()
		}),
		bound("what a permission covers", func(c *checker) {
			c.as("root")
			for i, p := range []*authpb.Permission{
				{Key: []byte("k"), PermType: authpb.Permission_READ},
				{Key: []byte("m"), RangeEnd: []byte("n"), PermType: authpb.Permission_READ},
				{Key: []byte("n"), RangeEnd: []byte("o"), PermType: authpb.Permission_READ},
				{Key: []byte("x"), RangeEnd: []byte{0}, PermType: authpb.Permission_WRITE},
			} {
				role := fmt.Sprint("p", i)
				c.auth("RoleAdd", &pb.AuthRoleAddRequest{Name: role})
				c.auth("RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: p})
				c.auth("UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "ron", Role: role})
			}
			c.as("ron")
			for _, r := range []struct{ key, end string }{
				{"k", ""}, {"k", "k\x00"}, {"k", "l"}, {"j", "l"}, {"m", ""}, {"m1", "m2"}, {"m", "n"}, {"m", "o"}, {"m", "n\x00"},
				{"l", "n"}, {"m", "\x00"},
				{"n", "m"}, {"n", "n"}, {"x", "\x00"}, {"\x00", "\x00"}, {"", "\x00"}, {"o", ""},
			} {
				c.kv("Range", &pb.RangeRequest{Key: []byte(r.key), RangeEnd: []byte(r.end)})
				c.kv("Range", &pb.RangeRequest{Key: []byte(r.key), RangeEnd: []byte(r.end), Serializable: true, CountOnly: true})
				c.kv("DeleteRange", &pb.DeleteRangeRequest{Key: []byte(r.key), RangeEnd: []byte(r.end)})
				c.ask("Watch/Watch", &pb.WatchCreateRequest{Key: []byte(r.key), RangeEnd: []byte(r.end)})
			}
			for _, r := range []struct{ key, end string }{{"x", ""}, {"y", "\x00"}, {"x", "y"}, {"w", "y"}} {
				c.kv("DeleteRange", &pb.DeleteRangeRequest{Key: []byte(r.key), RangeEnd: []byte(r.end)})
				c.kv("DeleteRange", &pb.DeleteRangeRequest{Key: []byte(r.key), RangeEnd: []byte(r.end), PrevKv: true})
			}
			c.kv("Put", &pb.PutRequest{Key: []byte("x")})
			c.kv("Put", &pb.PutRequest{Key: []byte("x"), PrevKv: true})
		}),
		bound("over HTTP", func(c *checker) {
			c.web("POST", "/v3/auth/authenticate", `{"name":"ann","password":"ann-password"}`)
			c.web("POST", "/v3/auth/authenticate", `{"name":"ann","password":"wrong"}`)
			c.web("POST", "/v3/kv/put", `{"key":"YS8x","value":"MQ=="}`)
			c.as("ann")
			c.web("POST", "/v3/kv/put", `{"key":"YS8x","value":"MQ=="}`)
			c.web("POST", "/v3/kv/range", `{"key":"YS8x"}`)
			c.web("POST", "/v3/kv/range", `{"key":"Yg=="}`)
			c.web("POST", "/v3/auth/user/list", `{}`)
			c.web("POST", "/v3/auth/user/get", `{"name":"ann"}`)
			c.withTokens(func(s *side) string { return "Bearer " + s.caller.Get(rpctypes.TokenFieldNameGRPC)[0] })
			c.web("POST", "/v3/kv/range", `{"key":"YS8x"}`)
			c.withTokens(func(*side) string { return "nonsense" })
			c.web("POST", "/v3/kv/range", `{"key":"YS8x"}`)
			c.as("root")
			c.web("POST", "/v3/auth/user/add", `{"name":"u","password":"p"}`)
			c.web("POST", "/v3/auth/user/get", `{"name":"ann"}`)
			c.web("POST", "/v3/auth/user/list", `{}`)
			c.web("POST", "/v3/auth/user/changepw", `{"name":"u","password":"q"}`)
			c.web("POST", "/v3/auth/role/add", `{"name":"r"}`)
			c.web("POST", "/v3/auth/role/grant", `{"name":"r","perm":{"permType":"READWRITE","key":"YQ==","range_end":"Yg=="}}`)
			c.web("POST", "/v3/auth/role/get", `{"role":"r"}`)
			c.web("POST", "/v3/auth/user/grant", `{"user":"u","role":"r"}`)
			c.web("POST", "/v3/auth/user/revoke", `{"name":"u","role":"r"}`)
			c.web("POST", "/v3/auth/role/revoke", `{"role":"r","key":"YQ==","range_end":"Yg=="}`)
			c.web("POST", "/v3/auth/role/list", `{}`)
			c.web("POST", "/v3/auth/role/delete", `{"role":"r"}`)
			c.web("POST", "/v3/auth/user/delete", `{"name":"u"}`)
			c.web("POST", "/v3/auth/status", `{}`)
			c.web("POST", "/v3/auth/disable", `{}`)
			c.web("POST", "/v3/auth/enable", `{}`)
			c.as("") // health checks are unauthenticated
			c.web("GET", "/health", "")
			c.web("GET", "/readyz?verbose", "")
		}),
	})
}

// TestAuthJWT has a key that both servers know.
func TestAuthJWT(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	testClaims(t, []string{cheapPasswords, "--auth-token=jwt,sign-method=HS256,priv-key=" + key + ",ttl=1h"}, []claim{
		bound("a token of an old auth revision", func(c *checker) {
			// etcd checks the revision for keys only, so an old JWT of root still changes users
			// there. Here every call refuses it.
			c.auth("Authenticate", &pb.AuthenticateRequest{Name: "ann", Password: password("ann")})
			for _, user := range []string{"ann", "root"} {
				c.as("root")
				c.prepare()
				c.as(user)
				c.rng(&pb.RangeRequest{Key: []byte("a/1")})
				old := map[*side]metadata.MD{}
				for _, s := range c.p.sides() {
					old[s] = s.caller
				}
				c.as("root")
				c.auth("RoleAdd", &pb.AuthRoleAddRequest{Name: "later than " + user})
				for _, s := range c.p.sides() {
					s.caller = old[s]
				}
				c.callAllOld()
				c.as("root")
				c.unprepare()
			}
			c.withTokens(func(*side) string { return "no.token" })
			c.rng(&pb.RangeRequest{Key: []byte("a/1")})
		}),
	})
}

// TestAuthExpired has tokens that live for ten seconds unless they are used. On a busy
// machine a request may take some of them.
func TestAuthExpired(t *testing.T) {
	testClaims(t, []string{cheapPasswords, "--auth-token-ttl=10"}, []claim{
		bound("an expired token", func(c *checker) {
			c.as("root")
			c.prepare()
			// Asking whether it is over begins its time anew.
			expired := func(s *side) bool {
				return status.Code(s.ask(call{"Maintenance/Status", &pb.StatusRequest{}}).err) == codes.Unauthenticated
			}
			asked := time.NewTicker(15 * time.Second)
			defer asked.Stop()
			for tries := 0; ; tries++ {
				<-asked.C
				if expired(c.p.etcd) && expired(c.p.subject) {
					break
				}
				if tries == 10 {
					c.t.Fatal("the tokens do not expire")
				}
			}
			c.callAll(false)
			c.as("root")
			c.unprepare()
		}),
	})
}
