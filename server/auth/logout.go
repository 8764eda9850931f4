package auth

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backend"
)

// LifetimeKey is metadata of Authenticate that bounds the life of the simple token in seconds,
// however often it is used. The console sends it.
const LifetimeKey = "token-lifetime"

// untilOf returns when a token that is made for the call ends, as coder.Token has it.
func untilOf(ctx context.Context) int64 {
	vs := metadata.ValueFromIncomingContext(ctx, LifetimeKey)
	if len(vs) == 0 {
		return 0
	}
	const most = 1 << 32 // longer is no bound
	seconds, err := strconv.ParseInt(vs[0], 10, 64)
	if err != nil || seconds < 0 || seconds > most {
		return 0
	}
	return time.Now().Unix() + seconds
}

// Logout makes the simple token of the call void on all nodes. revoke is how to have the leader
// run RevokeToken. It does nothing without a token, or with one that is void; a JWT stays
// valid until it expires.
func (g *Guard) Logout(ctx context.Context, revoke func(context.Context, coder.TokenHash) error) error {
	token, ok := tokenOf(ctx)
	if !ok || !g.simple {
		return nil
	}
	v := g.view(g.node.AuthRows())
	if v.err != nil || !v.rows.Enabled {
		return v.err
	}
	if ai, err := g.simpleToken(ctx, v, token); err != nil || ai == nil {
		return err
	}
	if err := revoke(ctx, coder.HashToken(token)); err != nil {
		return err
	}
	_, err := g.Refresh(ctx) // what the caller has changed shows here at once
	return err
}

// RevokeToken removes a token's row, and makes the token void on nodes that remember it. Only
// the leader can. Each node learns it with the next version of users and roles, before it
// shows what was committed after it.
func (g *Guard) RevokeToken(ctx context.Context, h coder.TokenHash) error {
	_, err := g.node.ChangeAuth(ctx, func(rows *backend.AuthRows) (*backend.AuthChange, error) {
		now := time.Now()
		// By then every node has forgotten a token that it last honoured before it learned this.
		until := now.Add(2*g.cfg.TokenTTL + time.Minute).Unix()
		change := &backend.AuthChange{
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

// revoked reports whether a token was made void.
func (v *view) revoked(h coder.TokenHash) bool {
	return len(v.rows.Revoked) > 0 && v.rows.Revoked[string(h[:])] != nil
}

// end makes a token that this node remembers void.
func (t *tokens) end(h coder.TokenHash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.seen[h]; s != nil {
		s.until = time.Time{}
	}
}
