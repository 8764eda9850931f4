package guard

import (
	"context"
	"crypto/rand"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"time"

	etcdauth "go.etcd.io/etcd/server/v3/auth"

	"github.com/sqlbrain/sqlbrain/coder"
)

// tokens are the simple tokens that this node has seen. As in etcd each node measures the
// time since the token was last used on that node.
type tokens struct {
	ttl time.Duration
	now func() time.Time

	mu    sync.Mutex
	seen  map[coder.TokenHash]*seenToken
	swept time.Time

	lookups tokenLookups
}

type seenToken struct {
	coder.Token
	until time.Time
}

func newTokens(ttl time.Duration) *tokens {
	return &tokens{ttl: ttl, now: time.Now, seen: make(map[coder.TokenHash]*seenToken), lookups: newTokenLookups()}
}

// use returns the row of a token that this node has seen, and restarts its TTL. over is
// true if the token has expired: it is void even if its row still exists.
func (t *tokens) use(h coder.TokenHash) (token coder.Token, seen, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	s := t.seen[h]
	if s == nil {
		return token, false, false
	}
	if now.After(s.until) {
		return token, true, true
	}
	s.until = now.Add(t.ttl)
	return s.Token, true, false
}

func (t *tokens) add(h coder.TokenHash, token coder.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.seen[h] = &seenToken{Token: token, until: now.Add(t.ttl)}
	if now.Sub(t.swept) < time.Second {
		return
	}
	t.swept = now
	for h, s := range t.seen {
		// The entry must outlive the row, or this node would take the token for a new one.
		// A new leader keeps rows for another TTL.
		if now.Sub(s.until) > 2*t.ttl+time.Minute {
			delete(t.seen, h)
		}
	}
}

// simpleToken returns the user of a simple token under v; nil if the token is not valid.
func (g *Guard) simpleToken(ctx context.Context, v *view, token string) (*etcdauth.AuthInfo, error) {
	if !wellFormed(token) {
		return nil, nil
	}
	h := coder.HashToken(token)
	if v.revoked(h) {
		g.tokens.end(h)
		return nil, nil
	}
	row, seen, over := g.tokens.use(h)
	if over {
		return nil, nil
	}
	if !seen {
		var found bool
		var err error
		if row, found, err = g.lookup(ctx, h); err != nil || !found {
			return nil, err
		}
	}
	if !v.honours(row) {
		return nil, nil
	}
	return &etcdauth.AuthInfo{Username: row.User, Revision: v.Revision()}, nil
}

// wellFormed reports whether token has etcd's form, letters.number.
func wellFormed(token string) bool {
	_, index, ok := strings.Cut(token, ".")
	if !ok {
		return false
	}
	_, err := strconv.ParseUint(index, 10, 64)
	return err == nil
}

const (
	tokenLetters      = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	tokenPrefixLength = 16
)

// newTokenPrefix returns the random part of a token, which makes it impossible to guess.
func newTokenPrefix() (string, error) {
	prefix := make([]byte, tokenPrefixLength)
	for i := range prefix {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(tokenLetters))))
		if err != nil {
			return "", err
		}
		prefix[i] = tokenLetters[n.Int64()]
	}
	return string(prefix), nil
}
