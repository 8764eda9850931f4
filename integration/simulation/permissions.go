package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// authState is one state of users and roles. The table had them one after the other.
type authState struct {
	at time.Duration // when the database had it
	// lo and hi are the revisions of the store between which the change was made: all up to lo are before it, and all
	// after hi follow it. They are equal once the answer to the change is known.
	lo, hi int64
	coder.AuthSettings
	several bool // it is several changes after the state before
	users   map[string]authUser
}

// authUser is a user with the permissions of its roles.
type authUser struct {
	hash string // of the password
	root bool
	may  []need

	roles []string
}

// need is a permission that a request needs, or that a role has.
type need struct {
	history.Range
	write bool
}

// permits reports whether the user has permissions for all keys of n.
func (u authUser) permits(n need) bool {
	key, end := bounds(n.Range)
	for _, p := range u.may { // in the order of their keys
		from, to := bounds(p.Range)
		if p.write == n.write && from <= key && key < to {
			key = to
		}
	}
	return u.root || key >= end
}

// bounds returns the first key of a range, and the key after it.
func bounds(r history.Range) (key, end string) {
	switch r.End {
	case "":
		return r.Key, r.Key + "\x00"
	case "\x00":
		return r.Key, "\xff\xff"
	}
	return r.Key, r.End
}

// login is a token that a user got.
type login struct {
	user, password, token string
	began, ended          time.Duration
}

// claim is the answer to a request, and what has to be right if it is.
type claim struct {
	what         any    // the request
	as           *login // nil: nobody
	needs        []need
	leases       []int64 // all of whose keys it needs to write
	reads        int64   // a lease all of whose keys it needs to read; 0: none
	began, ended time.Duration
	// The request was judged after all changes of users and roles that are before revision after, and before all that
	// follow revision before.
	after, before int64
	// The keys of leases were judged at a revision from first to last.
	first, last int64
	// Stale: acknowledged changes need not be known to the node.
	stale bool
	// refused is what the refusal says, 0 if the request was answered.
	refused refusal
}

type refusal int

const (
	denied  refusal = iota + 1 // it needs a permission that the user has not
	unknown                    // the token is not valid
)

// users is the history of users and roles: what the table had, and which changes were acknowledged.
type users struct {
	states  []authState
	acked   []authChange
	matches map[[2]string]bool // of hashes and passwords, which take long to compare
}

// authChange is a change that was acknowledged.
type authChange struct{ began, ended time.Duration }

// note adds a commit to the history, if it changes users and roles.
func (u *users) note(at time.Duration, ops []sqlstore.Op, users, roles map[string][]byte) error {
	next := authState{at: at}
	changes := false
	var token sqlstore.Op
	for _, op := range ops {
		switch kind, name, err := coder.DecodeAuthKey(op.Key); {
		case string(op.Key) == string(coder.AuthSettingsKey()):
			changes = true
			if next.AuthSettings, err = coder.DecodeAuthSettings(op.Value); err != nil {
				return err
			}
		case string(op.Key) == string(coder.FenceKey()):
			token = op
		case err != nil:
		default:
			rows := map[coder.AuthKind]map[string][]byte{coder.AuthUser: users, coder.AuthRole: roles}[kind]
			if delete(rows, name); op.Kind != sqlstore.OpDel && rows != nil {
				if rows[name], err = coder.DecodeAuthValue(op.Value); err != nil {
					return err
				}
			}
		}
	}
	if !changes {
		return nil
	}
	after, err := coder.DecodeFenceToken(token.Value)
	if err != nil {
		return err
	}
	before := after
	if token.Kind == sqlstore.OpCAS { // TestSafeguardsAreNeeded leaves the comparison out
		if before, err = coder.DecodeFenceToken(token.Old); err != nil {
			return err
		}
	}
	next.lo, next.hi = before.Revision, after.Revision
	next.several = len(u.states) > 0 && next.Version > u.states[len(u.states)-1].Version+1
	next.users, err = permissions(users, roles)
	u.states = append(u.states, next)
	return err
}

// permissions returns the users that rows of users and roles define.
func permissions(users, roles map[string][]byte) (map[string]authUser, error) {
	all := make(map[string]authUser)
	for name, row := range users {
		var user authpb.User
		if err := proto.Unmarshal(row, &user); err != nil {
			return nil, err
		}
		one := authUser{hash: string(user.Password), root: slices.Contains(user.Roles, "root"), roles: user.Roles}
		for _, has := range user.Roles {
			var role authpb.Role
			if err := proto.Unmarshal(roles[has], &role); err != nil {
				return nil, err
			}
			for _, p := range role.KeyPermission {
				r := history.Range{Key: string(p.Key), End: string(p.RangeEnd)}
				if p.PermType != authpb.Permission_WRITE {
					one.may = append(one.may, need{Range: r})
				}
				if p.PermType != authpb.Permission_READ {
					one.may = append(one.may, need{Range: r, write: true})
				}
			}
		}
		slices.SortFunc(one.may, func(a, b need) int { return cmp.Compare(a.Key, b.Key) })
		all[name] = one
	}
	return all, nil
}

// acknowledge notes that a change which was sent at began was answered now, with a revision of the store.
func (u *users) acknowledge(began, now time.Duration, revision int64) {
	u.acked = append(u.acked, authChange{began, now})
	i := u.since(began)
	if i == len(u.states)-1 && !u.states[i].several && u.states[i].lo <= revision && revision <= u.states[i].hi {
		u.states[i].lo, u.states[i].hi = revision, revision
	}
}

// since returns the first state that the table has had since a time.
func (u *users) since(at time.Duration) int {
	i, _ := slices.BinarySearchFunc(u.states, at, func(s authState, at time.Duration) int { return cmp.Compare(s.at, at) })
	return i
}

// known returns the oldest state that a request which begins at a time may be judged by, if it has to know what was
// acknowledged.
func (u *users) known(at time.Duration) (oldest int) {
	for _, c := range u.acked {
		if i := u.since(c.began); c.ended < at && i < len(u.states) && u.states[i].at <= c.ended {
			oldest = max(oldest, i)
		}
	}
	return oldest
}

// possible returns the states that a request may have been judged by: those from lo up to hi.
func (u *users) possible(c *claim) (lo, hi int) {
	for i, s := range u.states {
		if s.hi < c.after {
			lo = i
		}
		if s.at <= c.ended && s.lo <= c.before {
			hi = i
		}
	}
	if !c.stale {
		lo = max(lo, u.known(c.began))
	}
	return lo, hi
}

// valid reports whether the token of a login is that of a user with this password.
func (u *users) valid(l *login, now authUser) bool {
	if l == nil || now.hash == "" {
		return l == nil
	}
	lo, hi := u.possible(&claim{began: l.began, ended: l.ended, before: math.MaxInt64})
	for i := lo; i <= hi; i++ {
		if u.states[i].users[l.user].hash == now.hash {
			return u.match(now.hash, l.password)
		}
	}
	return false
}

func (u *users) match(hash, password string) bool {
	pair := [2]string{hash, password}
	match, known := u.matches[pair]
	if !known {
		if u.matches == nil {
			u.matches = make(map[[2]string]bool)
		}
		match = bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
		u.matches[pair] = match
	}
	return match
}

// wrong returns why an answer is wrong, "" if it is not. attached returns the keys of a lease at a revision.
func (u *users) wrong(c *claim, attached func(lease, revision int64) []string) string {
	if c.as == nil && len(c.needs) == 0 { // etcd refuses some requests that need nothing, and others not
		return ""
	}
	lo, hi := u.possible(c)
	for i := lo; i <= hi; i++ {
		if u.states[i].several || !u.states[i].Enabled {
			return ""
		}
	}
	for i := lo; i <= hi; i++ {
		name := ""
		if c.as != nil {
			name = c.as.user
		}
		user := u.states[i].users[name]
		valid := u.valid(c.as, user)
		if c.refused == unknown {
			if !valid {
				return ""
			}
			continue
		}
		for rev := c.first; rev <= c.last; rev++ {
			needs := slices.Clone(c.needs)
			for _, lease := range c.leases {
				for _, key := range attached(lease, rev) {
					needs = append(needs, need{history.Range{Key: key}, true})
				}
			}
			if c.reads != 0 {
				for _, key := range attached(c.reads, rev) {
					needs = append(needs, need{Range: history.Range{Key: key}})
				}
			}
			may := valid && c.as != nil && !slices.ContainsFunc(needs, func(n need) bool { return !user.permits(n) })
			if may == (c.refused == 0) {
				return ""
			}
		}
	}
	return fmt.Sprintf("%T %v of %s from %v to %v %s, which no state of users and roles explains, from %+v to %+v",
		c.what, c.what, c.name(), c.began, c.ended,
		[...]string{"was answered", "was denied", "had no valid token"}[c.refused], u.show(lo, c), u.show(hi, c))
}

func (c *claim) name() string {
	if c.as == nil {
		return "nobody"
	}
	return c.as.user
}

// show describes a state for one user.
func (u *users) show(i int, c *claim) string {
	s := u.states[i]
	return fmt.Sprintf("version %d at %v after revision %d to %d: %v", s.Version, s.at, s.lo, s.hi, s.users[c.name()].may)
}

// needsOf returns what a request of the key space needs. The rules are etcd's: all parts of a transaction need
// permission, whether they are executed or not.
func needsOf(request proto.Message) (needs []need, leases []int64) {
	add := func(write bool, key, end []byte) {
		needs = append(needs, need{history.Range{Key: string(key), End: string(end)}, write})
	}
	switch r := request.(type) {
	case *pb.RangeRequest:
		add(false, r.Key, r.RangeEnd)
	case *pb.PutRequest:
		if add(true, r.Key, nil); r.PrevKv {
			add(false, r.Key, nil)
		}
		if r.Lease != 0 {
			leases = append(leases, r.Lease)
		}
	case *pb.DeleteRangeRequest:
		if add(true, r.Key, r.RangeEnd); r.PrevKv {
			add(false, r.Key, r.RangeEnd)
		}
	case *pb.TxnRequest:
		for _, c := range r.Compare {
			add(false, c.Key, c.RangeEnd)
		}
		for _, op := range slices.Concat(r.Success, r.Failure) {
			var part proto.Message
			switch o := op.Request.(type) {
			case *pb.RequestOp_RequestRange:
				part = o.RequestRange
			case *pb.RequestOp_RequestPut:
				part = o.RequestPut
			case *pb.RequestOp_RequestDeleteRange:
				part = o.RequestDeleteRange
			case *pb.RequestOp_RequestTxn:
				part = o.RequestTxn
			}
			more, with := needsOf(part)
			needs, leases = append(needs, more...), append(leases, with...)
		}
	}
	return needs, leases
}

// attachments returns the keys of leases at each revision of an account.
func attachments(account []history.Revision) func(lease, revision int64) []string {
	type change struct {
		revision int64
		keys     map[string]bool
	}
	leases, of := make(map[int64][]change), make(map[string]int64)
	alter := func(lease, revision int64, key string, attached bool) {
		if lease == 0 {
			return
		}
		keys := make(map[string]bool)
		if cs := leases[lease]; len(cs) > 0 {
			maps.Copy(keys, cs[len(cs)-1].keys)
		}
		if delete(keys, key); attached {
			keys[key] = true
		}
		leases[lease] = append(leases[lease], change{revision, keys})
	}
	for _, r := range account {
		for _, e := range r.Events {
			alter(of[e.Key], r.Number, e.Key, false)
			if of[e.Key] = e.Lease; !e.Deleted {
				alter(e.Lease, r.Number, e.Key, true)
			} else {
				of[e.Key] = 0
			}
		}
	}
	return func(lease, revision int64) []string {
		cs := leases[lease]
		for i := len(cs) - 1; i >= 0; i-- {
			if cs[i].revision <= revision {
				return sortedKeys(cs[i].keys)
			}
		}
		return nil
	}
}
