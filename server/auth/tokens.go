package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	// tokenSweep is how often expired tokens are removed.
	tokenSweep = time.Second
	// tokenBatch is how many of them one commit removes.
	tokenBatch = 256
)

// Tokens knows when the rows of simple tokens may be removed. As in etcd a token that a node
// has not seen used is void there after its time to live. A node that has seen it remembers
// it, so its row is not needed after that time. A new leader does not know how old a token
// is, and grants it the whole time again. Safe for concurrent use.
type Tokens struct {
	ttl time.Duration

	added chan struct{} // signals Sweep that a token was added; one slot

	mu  sync.Mutex
	due map[coder.TokenHash]time.Time
}

// LoadTokens returns the tokens in the table, each of which expires after ttl.
func LoadTokens(ctx context.Context, store sqlstore.Store, ttl time.Duration) (*Tokens, error) {
	t := &Tokens{ttl: ttl, added: make(chan struct{}, 1), due: make(map[coder.TokenHash]time.Time)}
	due := time.Now().Add(ttl)
	lo, hi := coder.TokenBounds()
	for row, err := range store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("reading the tokens: %w", err)
		}
		h, err := coder.DecodeTokenKey(row.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the tokens: %w", err)
		}
		t.due[h] = due
	}
	return t, nil
}

// Issue makes a token in tx, in etcd's form: prefix.index, where index is the number of the
// commit. describe returns the row of the token. Its error is that of Issue.
func (t *Tokens) Issue(tx Tx, prefix string, describe func(*Rows) (coder.Token, error)) (token string, err error) {
	row, err := describe(tx.AuthRows())
	if err != nil {
		return "", err
	}
	token = fmt.Sprintf("%s.%d", prefix, tx.Sequence())
	h := coder.HashToken(token)
	tx.SetRow(coder.EncodeTokenKey(h), coder.EncodeToken(row))
	tx.OnCommit(func() { t.add(h, time.Now().Add(t.ttl)) })
	return token, nil
}

// LookupToken returns the row of a token; found is false if the table does not have it.
func LookupToken(ctx context.Context, store sqlstore.Store,
	h coder.TokenHash) (row coder.Token, found bool, err error) {
	raw, err := store.Get(ctx, coder.EncodeTokenKey(h))
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return row, false, nil
	}
	if err == nil {
		row, err = coder.DecodeToken(raw)
	}
	return row, err == nil, err
}

// Sweep removes the rows of expired tokens until ctx ends. submit runs remove in a
// transaction of the write pipeline. After an error the rest waits for the next sweep.
func (t *Tokens) Sweep(ctx context.Context, submit func(ctx context.Context, remove func(Tx)) error) {
	for t.await(ctx) && retry.Sleep(ctx, tokenSweep) == nil {
		for hashes := range slices.Chunk(t.expired(time.Now()), tokenBatch) {
			if err := submit(ctx, func(tx Tx) { t.remove(tx, hashes) }); err != nil {
				break
			}
		}
	}
}

// await waits until there are tokens. It returns false if ctx ends first.
func (t *Tokens) await(ctx context.Context) bool {
	for t.none() {
		select {
		case <-ctx.Done():
			return false
		case <-t.added:
		}
	}
	return true
}

func (t *Tokens) none() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.due) == 0
}

// remove removes the rows of tokens in tx.
func (t *Tokens) remove(tx Tx, hashes []coder.TokenHash) {
	for _, h := range hashes {
		tx.SetRow(coder.EncodeTokenKey(h), nil)
	}
	tx.OnCommit(func() { t.forget(hashes) })
}

func (t *Tokens) add(h coder.TokenHash, due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due[h] = due
	select {
	case t.added <- struct{}{}:
	default:
	}
}

func (t *Tokens) forget(hashes []coder.TokenHash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range hashes {
		delete(t.due, h)
	}
}

// expired returns the tokens that have expired at now.
func (t *Tokens) expired(now time.Time) []coder.TokenHash {
	t.mu.Lock()
	defer t.mu.Unlock()
	var hashes []coder.TokenHash
	for h, due := range t.due {
		if now.After(due) {
			hashes = append(hashes, h)
		}
	}
	return hashes
}
