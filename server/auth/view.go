package auth

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backend"
)

// view is one version of users and roles, and etcd's rules over it.
type view struct {
	etcdauth.AuthStore
	rows  *backend.AuthRows
	store *store
	err   error // the rows cannot be read: nobody may do anything
}

// view returns the view of rows, which is made once for each version.
func (g *Guard) view(rows *backend.AuthRows) *view {
	return rows.View(func(rows *backend.AuthRows) any {
		v := &view{rows: rows}
		if v.store, v.err = newStore(rows); v.err != nil {
			g.log.Error("users and roles cannot be read", "error", v.err)
			v.store = &store{enabled: true}
		}
		v.AuthStore = g.over(v.store, g.provider)
		return v
	}).(*view)
}

// over returns etcd's rules over s. They log more than is wanted here.
func (g *Guard) over(s *store, tokens etcdauth.TokenProvider) etcdauth.AuthStore {
	return etcdauth.NewAuthStore(zap.NewNop(), s, tokens, g.cfg.BcryptCost)
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

// honours reports whether a token still stands for its user: nobody has switched
// authentication off since, and the user is there with the same password.
func (v *view) honours(t coder.Token) bool {
	if t.Until != 0 && time.Now().Unix() >= t.Until {
		return false
	}
	u := v.user(t.User)
	return u != nil && t.Epoch == v.rows.Epoch && t.Password == passwordMark(u)
}

// passwordMark tells the passwords that a user has had apart. Each has a salt, so that
// setting the same one again is a change too.
func passwordMark(u *authpb.User) uint64 {
	sum := sha256.Sum256(u.Password)
	return binary.BigEndian.Uint64(sum[:])
}
