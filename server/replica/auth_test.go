package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// setUser gives a user a value; an empty one removes it.
func setUser(name, value string) func(*auth.Rows) (*auth.Change, error) {
	return func(rows *auth.Rows) (*auth.Change, error) {
		users := map[string][]byte{name: []byte(value)}
		if value == "" {
			users[name] = nil
		}
		return &auth.Change{Enabled: rows.Enabled, Revision: rows.Revision + 1, Users: users}, nil
	}
}

func mustChange(t testing.TB, b *Replica, change func(*auth.Rows) (*auth.Change, error)) {
	t.Helper()
	if _, err := b.Auth.Change(t.Context(), auth.System, change); err != nil {
		t.Fatal(err)
	}
}

func enable(on bool) func(*auth.Rows) (*auth.Change, error) {
	return func(rows *auth.Rows) (*auth.Change, error) {
		return &auth.Change{Enabled: on, Revision: rows.Revision}, nil
	}
}

func describeAuth(r *auth.Rows) string {
	return fmt.Sprintf("%+v %s %s", r.AuthSettings, r.Users, r.Roles)
}

func TestAuthChangesCommitWithoutRevision(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	mustTxn(t, b, put("k", "v"))
	rev, sequence := b.Revision(), b.Status().Sequence
	mustChange(t, b, setUser("a", "1"))
	mustChange(t, b, setUser("b%$\x00", "2"))
	mustChange(t, b, func(*auth.Rows) (*auth.Change, error) {
		return &auth.Change{Revision: 7, Roles: map[string][]byte{"r": {}, "": []byte("nameless")}}, nil
	})
	mustChange(t, b, setUser("a", ""))
	mustChange(t, b, enable(true))
	mustChange(t, b, enable(false))
	mustChange(t, b, enable(true))
	if b.Revision() != rev || b.Status().Sequence != sequence+7 {
		t.Fatalf("revision %d, sequence %d; they were %d and %d", b.Revision(), b.Status().Sequence, rev, sequence)
	}
	want := "{Version:7 Enabled:true Revision:8 Epoch:1} map[b%$\x00:2] map[:nameless r:]"
	if got := describeAuth(b.Auth.Rows()); got != want {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	closeReplica(t, b)
	if got := describeAuth(open(t, store, nil).Auth.Rows()); got != want {
		t.Fatalf("in the table %q\nwant         %q", got, want)
	}
}

func TestRefusedOrEmptyAuthChangeCommitsNothing(t *testing.T) {
	b := open(t, newStore(t), nil)
	before := b.Status().Sequence
	refused := errors.New("refused")
	if _, err := b.Auth.Change(t.Context(), auth.System,
		func(*auth.Rows) (*auth.Change, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	mustChange(t, b, func(*auth.Rows) (*auth.Change, error) { return nil, nil })
	if got := b.Status().Sequence; got != before || b.Auth.Rows().Version != 0 {
		t.Fatalf("sequence %d, was %d; version %d", got, before, b.Auth.Rows().Version)
	}
}

// changeAuth is a command that changes users and roles.
func changeAuth(change func(*auth.Rows) (*auth.Change, error)) write.Command {
	return write.Func(func(_ context.Context, tx *write.Tx) error { return auth.Apply(tx, change) })
}

// runPermitted executes commands together, those of clients with permit.
func runPermitted(t *testing.T, l *leader, permit auth.Permit, commands ...write.Command) []error {
	t.Helper()
	requests := make([]write.Request, len(commands))
	for i, c := range commands {
		requests[i] = write.Request{As: permit, Command: c}
		if _, ok := c.(write.Func); ok {
			requests[i].As = auth.System
		}
	}
	return l.pipeline.ExecuteBatch(t.Context(), requests...)
}

// A write is judged by what stands before it in the pipeline, whether that is
// committed with it or before.
func TestPermitSeesEarlierAuthChanges(t *testing.T) {
	l := idle(t)
	denied := errors.New("denied")
	permit := auth.NewPermit(func(_ context.Context, at auth.View) error {
		if at.AuthRows().Users["me"] == nil {
			return denied
		}
		return nil
	})
	outcomes := runPermitted(t, l, permit,
		write.NewTxnCommand(put("a", "1")),
		changeAuth(setUser("me", "x")),
		write.NewTxnCommand(put("b", "1")),
		changeAuth(setUser("me", "")),
		write.NewTxnCommand(put("c", "1")),
	)
	for i, err := range outcomes {
		if want := i == 0 || i == 4; want != errors.Is(err, denied) || !want && err != nil {
			t.Fatalf("outcomes: %v", outcomes)
		}
	}
	if res := mustRange(t, l.replica, &mvcc.RangeRequest{KeyRange: all()}); res.Count != 1 ||
		string(res.Records[0].Key) != "b" {
		t.Fatalf("in the store: %v", rangeAnswer(res))
	}
}

func TestPermitIsCheckedAtReadRevision(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustTxn(t, b, put("k", "v"))
	denied := errors.New("denied")
	asked := 0
	permit := auth.NewPermit(func(context.Context, auth.View) error { asked++; return denied })
	kr := mvcc.KeyRange{Key: []byte("k")}
	for name, read := range map[string]func() error{
		"range": func() error {
			_, err := b.Reader.Range(t.Context(), permit, &mvcc.RangeRequest{KeyRange: kr}, true)
			return err
		},
		"serializable": func() error {
			_, err := b.Reader.Range(t.Context(), permit, &mvcc.RangeRequest{KeyRange: kr}, false)
			return err
		},
		"stream": func() error {
			return b.Reader.RangeStream(t.Context(), permit, &mvcc.RangeRequest{KeyRange: kr}, true, 1,
				func(*mvcc.RangeResult, bool) error { t.Error("sent"); return nil })
		},
		"txn": func() error {
			_, err := b.Txn(t.Context(), permit, &mvcc.Txn{Then: []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: kr}}}}, true)
			return err
		},
		"write": func() error { _, err := b.Txn(t.Context(), permit, put("k", "w"), true); return err },
		"lease": func() error { _, err := lessor(t, b).Revoke(t.Context(), permit, 5); return err },
	} {
		before := asked
		if err := read(); !errors.Is(err, denied) || asked == before {
			t.Errorf("%s: asked %d times, %v", name, asked-before, err)
		}
	}
	if got := b.Revision(); got != 2 {
		t.Fatalf("revision %d: something was written", got)
	}
}

func TestFollowerLoadsReportedAuthVersion(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	lead, f := p.nodes[0], p.nodes[1]
	defer func() {
		if err := p.resign(0); err != nil {
			t.Error(err)
		}
	}()
	mustChange(t, lead, setUser("a", "1"))
	if f.Auth.Rows().Version != 0 {
		t.Fatal("nobody has told it")
	}
	seen := ""
	permit := auth.NewPermit(func(_ context.Context, at auth.View) error {
		seen = describeAuth(at.AuthRows())
		return nil
	})
	if _, err := f.Reader.Range(t.Context(), permit, &mvcc.RangeRequest{KeyRange: all()}, true); err != nil {
		t.Fatal(err)
	}
	if want := describeAuth(lead.Auth.Rows()); seen != want {
		t.Fatalf("a linearizable read was judged by %s, want %s", seen, want)
	}
	mustChange(t, lead, setUser("a", ""))
	if err := f.Auth.LoadVersion(t.Context(), lead.Auth.Rows().Version); err != nil || len(f.Auth.Rows().Users) != 0 {
		t.Fatalf("%s, %v", describeAuth(f.Auth.Rows()), err)
	}
	if err := f.Auth.LoadVersion(t.Context(), 99); err == nil {
		t.Fatal("a version that is not in the table counts as known")
	}
	mustChange(t, lead, setUser("b", "1"))
	if _, err := f.RefreshState(t.Context()); err != nil || string(f.Auth.Rows().Users["b"]) != "1" {
		t.Fatalf("%s, %v", describeAuth(f.Auth.Rows()), err)
	}
	mustChange(t, lead, setUser("c", "1"))
	if rows, err := f.Auth.Refresh(t.Context()); err != nil || rows.Version != lead.Auth.Rows().Version {
		t.Fatalf("%v, %v", rows, err)
	}
}

// TestAReplicaOpensWithTheUsersOfItsRevision: what it shows first must not be shown under older permissions.
func TestAReplicaOpensWithTheUsersOfItsRevision(t *testing.T) {
	store := newStore(t)
	lead := open(t, store, func(*Config) {})
	changing := &beforeFence{Store: store, do: sync.OnceFunc(func() {
		mustChange(t, lead, setUser("a", "1"))
		if _, err := lead.Txn(t.Context(), auth.System, put("k", "v"), true); err != nil {
			t.Error(err)
		}
	})}
	b, err := OpenFollower(t.Context(), changing, testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer closeReplica(t, b)
	if b.Revision() != lead.Revision() || b.Auth.Rows().Version != lead.Auth.Rows().Version {
		t.Errorf("it shows revision %d and users of version %d, the leader %d and %d", b.Revision(), b.Auth.Rows().Version,
			lead.Revision(), lead.Auth.Rows().Version)
	}
}

// beforeFence is a store that calls do before the fence row is read.
type beforeFence struct {
	sqlstore.Store
	do func()
}

func (s *beforeFence) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.Equal(key, coder.FenceKey()) {
		s.do()
	}
	return s.Store.Get(ctx, key)
}

func TestTokenRowsAreRemovedAfterTTL(t *testing.T) {
	store := newStore(t)
	var now coder.Token
	describe := func(*auth.Rows) (coder.Token, error) { return now, nil }
	short := func(c *Config) { c.TokenTTL = 50 * time.Millisecond }
	b := open(t, store, short)
	now = coder.Token{User: "u", Epoch: 3, Password: 9}
	before, last := b.Revision(), b.Status().Sequence
	token, rev, err := b.Auth.IssueToken(t.Context(), auth.System, "abc", describe)
	if err != nil || rev != before || b.Revision() != before {
		t.Fatalf("%d, %v", rev, err)
	}
	if want := fmt.Sprintf("abc.%d", last+1); token != want {
		t.Fatalf("token %s, want %s: the number of its commit", token, want)
	}
	gone := func(b *Replica, token string) bool {
		_, found, err := b.Auth.LookupToken(t.Context(), coder.HashToken(token))
		if err != nil {
			t.Fatal(err)
		}
		return !found
	}
	eventually.True(t, "the token is gone", func() bool { return gone(b, token) })
	closeReplica(t, b)

	b = open(t, store, nil)
	token, _, err = b.Auth.IssueToken(t.Context(), auth.System, "abc", describe)
	if err != nil {
		t.Fatal(err)
	}
	if got, found, err := b.Auth.LookupToken(t.Context(), coder.HashToken(token)); err != nil || !found || got != now {
		t.Fatalf("%+v, %v, %v", got, found, err)
	}
	refused := errors.New("refused")
	if _, _, err := b.Auth.IssueToken(t.Context(), auth.System, "abc",
		func(*auth.Rows) (coder.Token, error) { return now, refused }); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	closeReplica(t, b)
	b = open(t, store, short) // a new leader knows of the token
	eventually.True(t, "the token is gone", func() bool { return gone(b, token) })
}
