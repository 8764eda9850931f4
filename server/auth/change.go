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
	for {
		ai, version, err := g.caller(ctx)
		if err != nil {
			return 0, err
		}
		revision, err := g.change(ctx, ai, apply)
		if errors.Is(err, etcdauth.ErrAuthOldRevision) && g.node.AuthRows().Version > version {
			continue // another change came first; find out anew who calls
		}
		return revision, err
	}
}

func (g *Guard) change(ctx context.Context, ai *etcdauth.AuthInfo, apply func(etcdauth.AuthStore) error) (revision int64, err error) {
	return g.node.ChangeAuth(ctx, func(rows *backend.AuthRows) (*backend.AuthChange, error) {
		v := g.view(rows)
		if v.err != nil {
			return nil, v.err
		}
		if err := v.checkRevision(ai); err != nil {
			return nil, err
		}
		if err := v.IsAdminPermitted(ai); err != nil {
			return nil, err
		}
		scratch := v.store.writable(MaxStoredCost(g.cfg.BcryptCost))
		if err := apply(g.over(scratch, g.none)); err != nil {
			return nil, err
		}
		return scratch.changes(v.store)
	})
}

// Ask has see look at the newest users and roles, which only the leader has, and
// returns the store's revision. admin says whether the caller is root, or
// authentication is off, and why not. A caller of an old revision is nobody, and admin
// says so.
func (g *Guard) Ask(ctx context.Context, see func(as etcdauth.AuthStore, user string, admin error) error) (revision int64, err error) {
	if _, _, err := g.resolve(ctx, g.claimed); err != nil {
		return 0, err
	}
	rows, revision, err := g.node.LeaderAuth(ctx)
	if err != nil {
		return 0, err
	}
	v := g.view(rows)
	ai, err := g.claimed(ctx, v)
	if err != nil {
		return 0, err
	}
	if err := v.checkRevision(ai); err != nil {
		return revision, see(v, "", err)
	}
	user := ""
	if ai != nil {
		user = ai.Username
	}
	return revision, see(v, user, v.IsAdminPermitted(ai))
}

// HashPassword returns what is kept of a password, as etcd's requests carry it. It
// takes long on purpose, so the caller must have been permitted to set one. Errors: those of
// bcrypt, backend.ErrTooManyRequests, ctx's.
func (g *Guard) HashPassword(ctx context.Context, password string) (encoded string, err error) {
	var hash []byte
	var failure error
	if err := g.hashing.run(ctx, func() { hash, failure = bcrypt.GenerateFromPassword([]byte(password), g.cfg.BcryptCost) }); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(hash), failure
}

// Authenticate checks a password and returns a token for the user, and the store's
// revision. issue is how to have the leader run IssueToken.
func (g *Guard) Authenticate(ctx context.Context, name, password string, issue func(ctx context.Context, name, prefix string) (token string, revision int64, err error)) (token string, revision int64, err error) {
	source := sourceAddress(ctx)
	for {
		v, err := g.checkPassword(ctx, source, name, password)
		switch {
		case err == nil:
			g.logins.WithLabelValues("passed").Inc()
		case errors.Is(err, backend.ErrTooManyRequests):
			g.logins.WithLabelValues("refused").Inc()
			return "", 0, err
		case errors.Is(err, etcdauth.ErrAuthFailed), errors.Is(err, etcdauth.ErrNoPasswordUser):
			g.logins.WithLabelValues("failed").Inc()
			g.log.Warn("authentication failed", "user", name, "source", source, "error", err)
			return "", 0, err
		default:
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
		// The password says who calls. A token that came along may be old.
		if token, revision, err = issue(From(ctx, unknown), name, prefix); err != nil {
			return "", 0, err
		}
		// The token is of the password that the user has by now, which must be the one
		// that was checked.
		rows, err := g.node.SyncAuth(ctx)
		if err != nil {
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
		return coder.Token{User: name, Epoch: rows.Epoch, Password: passwordMark(u), Until: untilOf(ctx)}, nil
	})
}
