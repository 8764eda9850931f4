package simulation

import (
	"math"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// revoked is a history in which ann may read and write a/ until her role is revoked from 20 s on: the table has that at
// 22 s, and it is acknowledged at 24 s, at revision 10. At 42 s she has another password.
func revoked(t *testing.T) (*users, *login) {
	t.Helper()
	u, all, roles := &users{}, make(map[string][]byte), make(map[string][]byte)
	row := func(kind coder.AuthKind, name string, m proto.Message) sqlstore.Op {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return sqlstore.Op{Kind: sqlstore.OpPut, Key: coder.EncodeAuthKey(kind, name), Value: coder.EncodeAuthValue(b)}
	}
	commit := func(at time.Duration, version, from, to int64, ops ...sqlstore.Op) {
		ops = append(ops, sqlstore.Op{Key: coder.AuthSettingsKey(),
			Value: coder.EncodeAuthSettings(coder.AuthSettings{Version: version, Enabled: true})},
			sqlstore.Op{Kind: sqlstore.OpCAS, Key: coder.FenceKey(), Old: coder.EncodeFenceToken(coder.FenceToken{Revision: from}),
				Value: coder.EncodeFenceToken(coder.FenceToken{Revision: to})})
		if err := u.note(at, ops, all, roles); err != nil {
			t.Fatal(err)
		}
	}
	hash := func(password string) []byte {
		b, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := hash("first")
	commit(time.Second, 1, 1, 2, row(coder.AuthUser, "ann", &authpb.User{Password: first, Roles: []string{"a"}}),
		row(coder.AuthRole, "a", &authpb.Role{KeyPermission: []*authpb.Permission{
			{PermType: authpb.READWRITE, Key: []byte("a/"), RangeEnd: []byte("a5")}, {PermType: authpb.READ, Key: []byte("a5"), RangeEnd: []byte("a9")},
		}}))
	commit(22*time.Second, 2, 8, 14, row(coder.AuthUser, "ann", &authpb.User{Password: first}))
	u.acknowledge(20*time.Second, 24*time.Second, 10)
	commit(42*time.Second, 3, 20, 20, row(coder.AuthUser, "ann",
		&authpb.User{Password: hash("second"), Roles: []string{"a"}}))
	u.acknowledge(40*time.Second, 44*time.Second, 20)
	return u, &login{user: "ann", password: "first", began: 2 * time.Second, ended: 3 * time.Second}
}

// TestAnswersAreJudgedByTheirUsers judges answers by a history of users and roles.
func TestAnswersAreJudgedByTheirUsers(t *testing.T) {
	u, ann := revoked(t)
	read, write := []need{{Range: history.Range{Key: "a/1"}}}, []need{{Range: history.Range{Key: "a/1"}, write: true}}
	again := &login{user: "ann", password: "second", began: 45 * time.Second, ended: 46 * time.Second}
	attached := func(lease, revision int64) []string {
		if lease == 1 && revision < 5 {
			return []string{"a/1"}
		}
		return []string{"b"}
	}
	for name, c := range map[string]struct {
		claim
		wrong bool
	}{
		"before the role is revoked":                {claim{as: ann, needs: read, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64}, false},
		"denied before it is revoked":               {claim{as: ann, needs: read, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64, refused: denied}, true},
		"while it is revoked":                       {claim{as: ann, needs: read, began: 21 * time.Second, ended: 23 * time.Second, before: math.MaxInt64}, false},
		"denied while it is revoked":                {claim{as: ann, needs: read, began: 21 * time.Second, ended: 23 * time.Second, before: math.MaxInt64, refused: denied}, false},
		"begun before the acknowledgement":          {claim{as: ann, needs: read, began: 23 * time.Second, ended: 30 * time.Second, before: math.MaxInt64}, false},
		"begun after it":                            {claim{as: ann, needs: read, began: 25 * time.Second, ended: 30 * time.Second, before: math.MaxInt64}, true},
		"denied after it":                           {claim{as: ann, needs: read, began: 25 * time.Second, ended: 30 * time.Second, before: math.MaxInt64, refused: denied}, false},
		"stale after it":                            {claim{as: ann, needs: read, began: 25 * time.Second, ended: 30 * time.Second, after: 10, before: math.MaxInt64, stale: true}, false},
		"stale, and of a later revision":            {claim{as: ann, needs: read, began: 25 * time.Second, ended: 30 * time.Second, after: 11, before: math.MaxInt64, stale: true}, true},
		"a write of its batch before it":            {claim{as: ann, needs: write, began: 21 * time.Second, ended: 23 * time.Second, after: 10, before: 9}, false},
		"a write of its batch after it":             {claim{as: ann, needs: write, began: 21 * time.Second, ended: 23 * time.Second, after: 11, before: 10}, true},
		"a write of only what may be read":          {claim{as: ann, needs: []need{{history.Range{Key: "a7"}, true}}, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64}, true},
		"a range of two permissions":                {claim{as: ann, needs: []need{{Range: history.Range{Key: "a/", End: "a8"}}}, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64}, false},
		"a range that is too long":                  {claim{as: ann, needs: []need{{Range: history.Range{Key: "a/", End: "b"}}}, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64}, true},
		"all keys from one on":                      {claim{as: ann, needs: []need{{Range: history.Range{Key: "a/", End: "\x00"}}}, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64}, true},
		"nobody":                                    {claim{needs: read, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64}, true},
		"nobody, denied":                            {claim{needs: read, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64, refused: denied}, false},
		"another user":                              {claim{as: &login{user: "bob"}, needs: read, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64}, true},
		"the token of the password before":          {claim{as: ann, needs: read, began: 45 * time.Second, ended: 46 * time.Second, before: math.MaxInt64}, true},
		"that token, refused":                       {claim{as: ann, needs: read, began: 45 * time.Second, ended: 46 * time.Second, before: math.MaxInt64, refused: unknown}, false},
		"a token of the password":                   {claim{as: again, needs: read, began: 47 * time.Second, ended: 48 * time.Second, before: math.MaxInt64}, false},
		"that token, refused although it is":        {claim{as: again, needs: read, began: 47 * time.Second, ended: 48 * time.Second, before: math.MaxInt64, refused: unknown}, true},
		"a lease whose keys may be written":         {claim{as: ann, leases: []int64{1}, began: 10 * time.Second, ended: 11 * time.Second, before: 4, first: 4, last: 4}, false},
		"a lease with a key that may not":           {claim{as: ann, leases: []int64{1}, began: 10 * time.Second, ended: 11 * time.Second, before: 5, first: 5, last: 5}, true},
		"a lease at one of several revisions":       {claim{as: ann, leases: []int64{1}, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64, first: 4, last: 6}, false},
		"keys of a lease that may not be read":      {claim{as: ann, reads: 2, began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64, first: 4, last: 6}, true},
		"what needs only a user, without any":       {claim{began: 10 * time.Second, ended: 11 * time.Second, before: math.MaxInt64}, false},
		"what needs only a user, with an old token": {claim{as: ann, began: 45 * time.Second, ended: 46 * time.Second, after: 21, before: 21}, true},
	} {
		if why := u.wrong(&c.claim, attached); (why != "") != c.wrong {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestAllPartsOfATransactionNeedPermission: also those that are not executed, and those in transactions of
// transactions.
func TestAllPartsOfATransactionNeedPermission(t *testing.T) {
	op := history.RequestOp
	needs, leases := needsOf(&pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a"), RangeEnd: []byte("b")}},
		Success: []*pb.RequestOp{op(&pb.PutRequest{Key: []byte("c"), Lease: 7, PrevKv: true})},
		Failure: []*pb.RequestOp{op(&pb.TxnRequest{Failure: []*pb.RequestOp{
			op(&pb.DeleteRangeRequest{Key: []byte("d"), RangeEnd: []byte("e")}), op(&pb.RangeRequest{Key: []byte("f")}),
		}})},
	})
	want := []need{
		{Range: history.Range{Key: "a", End: "b"}}, {history.Range{Key: "c"}, true}, {Range: history.Range{Key: "c"}},
		{history.Range{Key: "d", End: "e"}, true}, {Range: history.Range{Key: "f"}},
	}
	if !slices.Equal(needs, want) || !slices.Equal(leases, []int64{7}) {
		t.Errorf("%v and leases %v", needs, leases)
	}
}

// TestAttachmentsFollowTheAccount moves a key from one lease to another, and deletes it.
func TestAttachmentsFollowTheAccount(t *testing.T) {
	attached := attachments([]history.Revision{
		{Number: 2, Events: []history.Event{{KV: history.KV{Key: "a", Lease: 1}}, {KV: history.KV{Key: "b", Lease: 1}}}},
		{Number: 3, Events: []history.Event{{KV: history.KV{Key: "a", Lease: 2}}}},
		{Number: 4, Events: []history.Event{{KV: history.KV{Key: "b"}, Deleted: true}}},
	})
	for _, c := range []struct {
		lease, revision int64
		want            []string
	}{{1, 1, nil}, {1, 2, []string{"a", "b"}}, {1, 3, []string{"b"}}, {2, 3, []string{"a"}}, {1, 4, nil},
		{2, 9, []string{"a"}}} {
		if got := attached(c.lease, c.revision); !slices.Equal(got, c.want) {
			t.Errorf("lease %d at revision %d: %q", c.lease, c.revision, got)
		}
	}
}
