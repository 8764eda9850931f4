package auth

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// issue commits a token of the user u.
func (c *commits) issue(t *testing.T, tokens *Tokens, prefix string) (token string) {
	t.Helper()
	if err := c.run(t, func(tx Tx) (err error) {
		token, err = tokens.Issue(tx, prefix, func(*Rows) (coder.Token, error) { return coder.Token{User: "u"}, nil })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokensAreRemovedAfterTheirTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		store := newTable(t)
		c := &commits{table: store, users: NewUsers(store)}
		found := func(token string) bool {
			t.Helper()
			row, found, err := LookupToken(t.Context(), store, coder.HashToken(token))
			if err != nil || found && row.User != "u" {
				t.Fatalf("%+v, %v", row, err)
			}
			return found
		}
		first, err := LoadTokens(t.Context(), store, ttl)
		if err != nil {
			t.Fatal(err)
		}
		c.n = 6
		token := c.issue(t, first, "abc")
		if token != "abc.7" {
			t.Errorf("token %s is not named after its commit", token)
		}
		time.Sleep(ttl / 2)
		next, err := LoadTokens(t.Context(), store, ttl) // of another leader, which grants the whole time
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go next.Sweep(ctx, func(_ context.Context, remove func(Tx)) error {
			return c.run(t, func(tx Tx) error { remove(tx); return nil })
		})
		time.Sleep(ttl)
		if !found(token) {
			t.Error("the token was removed before its time")
		}
		time.Sleep(2 * tokenSweep)
		if found(token) {
			t.Error("the token was not removed")
		}
		if left := next.expired(time.Now().Add(time.Hour)); len(left) > 0 {
			t.Errorf("%d removed tokens are remembered", len(left))
		}
		later := c.issue(t, next, "def")
		time.Sleep(ttl + 2*tokenSweep)
		if found(later) {
			t.Error("a token that was issued when there were none was not removed")
		}
		cancel()
		synctest.Wait()
	})
}
