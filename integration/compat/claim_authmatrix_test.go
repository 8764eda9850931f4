package compat

import (
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The leases of the matrix: on one there are keys that begin with a/ only, on the
// other, another key.
const (
	ownLease   = 7
	otherLease = 8
)

// prepare makes the keys and leases that guarded calls refer to.
func (c *checker) prepare() {
	for _, id := range []int64{ownLease, otherLease} {
		c.ask("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: id, TTL: 3600})
	}
	for key, lease := range map[string]int64{"a/1": 0, "a/2": ownLease, "b": 0, "c": otherLease} {
		c.kv("Put", &pb.PutRequest{Key: []byte(key), Value: []byte("1"), Lease: lease})
	}
}

func (c *checker) unprepare() {
	for _, id := range []int64{ownLease, otherLease, 77} {
		c.ask("Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: id})
	}
	c.del("\x00", "\x00")
	for _, u := range []string{"new"} {
		c.auth("UserDelete", &pb.AuthUserDeleteRequest{Name: u})
		c.auth("RoleDelete", &pb.AuthRoleDeleteRequest{Role: u})
	}
}

// guardedCalls are calls of every RPC: of what ann may do and of what she may not.
func (c *checker) guardedCalls() []call {
	own, other, prefix, end := []byte("a/1"), []byte("b"), []byte("a/"), []byte("a0")
	put := func(key string, lease int64, prev bool) *pb.PutRequest {
		return &pb.PutRequest{Key: []byte(key), Value: []byte("2"), Lease: lease, PrevKv: prev}
	}
	txn := func(compare []byte, success, failure *pb.RequestOp) *pb.TxnRequest {
		t := &pb.TxnRequest{Compare: []*pb.Compare{{Key: compare, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER}}}
		for op, branch := range map[*pb.RequestOp]*[]*pb.RequestOp{success: &t.Success, failure: &t.Failure} {
			if op != nil {
				*branch = []*pb.RequestOp{op}
			}
		}
		return t
	}
	nested := func(t *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}
	}
	calls := []call{
		{"KV/Range", &pb.RangeRequest{Key: own}},
		{"KV/Range", &pb.RangeRequest{Key: own, Serializable: true}},
		{"KV/Range", &pb.RangeRequest{Key: other}},
		{"KV/Range", &pb.RangeRequest{Key: other, Serializable: true}},
		{"KV/Range", &pb.RangeRequest{Key: prefix, RangeEnd: end}},
		{"KV/Range", &pb.RangeRequest{Key: prefix, RangeEnd: []byte("a1")}},
		{"KV/Range", &pb.RangeRequest{Key: other, Revision: 1 << 40}},
		{"KV/Range", &pb.RangeRequest{}},
		{"KV/RangeStream", &pb.RangeRequest{Key: prefix, RangeEnd: end}},
		{"KV/RangeStream", &pb.RangeRequest{Key: other}},
		{"KV/Put", put("a/1", 0, false)},
		{"KV/Put", put("a/1", 0, true)},
		{"KV/Put", put("b", 0, false)},
		{"KV/Put", put("a/3", ownLease, false)},
		{"KV/Put", put("a/3", otherLease, false)},
		{"KV/Put", put("a/3", 999, false)},
		{"KV/Put", &pb.PutRequest{}},
		{"KV/DeleteRange", &pb.DeleteRangeRequest{Key: []byte("a/9")}},
		{"KV/DeleteRange", &pb.DeleteRangeRequest{Key: []byte("b9"), RangeEnd: []byte("b99")}},
		{"KV/DeleteRange", &pb.DeleteRangeRequest{Key: own, PrevKv: true}},
		{"KV/Txn", txn(own, opPut(put("a/1", 0, false)), nil)},
		{"KV/Txn", txn(own, opRange(&pb.RangeRequest{Key: own}), nil)},
		{"KV/Txn", txn(other, opPut(put("a/1", 0, false)), nil)},
		{"KV/Txn", txn(other, opRange(&pb.RangeRequest{Key: own, Serializable: true}), nil)},
		{"KV/Txn", txn(own, opPut(put("a/1", 0, false)), opPut(put("b", 0, false)))},
		{"KV/Txn", txn(own, opPut(put("a/1", otherLease, false)), nil)},
		{"KV/Txn", txn(own, opDelete(&pb.DeleteRangeRequest{Key: other}), nil)},
		{"KV/Txn", txn(own, nested(txn(own, opRange(&pb.RangeRequest{Key: other}), nil)), nil)},
		{"KV/Txn", txn(own, nil, nested(txn(other, nil, opPut(put("a/1", 0, true)))))},
		{"KV/Txn", &pb.TxnRequest{}},
		{"KV/Compact", &pb.CompactionRequest{Revision: c.revision - 1}},
		{"Watch/Watch", &pb.WatchCreateRequest{Key: own}},
		{"Watch/Watch", &pb.WatchCreateRequest{Key: prefix, RangeEnd: end}},
		{"Watch/Watch", &pb.WatchCreateRequest{Key: other}},
		{"Watch/Watch", &pb.WatchCreateRequest{}},
		{"Watch/Watch", &pb.WatchCreateRequest{Key: other, StartRevision: -1}},
		{"Watch/Watch", &pb.WatchCreateRequest{Key: other, RangeEnd: []byte("a")}},
		{"Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: ownLease, Keys: true}},
		{"Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: otherLease, Keys: true}},
		{"Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: otherLease}},
		{"Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 999, Keys: true}},
		{"Lease/LeaseLeases", &pb.LeaseLeasesRequest{}},
		{"Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: ownLease}},
		{"Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: otherLease}},
		{"Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 999}},
		{"Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 77, TTL: 3600}},
		{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 77}},
		{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 999}},
		{"Cluster/MemberList", &pb.MemberListRequest{}},
		{"Cluster/MemberList", &pb.MemberListRequest{Linearizable: true}},
		{"Maintenance/Alarm", &pb.AlarmRequest{}},
		{"Maintenance/Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_CORRUPT, MemberID: 5}},
		{"Maintenance/Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_CORRUPT, MemberID: 5}},
		{"Maintenance/Status", &pb.StatusRequest{}},
		{"Maintenance/Defragment", &pb.DefragmentRequest{}},
		{"Maintenance/Hash", &pb.HashRequest{}},
		{"Maintenance/HashKV", &pb.HashKVRequest{}},
		{"Maintenance/MoveLeader", &pb.MoveLeaderRequest{TargetID: 1}},
		{lockMethod, &v3lockpb.LockRequest{Name: prefix, Lease: ownLease}},
		{lockMethod, &v3lockpb.LockRequest{Name: other, Lease: otherLease}},
		{unlockMethod, &v3lockpb.UnlockRequest{Key: []byte("a//7")}},
		{unlockMethod, &v3lockpb.UnlockRequest{Key: []byte("b/8")}},
		{campaignMethod, &v3electionpb.CampaignRequest{Name: []byte("a/e"), Lease: ownLease, Value: []byte("v")}},
		{campaignMethod, &v3electionpb.CampaignRequest{Name: []byte("be"), Lease: otherLease, Value: []byte("v")}},
		{leaderMethod, &v3electionpb.LeaderRequest{Name: []byte("a/e")}},
		{leaderMethod, &v3electionpb.LeaderRequest{Name: []byte("be")}},
		{proclaimMethod, &v3electionpb.ProclaimRequest{Leader: &v3electionpb.LeaderKey{Name: []byte("be"),
			Key: []byte("be/8"), Rev: 1, Lease: otherLease}}},
		{resignMethod, &v3electionpb.ResignRequest{Leader: &v3electionpb.LeaderKey{Name: []byte("be"), Key: []byte("be/8"),
			Rev: 1, Lease: otherLease}}},
		{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: ownLease}},
		{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: otherLease}},
	}
	permission := &authpb.Permission{Key: other, PermType: authpb.Permission_READ}
	for method, req := range map[string]proto.Message{
		"AuthStatus": &pb.AuthStatusRequest{}, "AuthEnable": &pb.AuthEnableRequest{},
	} {
		calls = append(calls, call{"Auth/" + method, req})
	}
	return append(calls,
		call{"Auth/Authenticate", &pb.AuthenticateRequest{Name: "ann", Password: password("ann")}},
		call{"Auth/Authenticate", &pb.AuthenticateRequest{Name: "ann", Password: "wrong"}},
		call{"Auth/UserAdd", &pb.AuthUserAddRequest{Name: "new", Password: "p"}},
		call{"Auth/UserList", &pb.AuthUserListRequest{}},
		call{"Auth/UserGet", &pb.AuthUserGetRequest{Name: "ann"}},
		call{"Auth/UserGet", &pb.AuthUserGetRequest{Name: "root"}},
		call{"Auth/UserGet", &pb.AuthUserGetRequest{Name: "nobody"}},
		call{"Auth/UserGet", &pb.AuthUserGetRequest{}},
		call{"Auth/RoleAdd", &pb.AuthRoleAddRequest{Name: "new"}},
		call{"Auth/RoleList", &pb.AuthRoleListRequest{}},
		call{"Auth/RoleGet", &pb.AuthRoleGetRequest{Role: "writer"}},
		call{"Auth/RoleGet", &pb.AuthRoleGetRequest{Role: "root"}},
		call{"Auth/RoleGet", &pb.AuthRoleGetRequest{Role: "nobody"}},
		call{"Auth/RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{Name: "new", Perm: permission}},
		call{"Auth/RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{Name: "new"}},
		call{"Auth/UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "new", Role: "new"}},
		call{"Auth/UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: "new", Role: "new"}},
		call{"Auth/RoleRevokePermission", &pb.AuthRoleRevokePermissionRequest{Role: "new", Key: other}},
		call{"Auth/UserChangePassword", &pb.AuthUserChangePasswordRequest{Name: "new", Password: "q"}},
		call{"Auth/UserDelete", &pb.AuthUserDeleteRequest{Name: "new"}},
		call{"Auth/RoleDelete", &pb.AuthRoleDeleteRequest{Role: "new"}},
	)
}

// rootCalls are those that are compared only where both servers refuse them: what root
// gets is another claim's affair, or would end this one.
func (c *checker) rootCalls() []call {
	return []call{
		{"Cluster/MemberAdd", &pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}}},
		{"Cluster/MemberRemove", &pb.MemberRemoveRequest{ID: 1}},
		{"Cluster/MemberUpdate", &pb.MemberUpdateRequest{ID: 1, PeerURLs: []string{"http://127.0.0.1:1"}}},
		{"Cluster/MemberPromote", &pb.MemberPromoteRequest{ID: 1}},
		{"Maintenance/Snapshot", &pb.SnapshotRequest{}},
		{"Maintenance/Downgrade", &pb.DowngradeRequest{Version: "3.6.0"}},
		{"Auth/AuthDisable", &pb.AuthDisableRequest{}},
		{observeMethod, &v3electionpb.LeaderRequest{Name: []byte("be")}},
	}
}

// callAll makes all calls; permitted says that the caller may do what root may.
func (c *checker) callAll(permitted bool) {
	for _, call := range c.guardedCalls() {
		c.ask(call.method, call.req)
	}
	if permitted {
		return
	}
	// A refusal by both servers shows nothing about the other facts on the page.
	defer func(was bool) { c.rec.onPage = was }(c.rec.onPage)
	c.rec.onPage = false
	for _, call := range c.rootCalls() {
		c.ask(call.method, call.req)
	}
}

// callAllOld makes all calls with a token of an old revision. etcd refuses those that read and
// write keys. The subject refuses the others as well; etcd is not asked, as it would execute
// some of them.
func (c *checker) callAllOld() {
	c.t.Helper()
	old := status.Convert(rpctypes.ErrGRPCAuthOldRevision)
	for _, call := range append(c.guardedCalls(), c.rootCalls()...) {
		switch service, _, _ := strings.Cut(call.method, "/"); {
		case call.method == "Auth/Authenticate" || call.method == observeMethod:
		case call.method == "Auth/AuthStatus" || service == "Watch" || service == "KV" && call.method != "KV/Compact" ||
			strings.HasPrefix(service, "v3"):
			c.ask(call.method, call.req)
		default:
			got := status.Convert(c.p.subject.ask(call).err)
			if got.Code() != old.Code() || got.Message() != old.Message() {
				c.t.Errorf("%s with an old token: %v", call.method, got)
			}
		}
	}
}

// TestAuthMatrix calls every RPC as every kind of caller.
func TestAuthMatrix(t *testing.T) {
	matrix := func(text string, permitted bool, become func(c *checker)) claim {
		return bound(text, func(c *checker) {
			c.as("root")
			c.prepare()
			become(c)
			c.callAll(permitted)
			c.as("root")
			c.unprepare()
		})
	}
	token := func(token string) func(*checker) {
		return func(c *checker) { c.withTokens(func(*side) string { return token }) }
	}
	user := func(name string) func(*checker) { return func(c *checker) { c.as(name) } }
	testClaims(t, []string{cheapPasswords}, []claim{
		{"authentication is off", func(c *checker) {
			c.prepare()
			c.callAll(true)
			c.withTokens(func(*side) string { return "nonsense" })
			c.prepare()
			c.callAll(true)
			c.as("")
			c.unprepare()
		}},
		matrix("nobody", false, func(c *checker) { c.as("") }),
		matrix("a token without form", false, token("nonsense")),
		matrix("a token that nobody gave out", false, token("abcdefghijklmnop.1")),
		matrix("a token of a former password", false, func(c *checker) {
			c.as("ann")
			old := [2]*side{c.p.etcd, c.p.subject}
			var tokens [2][]string
			for i, s := range old {
				tokens[i] = s.caller.Get("token")
			}
			c.as("root")
			c.auth("UserChangePassword", &pb.AuthUserChangePasswordRequest{Name: "ann", Password: password("ann")})
			for i, s := range old {
				s.caller.Set("token", tokens[i]...)
			}
		}),
		matrix("a user who may do other things", false, user("ron")),
		matrix("a user who may write the keys", false, user("ann")),
		matrix("root", true, user("root")),
		{"every RPC is called", func(c *checker) {
			called := append(c.guardedCalls(), c.rootCalls()...)
			for _, r := range etcdRPCs() {
				if r.short() == "grpc.health.v1.Health/Check" { // has no caller
					continue
				}
				if !slices.ContainsFunc(called, func(k call) bool { return k.method == r.short() }) {
					c.t.Errorf("%s is not in the matrix", r.short())
				}
			}
		}},
	})
}
