package guard

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// countingUsers counts the reads of tokens, which wait for hold if that is not nil.
type countingUsers struct {
	*auth.Store
	reads atomic.Int32
	hold  chan struct{}
}

func (n *countingUsers) LookupToken(ctx context.Context, h coder.TokenHash) (row coder.Token, found bool, err error) {
	n.reads.Add(1)
	if n.hold != nil {
		select {
		case <-n.hold:
		case <-ctx.Done():
			return row, false, ctx.Err()
		}
	}
	return n.Store.LookupToken(ctx, h)
}

func tokenContext(ctx context.Context, token string) context.Context {
	return From(metadata.NewIncomingContext(ctx, metadata.Pairs("token", token)), Client)
}

// address is where a call comes from, different for each i.
func address(i int) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(i)), Port: 1000 + i} }

func TestAnUnknownTokenIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		n := &countingUsers{Store: node.Auth}
		g := newGuardOf(t, n, node)
		populate(t, g)
		n.hold = make(chan struct{})
		unknownToken := tokenContext(t.Context(), "abc.1")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, _, err := g.caller(unknownToken, g.info); err == nil {
					t.Error("admitted")
				}
			})
		}
		synctest.Wait()
		require.EqualValues(t, 1, n.reads.Load(), "calls with one token share a read")
		close(n.hold)
		wg.Wait()
		_, _, err := g.caller(unknownToken, g.info)
		require.ErrorIs(t, err, etcdauth.ErrInvalidAuthToken)
		require.EqualValues(t, 1, n.reads.Load(), "that it is missing is remembered")
		time.Sleep(missingFor + time.Second)
		_, _, err = g.caller(unknownToken, g.info)
		require.ErrorIs(t, err, etcdauth.ErrInvalidAuthToken)
		require.EqualValues(t, 2, n.reads.Load(), "for a moment")
	})
}

func TestATokenReadThatIsCancelledIsMadeAgainForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		n := &countingUsers{Store: node.Auth, hold: make(chan struct{})}
		lead, g := newGuard(t, node), newGuardOf(t, n, node)
		populate(t, lead)
		token := lead.login(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _, _ = g.caller(tokenContext(ctx, token), g.info) })
		synctest.Wait()
		var admitted atomic.Int32
		for range 10 {
			wg.Go(func() {
				if ai, _, err := g.caller(tokenContext(t.Context(), token), g.info); err == nil && ai.Username == "ann" {
					admitted.Add(1)
				}
			})
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(n.hold)
		wg.Wait()
		require.EqualValues(t, 10, admitted.Load())
		require.Empty(t, g.tokens.lookups.running)
	})
}

func TestASourceOfManyUnknownTokensIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		n := &countingUsers{Store: node.Auth}
		lead, g := newGuard(t, node), newGuardOf(t, n, node)
		populate(t, lead)
		call := func(source net.Addr, token string) error {
			_, _, err := g.caller(from(t, source, "token", token), g.info)
			return err
		}
		flood := func(token string) error { return call(address(1), token) }
		for i := range 1000 {
			err := flood(fmt.Sprintf("abc.%d", i))
			if i < missesFree {
				require.ErrorIs(t, err, etcdauth.ErrInvalidAuthToken, i)
			} else {
				require.ErrorIs(t, err, mvcc.ErrTooManyRequests, i)
			}
		}
		require.EqualValues(t, missesFree, n.reads.Load())

		// A token that was made a moment ago, for a client elsewhere.
		token := lead.login(t)
		require.NoError(t, call(address(2), token))
		require.NoError(t, flood(token), "a token that this node knows costs nothing")
		time.Sleep(missesFree * missInterval)
		require.ErrorIs(t, flood("abc.2000"), etcdauth.ErrInvalidAuthToken)
	})
}

func TestAVoidTokenIsReadOnce(t *testing.T) {
	node := newNode(t)
	n := &countingUsers{Store: node.Auth}
	lead, g := newGuard(t, node), newGuardOf(t, n, node)
	populate(t, lead)
	token := lead.login(t)
	lead.mustChange(t, as(t, lead, "root"), func(s etcdauth.AuthStore) error {
		hash, err := lead.HashPassword(t.Context(), "new")
		require.NoError(t, err)
		_, err = s.UserChangePassword(&pb.AuthUserChangePasswordRequest{Name: "ann", HashedPassword: hash})
		return err
	})
	for range 5 {
		_, _, err := g.caller(tokenContext(t.Context(), token), g.info)
		require.ErrorIs(t, err, etcdauth.ErrInvalidAuthToken)
	}
	require.EqualValues(t, 1, n.reads.Load())
}

func TestMissingTokensAreBounded(t *testing.T) {
	l := newTokenLookups()
	for i := range maxMissing + 10 {
		h := coder.HashToken(fmt.Sprint(i))
		lookup, mine := l.begin(h)
		require.True(t, mine)
		l.end(h, lookup)
	}
	require.LessOrEqual(t, l.missing.Len(), maxMissing)
	again, _ := l.begin(coder.HashToken(fmt.Sprint(maxMissing + 9)))
	require.Nil(t, again)
}
