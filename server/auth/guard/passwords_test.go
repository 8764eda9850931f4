package guard

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

func TestAGateBoundsCallsThatRunAndThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newGate(2, 3)
		var running, most, done atomic.Int32
		release := make(chan struct{})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if h.run(t.Context(), func() {
					if n := running.Add(1); n > most.Load() {
						most.Store(n)
					}
					<-release
					running.Add(-1)
					done.Add(1)
				}) != nil {
					t.Error("refused")
				}
			})
			synctest.Wait()
		}
		require.ErrorIs(t, h.run(t.Context(), func() { t.Error("run") }), mvcc.ErrTooManyRequests)
		require.EqualValues(t, 2, running.Load())
		close(release)
		wg.Wait()
		require.EqualValues(t, 2, most.Load())
		require.EqualValues(t, 5, done.Load())

		h.slots <- struct{}{}
		h.slots <- struct{}{}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, h.run(ctx, func() { t.Error("run") }), context.Canceled)
		require.Empty(t, h.waiting, "a caller that went away leaves the queue")
	})
}

func TestRepeatedFailuresOfASourceAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLoginFailures()
		try := func(source string) time.Duration {
			start := time.Now()
			_, err := f.wait(t.Context(), source)
			require.NoError(t, err)
			f.add(source)
			return time.Since(start)
		}
		for i := range loginsFree {
			require.Zero(t, try("a"), i)
		}
		for range 5 {
			require.Equal(t, loginInterval, try("a"), "sequential attempts are spaced")
		}
		require.Zero(t, try("b"), "another source is not delayed")
		time.Sleep(2 * loginInterval)
		require.Zero(t, try("a"), "a failure is forgiven with time")
		time.Sleep(loginsFree * loginInterval)
		for i := range loginsFree {
			require.Zero(t, try("a"), i)
		}

		// Concurrent attempts stand in line, which is bounded, and each source has its own.
		var wg sync.WaitGroup
		var refused atomic.Int32
		start := time.Now()
		for range 50 {
			wg.Go(func() {
				if _, err := f.wait(t.Context(), "a"); errors.Is(err, mvcc.ErrTooManyRequests) {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 50-maxLoginDelay/loginInterval, refused.Load())
		require.Equal(t, maxLoginDelay, time.Since(start))
		require.Zero(t, f.delayed)
	})
}

func TestFailedSourcesAndDelayedLoginsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLoginFailures()
		source := func(i int) string { return fmt.Sprint(i) }
		for i := range maxSources + 100 {
			f.add(source(i))
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, f.sources.Len(), maxSources)
		require.True(t, f.sources.Contains(source(maxSources+99)))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range maxDelayed + 1 {
			for range loginsFree {
				f.add(source(i))
			}
		}
		for i := range maxDelayed {
			wg.Go(func() {
				_, err := f.wait(ctx, source(i))
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		_, err := f.wait(ctx, source(maxDelayed))
		require.ErrorIs(t, err, mvcc.ErrTooManyRequests)
		cancel()
		wg.Wait()
		require.Zero(t, f.delayed)
	})
}

// from returns the context of a client's call from address.
func from(t *testing.T, address net.Addr, md ...string) context.Context {
	ctx := grpcpeer.NewContext(t.Context(), &grpcpeer.Peer{Addr: address})
	return From(metadata.NewIncomingContext(ctx, metadata.Pairs(md...)), Client)
}

type bufAddr struct{}

func (bufAddr) Network() string { return "bufconn" }
func (bufAddr) String() string  { return "bufconn" }

func TestSourceAddresses(t *testing.T) {
	tcp := func(s string) net.Addr { a, err := net.ResolveTCPAddr("tcp", s); require.NoError(t, err); return a }
	for want, ctx := range map[string]context.Context{
		"192.0.2.1":         from(t, tcp("192.0.2.1:5000"), "x-forwarded-for", "198.51.100.1"),
		"2001:db8:1:2::/64": from(t, tcp("[2001:db8:1:2:3:4:5:6]:5000")),
		"192.0.2.7":         from(t, bufAddr{}, "x-forwarded-for", "198.51.100.1, 192.0.2.7"),
		"192.0.2.8":         from(t, bufAddr{}, "x-forwarded-for", "192.0.2.8:4711"),
		"@":                 from(t, &net.UnixAddr{Name: "@", Net: "unix"}, "x-forwarded-for", "198.51.100.1"),
		"":                  t.Context(),
		"2001:db8:9:9::/64": from(t, bufAddr{}, "x-forwarded-for", "[2001:db8:9:9::1]:80"),
		"::ffff:192.0.2.9":  from(t, bufAddr{}, "x-forwarded-for", "::ffff:192.0.2.9"),
		"nowhere":           from(t, bufAddr{}, "x-forwarded-for", "192.0.2.1, nowhere"),
	} {
		require.Equal(t, want, SourceAddress(ctx))
	}
	require.Empty(t, SourceAddress(from(t, bufAddr{})))
}

// Logins beyond the free failures wait without holding a place among the hashes, and those that
// were already in the queue when others failed wait as well.
func TestAFloodOfWrongPasswordsHoldsNoHashSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		g := newGuard(t, n)
		populate(t, g)
		ctx, cancel := context.WithCancel(t.Context())
		var failed, refused atomic.Int32
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				_, _, err := g.Authenticate(ctx, "ann", "wrong", g.IssueToken)
				switch {
				case errors.Is(err, etcdauth.ErrAuthFailed):
					failed.Add(1)
				case errors.Is(err, mvcc.ErrTooManyRequests):
					refused.Add(1)
				case !errors.Is(err, context.Canceled):
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		require.LessOrEqual(t, failed.Load(), int32(loginsFree+cap(g.hashing.slots)))
		require.GreaterOrEqual(t, refused.Load(), int32(100-loginsFree-cap(g.hashing.slots)-int(maxLoginDelay/loginInterval)))
		require.Empty(t, g.hashing.slots, "a delayed login holds no slot")
		require.Empty(t, g.hashing.waiting)
		require.EqualValues(t, refused.Load(), testutil.ToFloat64(g.logins.WithLabelValues("refused")))

		_, _, err := g.Authenticate(from(t, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}), "ann", "annpw", g.IssueToken)
		require.NoError(t, err, "another source logs in at once")
		cancel()
		wg.Wait()
	})
}

// A client needs no credentials to have a failed login logged, and chooses the name in it.
func TestTheNameInTheLogOfAFailedLoginIsBounded(t *testing.T) {
	g := newGuard(t, newNode(t))
	populate(t, g)
	var log bytes.Buffer
	g.log = slog.New(slog.NewTextHandler(&log, nil))
	for _, name := range []string{"bob", strings.Repeat("n", 1<<20)} {
		log.Reset()
		_, _, err := g.Authenticate(t.Context(), name, "wrong", g.IssueToken)
		require.ErrorIs(t, err, etcdauth.ErrAuthFailed)
		require.Contains(t, log.String(), "user="+name[:min(len(name), maxLoggedName)]+" ")
		require.Less(t, log.Len(), 2*maxLoggedName)
	}
}

func TestAPasswordHashOfAHighCostIsNotChecked(t *testing.T) {
	n := newNode(t)
	g := newGuard(t, n)
	populate(t, g)
	const costly = "$2a$31$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"
	require.ErrorIs(t, CheckStoredPassword([]byte(costly), MaxStoredCost(4)), ErrPasswordTooCostly)
	require.NoError(t, CheckStoredPassword([]byte("no hash"), MaxStoredCost(4)))
	encoded := base64.StdEncoding.EncodeToString([]byte(costly))
	for _, apply := range []func(etcdauth.AuthStore) error{
		func(s etcdauth.AuthStore) error {
			_, err := s.UserAdd(&pb.AuthUserAddRequest{Name: "bob", HashedPassword: encoded})
			return err
		},
		func(s etcdauth.AuthStore) error {
			_, err := s.UserChangePassword(&pb.AuthUserChangePasswordRequest{Name: "ann", HashedPassword: encoded})
			return err
		},
	} {
		_, err := g.Change(as(t, g, "root"), apply)
		require.ErrorIs(t, err, ErrPasswordTooCostly)
	}

	// A row that came into the table another way: the login ends at once, and the other rules hold.
	scratch := g.view(n.AuthRows()).store.writable(31)
	u := scratch.UnsafeGetUser("ann")
	u.Password = []byte(costly)
	raw := scratch.encode(u)
	_, err := n.ChangeAuth(t.Context(), auth.System, func(rows *auth.Rows) (*auth.Change, error) {
		return &auth.Change{Enabled: true, Revision: rows.Revision + 1, Users: map[string][]byte{"ann": raw}}, nil
	})
	require.NoError(t, err)
	_, _, err = g.Authenticate(t.Context(), "ann", "annpw", g.IssueToken)
	require.ErrorIs(t, err, etcdauth.ErrAuthFailed)
	g.mustChange(t, as(t, g, "root"), func(s etcdauth.AuthStore) error {
		_, err := s.UserRevokeRole(&pb.AuthUserRevokeRoleRequest{Name: "ann", Role: "a"})
		return err
	})
	g.mustChange(t, as(t, g, "root"), func(s etcdauth.AuthStore) error {
		hash, err := g.HashPassword(t.Context(), "new")
		require.NoError(t, err)
		_, err = s.UserChangePassword(&pb.AuthUserChangePasswordRequest{Name: "ann", HashedPassword: hash})
		return err
	})
	_, _, err = g.Authenticate(t.Context(), "ann", "new", g.IssueToken)
	require.NoError(t, err)
}
