package guard

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
)

// view is one version of users and roles, and etcd's rules over it.
type view struct {
	etcdauth.AuthStore
	rows  *auth.Rows
	store *store
	err   error // the rows cannot be read: every request is refused
	// noPassword is the hash that the password of a name is compared with that no user has.
	noPassword []byte
}

// viewsKept is the number of views that a guard caches. Rarely more than two are in use:
// the newest, and the one before it while a change is being committed.
const viewsKept = 4

// views caches the newest views.
type views struct {
	mu   sync.Mutex // held while a view is made
	next int        // index of the next view
	kept [viewsKept]atomic.Pointer[view]
}

// find returns the view of rows, nil if it is not kept.
func (vs *views) find(rows *auth.Rows) *view {
	for i := range vs.kept {
		if v := vs.kept[i].Load(); v != nil && v.rows == rows {
			return v
		}
	}
	return nil
}

// sameUsers returns the view of rows that differ from kept ones by no user and no role, nil if there are none. A
// logout, which needs no right, makes such rows, and etcd's rules over thousands of users take seconds to build.
func (vs *views) sameUsers(rows *auth.Rows) *view {
	for i := range vs.kept {
		v := vs.kept[i].Load()
		if v == nil || v.err != nil || v.rows.Enabled != rows.Enabled || v.rows.Revision != rows.Revision ||
			!maps.EqualFunc(v.rows.Users, rows.Users, bytes.Equal) || !maps.EqualFunc(v.rows.Roles, rows.Roles, bytes.Equal) {
			continue
		}
		same := *v
		same.rows = rows
		return &same
	}
	return nil
}

// keep caches v. vs.mu is held.
func (vs *views) keep(v *view) {
	vs.kept[vs.next].Store(v)
	vs.next = (vs.next + 1) % viewsKept
}

// checkRevision returns etcd's ErrAuthOldRevision if ai is of another revision than v. etcd
// checks that for keys only, so that an old JWT keeps its administrative rights there.
func (v *view) checkRevision(ai *etcdauth.AuthInfo) error {
	if ai != nil && v.rows.Enabled && ai.Revision != v.Revision() {
		return etcdauth.ErrAuthOldRevision
	}
	return nil
}

func (v *view) user(name string) *authpb.User { return v.store.users[name] }

// honours reports whether a token is still valid for its user: authentication was not
// switched off since, and the user exists and has the same password.
func (v *view) honours(t coder.Token) bool {
	if t.Until != 0 && time.Now().Unix() >= t.Until {
		return false
	}
	u := v.user(t.User)
	return u != nil && t.Epoch == v.rows.Epoch && t.Password == passwordMark(u)
}

// passwordMark distinguishes the passwords that a user has had. Each has a salt, so that
// setting the same password again is a change too.
func passwordMark(u *authpb.User) uint64 {
	sum := sha256.Sum256(u.Password)
	return binary.BigEndian.Uint64(sum[:])
}
