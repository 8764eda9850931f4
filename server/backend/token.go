package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// tokenSweep is how often the leader looks for tokens whose time is up.
	tokenSweep = time.Second
	// tokenBatch is how many of them one command removes.
	tokenBatch = 256
)

// tokenClock knows how long the rows of tokens have to stay. As in etcd a token that
// a node has not seen used is void there after TokenTTL; so a row can go once that is
// over, since a node that has seen its token remembers it. A new leader does not know
// how old a token is, and begins anew.
type tokenClock struct {
	mu  sync.Mutex
	due map[coder.TokenHash]time.Time
}

// loadTokens returns a clock of the tokens in the table.
func loadTokens(ctx context.Context, b *Backend) (*tokenClock, error) {
	c := &tokenClock{due: make(map[coder.TokenHash]time.Time)}
	due := time.Now().Add(b.cfg.TokenTTL)
	lo, hi := coder.TokenBounds()
	it := b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, KeysOnly: true})
	defer func() { _ = it.Close() }()
	for it.Next() {
		h, err := coder.DecodeTokenKey(it.Key())
		if err != nil {
			return nil, fmt.Errorf("reading the tokens: %w", err)
		}
		c.due[h] = due
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("reading the tokens: %w", err)
	}
	return c, nil
}

func (c *tokenClock) add(h coder.TokenHash, due time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due[h] = due
}

func (c *tokenClock) remove(hs []coder.TokenHash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range hs {
		delete(c.due, h)
	}
}

// over returns the tokens whose time is up at now.
func (c *tokenClock) over(now time.Time) []coder.TokenHash {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hs []coder.TokenHash
	for h, due := range c.due {
		if now.After(due) {
			hs = append(hs, h)
		}
	}
	return hs
}

// sweepTokens removes the rows of tokens whose time is up.
func (l *leader) sweepTokens(ctx context.Context) {
	tick := time.NewTicker(tokenSweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for hs := range slices.Chunk(l.tokens.over(time.Now()), tokenBatch) {
			bounded, cancel := l.bound(ctx)
			err := l.submit(bounded, &removeTokensCommand{l: l, hashes: hs})
			cancel()
			if err != nil {
				if ctx.Err() == nil && l.lost() == nil {
					l.log.Warn("removing old tokens failed, trying again", "error", err)
				}
				break
			}
		}
	}
}

type removeTokensCommand struct {
	l      *leader
	hashes []coder.TokenHash
}

func (c *removeTokensCommand) touches() (keys, fresh [][]byte) { return nil, nil }
func (c *removeTokensCommand) size() int                       { return 0 }

func (c *removeTokensCommand) evaluate(_ context.Context, st *stage) error {
	for _, h := range c.hashes {
		st.setMeta(coder.EncodeTokenKey(h), nil)
	}
	st.committed(func() { c.l.tokens.remove(c.hashes) })
	return nil
}

// IssueToken makes a token in etcd's form, prefix.index, where the index is the
// number of a commit, and makes it known to all nodes. describe is called on the
// sequencer and says what the token stands for. It also returns the store's
// revision. Errors: describe's; ErrNotLeader and the like.
func (b *Backend) IssueToken(ctx context.Context, prefix string, describe func(*AuthRows) (coder.Token, error)) (token string, revision int64, err error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return "", 0, err
	}
	c := &issueCommand{l: l, prefix: prefix, describe: describe}
	if err := l.submit(ctx, c); err != nil {
		return "", 0, err
	}
	return c.token, c.revision, nil
}

type issueCommand struct {
	l        *leader
	prefix   string
	describe func(*AuthRows) (coder.Token, error)
	token    string
	revision int64
}

func (c *issueCommand) touches() (keys, fresh [][]byte) { return nil, nil }
func (c *issueCommand) size() int                       { return 0 }

func (c *issueCommand) evaluate(_ context.Context, st *stage) error {
	row, err := c.describe(st.auth)
	if err != nil {
		return err
	}
	c.token = fmt.Sprintf("%s.%d", c.prefix, c.l.chain.held.Sequence+1)
	c.revision = st.revision()
	h := coder.HashToken(c.token)
	st.setMeta(coder.EncodeTokenKey(h), coder.EncodeToken(row))
	st.committed(func() { c.l.tokens.add(h, time.Now().Add(c.l.cfg.TokenTTL)) })
	return nil
}

// LookupToken returns what a token stands for; found is false if there is no such
// token in the table, or not any more.
func (b *Backend) LookupToken(ctx context.Context, h coder.TokenHash) (row coder.Token, found bool, err error) {
	if err := b.serving(); err != nil {
		return row, false, err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	raw, err := b.store.Get(ctx, coder.EncodeTokenKey(h))
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return row, false, nil
	}
	if err == nil {
		row, err = coder.DecodeToken(raw)
	}
	return row, err == nil, b.publicError(ctx, err)
}
