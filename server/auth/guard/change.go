package guard

import (
	"context"
	"encoding/base64"
	"errors"

	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"golang.org/x/crypto/bcrypt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Change changes users and roles with apply on behalf of the caller, and returns the
// store's revision. While authentication is on the caller must be root. apply may be
// called more than once, each time with another copy.
func (g *Guard) Change(ctx context.Context, apply func(etcdauth.AuthStore) error) (revision int64, err error) {
	for {
		ai, version, err := g.caller(ctx, g.info)
		if err != nil {
			return 0, err
		}
		revision, err := g.change(ctx, ai, apply)
		if errors.Is(err, etcdauth.ErrAuthOldRevision) && g.users.Rows().Version > version {
			continue // another change came first; identify the caller again
		}
		return revision, err
	}
}

func (g *Guard) change(ctx context.Context, ai *etcdauth.AuthInfo,
	apply func(etcdauth.AuthStore) error) (revision int64, err error) {
	admin := auth.NewPermit(func(_ context.Context, at auth.View) error {
		v := g.view(at.AuthRows())
		if v.err != nil {
			return v.err
		}
		if err := v.checkRevision(ai); err != nil {
			return err
		}
		return v.IsAdminPermitted(ai)
	})
	return g.users.Change(ctx, admin, func(rows *auth.Rows) (*auth.Change, error) {
		v := g.view(rows)
		scratch := v.store.writable(MaxStoredCost(g.cfg.BcryptCost))
		if err := apply(g.over(scratch, g.none)); err != nil {
			return nil, err
		}
		return scratch.changes(v.store)
	})
}

// Ask calls see with the newest users and roles, which only the leader has, and returns
// the store's revision. admin is nil if the caller is root or authentication is off, and
// otherwise the reason. A caller identified at an old revision counts as anonymous, and
// admin is its error.
func (g *Guard) Ask(ctx context.Context, see func(as etcdauth.AuthStore, user string,
	admin error) error) (revision int64, err error) {
	if _, _, err := g.caller(ctx, g.claimed); err != nil {
		return 0, err
	}
	rows, revision, err := g.users.OfLeader(ctx)
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

// HashPassword returns the hash of a password, encoded as in etcd's requests. Hashing is
// slow on purpose, so check first that the caller may set a password. Errors: those of
// bcrypt, mvcc.ErrTooManyRequests, ctx's.
func (g *Guard) HashPassword(ctx context.Context, password string) (encoded string, err error) {
	var hash []byte
	var failure error
	if err := g.hashing.run(ctx, ownWork, "", func() bool {
		hash, failure = bcrypt.GenerateFromPassword([]byte(password), g.cfg.BcryptCost)
		return true
	}); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(hash), failure
}

// Issuer runs IssueToken on the leader.
type Issuer func(ctx context.Context, name, prefix string) (token string, revision int64, err error)

// maxLoggedName bounds the bytes of the name in the log of a failed login. The name may be as long as a request.
const maxLoggedName = 256

// Authenticate checks a password and returns a token for the user, and the store's
// revision.
func (g *Guard) Authenticate(ctx context.Context, name, password string,
	issue Issuer) (token string, revision int64, err error) {
	source := SourceAddress(ctx)
	for {
		v, err := g.checkPassword(ctx, source, name, password)
		switch {
		case err == nil:
			g.logins.WithLabelValues("passed").Inc()
		case errors.Is(err, mvcc.ErrTooManyRequests):
			g.logins.WithLabelValues("refused").Inc()
			return "", 0, err
		case errors.Is(err, etcdauth.ErrAuthFailed), errors.Is(err, etcdauth.ErrNoPasswordUser):
			g.logins.WithLabelValues("failed").Inc()
			g.log.Warn("authentication failed", "user", name[:min(len(name), maxLoggedName)], "source", source, "error", err)
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
		// The password identifies the caller. A token in the same call may be old.
		if token, revision, err = issue(From(ctx, unknown), name, prefix); err != nil {
			return "", 0, err
		}
		// The token is bound to the user's current password, which must be the one that
		// was checked.
		rows, err := g.users.Sync(ctx)
		if err != nil {
			return "", 0, err
		}
		if rows.Revision == v.rows.Revision && rows.Epoch == v.rows.Epoch {
			return token, revision, nil
		}
	}
}

// IssueToken makes a simple token for a user whose password was checked. It works on the
// leader only.
func (g *Guard) IssueToken(ctx context.Context, name, prefix string) (token string, revision int64, err error) {
	return g.users.IssueToken(ctx, auth.PreAuthorized, prefix, func(rows *auth.Rows) (coder.Token, error) {
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
