package auth

import (
	"context"
	"encoding/base64"
	"errors"

	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"golang.org/x/crypto/bcrypt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backend"
)

// Change has the caller, who must be root once authentication is on, change users and
// roles by what apply does to them, and returns the store's revision. apply may be
// called more than once, each time with other ones.
func (g *Guard) Change(ctx context.Context, apply func(etcdauth.AuthStore) error) (revision int64, err error) {
	ai, _, err := g.caller(ctx)
	if err != nil {
		return 0, err
	}
	return g.node.ChangeAuth(ctx, func(rows *backend.AuthRows) (*backend.AuthChange, error) {
		v := g.view(rows)
		if v.err != nil {
			return nil, v.err
		}
		if err := v.IsAdminPermitted(ai); err != nil {
			return nil, err
		}
		scratch := v.store.writable()
		if err := apply(g.over(scratch, g.none)); err != nil {
			return nil, err
		}
		return scratch.changes(v.store)
	})
}

// Ask has see look at the newest users and roles, which only the leader has, and
// returns the store's revision. admin says whether the caller is root, or
// authentication is off, and why not.
func (g *Guard) Ask(ctx context.Context, see func(as etcdauth.AuthStore, user string, admin error) error) (revision int64, err error) {
	if _, _, err := g.caller(ctx); err != nil {
		return 0, err
	}
	rows, revision, err := g.node.LeaderAuth(ctx)
	if err != nil {
		return 0, err
	}
	v := g.view(rows)
	ai, err := g.info(ctx, v)
	if err != nil {
		return 0, err
	}
	user := ""
	if ai != nil {
		user = ai.Username
	}
	return revision, see(v, user, v.IsAdminPermitted(ai))
}

// HashPassword returns what is kept of a password, as etcd's requests carry it. It
// takes long on purpose. Errors: those of bcrypt.
func (g *Guard) HashPassword(password string) (string, error) {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), g.cfg.BcryptCost)
	return base64.StdEncoding.EncodeToString(hash), err
}

// Authenticate checks a password and returns a token for the user, and the store's
// revision. issue is how to have the leader run IssueToken.
func (g *Guard) Authenticate(ctx context.Context, name, password string, issue func(ctx context.Context, name, prefix string) (token string, revision int64, err error)) (token string, revision int64, err error) {
	for {
		rows, err := g.node.SyncAuth(ctx)
		if err != nil {
			return "", 0, err
		}
		v := g.view(rows)
		if v.err != nil {
			return "", 0, v.err
		}
		if _, err := v.CheckPassword(name, password); err != nil {
			if !errors.Is(err, etcdauth.ErrAuthNotEnabled) {
				g.log.Warn("authentication failed", "user", name, "error", err)
			}
			return "", 0, err
		}
		if !g.simple {
			resp, err := v.Authenticate(ctx, name, "")
			return resp.GetToken(), 0, err
		}
		prefix, err := newTokenPrefix()
		if err != nil {
			return "", 0, err
		}
		if token, revision, err = issue(ctx, name, prefix); err != nil {
			return "", 0, err
		}
		// The token is of the password that the user has by now, which must be the one
		// that was checked.
		if rows, err = g.node.SyncAuth(ctx); err != nil {
			return "", 0, err
		}
		if rows.Revision == v.rows.Revision && rows.Epoch == v.rows.Epoch {
			return token, revision, nil
		}
	}
}

// IssueToken makes a simple token for a user whose password was checked. Only the
// leader can.
func (g *Guard) IssueToken(ctx context.Context, name, prefix string) (token string, revision int64, err error) {
	return g.node.IssueToken(ctx, prefix, func(rows *backend.AuthRows) (coder.Token, error) {
		v := g.view(rows)
		if !v.rows.Enabled {
			return coder.Token{}, etcdauth.ErrAuthNotEnabled
		}
		u := v.user(name)
		if u == nil || u.GetOptions().GetNoPassword() {
			return coder.Token{}, etcdauth.ErrAuthFailed
		}
		return coder.Token{User: name, Epoch: rows.Epoch, Password: passwordMark(u)}, nil
	})
}
