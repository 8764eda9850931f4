package guard

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
)

// LifetimeKey is metadata of Authenticate that bounds the life of the simple token in seconds,
// however often it is used. The console sends it.
const LifetimeKey = "token-lifetime"

// untilOf returns the expiry of a token that is made for the call, in the form of
// coder.Token.
func untilOf(ctx context.Context) int64 {
	vs := metadata.ValueFromIncomingContext(ctx, LifetimeKey)
	if len(vs) == 0 {
		return 0
	}
	const most = 1 << 32 // longer lifetimes are unlimited
	seconds, err := strconv.ParseInt(vs[0], 10, 64)
	if err != nil || seconds < 0 || seconds > most {
		return 0
	}
	return time.Now().Unix() + seconds
}

// Logout revokes the simple token of the call on all nodes. revoke must run RevokeToken on
// the leader. Logout does nothing if there is no token or it is not valid. A JWT stays valid
// until it expires.
func (g *Guard) Logout(ctx context.Context, revoke func(context.Context, coder.TokenHash) error) error {
	token, ok := tokenOf(ctx)
	if !ok || !g.simple {
		return nil
	}
	v := g.view(g.users.Rows())
	if v.err != nil || !v.rows.Enabled {
		return v.err
	}
	if ai, err := g.simpleToken(ctx, v, token); err != nil || ai == nil {
		return err
	}
	if err := revoke(ctx, coder.HashToken(token)); err != nil {
		return err
	}
	_, err := g.Refresh(ctx) // so that this node applies the revocation at once
	return err
}

// RevokeToken removes a token's row, and revokes the token on nodes that remember it. It
// works on the leader only. Each node learns of it with the next version of users and roles,
// before it shows later commits.
func (g *Guard) RevokeToken(ctx context.Context, h coder.TokenHash) error {
	_, err := g.users.Change(ctx, auth.PreAuthorized, func(rows *auth.Rows) (*auth.Change, error) {
		now := time.Now()
		// By then every node has forgotten a token that it last honoured before the revocation.
		until := now.Add(2*g.cfg.TokenTTL + time.Minute).Unix()
		change := &auth.Change{
			Enabled: rows.Enabled, Revision: rows.Revision,
			Revoked: map[string][]byte{string(h[:]): binary.BigEndian.AppendUint64(nil, uint64(until))},
		}
		for hash, value := range rows.Revoked {
			if len(value) != 8 || int64(binary.BigEndian.Uint64(value)) < now.Unix() {
				change.Revoked[hash] = nil
			}
		}
		return change, nil
	})
	return err
}

// revoked reports whether a token was revoked.
func (v *view) revoked(h coder.TokenHash) bool {
	return len(v.rows.Revoked) > 0 && v.rows.Revoked[string(h[:])] != nil
}

// end revokes a token that this node remembers.
func (t *tokens) end(h coder.TokenHash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.seen[h]; s != nil {
		s.until = time.Time{}
	}
}
