package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// setUser gives a user a value; an empty one removes it.
func setUser(name, value string) func(*AuthRows) (*AuthChange, error) {
	return func(rows *AuthRows) (*AuthChange, error) {
		users := map[string][]byte{name: []byte(value)}
		if value == "" {
			users[name] = nil
		}
		return &AuthChange{Enabled: rows.Enabled, Revision: rows.Revision + 1, Users: users}, nil
	}
}

func mustChange(t testing.TB, b *Backend, change func(*AuthRows) (*AuthChange, error)) {
	t.Helper()
	if _, err := b.ChangeAuth(t.Context(), change); err != nil {
		t.Fatal(err)
	}
}

func enable(on bool) func(*AuthRows) (*AuthChange, error) {
	return func(rows *AuthRows) (*AuthChange, error) {
		return &AuthChange{Enabled: on, Revision: rows.Revision}, nil
	}
}

func describeAuth(r *AuthRows) string {
	return fmt.Sprintf("%+v %s %s", r.AuthSettings, r.Users, r.Roles)
}

func TestUsersAreCommitsButNoRevisions(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	mustTxn(t, b, put("k", "v"))
	rev, sequence := b.Revision(), b.Status().Sequence
	mustChange(t, b, setUser("a", "1"))
	mustChange(t, b, setUser("b%$\x00", "2"))
	mustChange(t, b, func(*AuthRows) (*AuthChange, error) {
		return &AuthChange{Revision: 7, Roles: map[string][]byte{"r": {}, "": []byte("nameless")}}, nil
	})
	mustChange(t, b, setUser("a", ""))
	mustChange(t, b, enable(true))
	mustChange(t, b, enable(false))
	mustChange(t, b, enable(true))
	if b.Revision() != rev || b.Status().Sequence != sequence+7 {
		t.Fatalf("revision %d, sequence %d; they were %d and %d", b.Revision(), b.Status().Sequence, rev, sequence)
	}
	want := "{Version:7 Enabled:true Revision:8 Epoch:1} map[b%$\x00:2] map[:nameless r:]"
	if got := describeAuth(b.AuthRows()); got != want {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	closeBackend(t, b)
	if got := describeAuth(open(t, store, nil).AuthRows()); got != want {
		t.Fatalf("in the table %q\nwant         %q", got, want)
	}
}

func TestAChangeThatIsRefusedOrChangesNothingIsNoCommit(t *testing.T) {
	b := open(t, newStore(t), nil)
	before := b.Status().Sequence
	refused := errors.New("refused")
	if _, err := b.ChangeAuth(t.Context(), func(*AuthRows) (*AuthChange, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	mustChange(t, b, func(*AuthRows) (*AuthChange, error) { return nil, nil })
	if got := b.Status().Sequence; got != before || b.AuthRows().Version != 0 {
		t.Fatalf("sequence %d, was %d; version %d", got, before, b.AuthRows().Version)
	}
}

// runPermitted is runTogether for commands that permits judge.
func runPermitted(t *testing.T, l *leader, permit Permit, commands ...command) []error {
	t.Helper()
	requests := make([]*request, len(commands))
	for i, c := range commands {
		requests[i] = &request{cmd: c, done: make(chan error, 1)}
		if _, ok := c.(*authCommand); !ok {
			requests[i].permit = permit
		}
	}
	for rest := requests; len(rest) > 0; {
		rest = l.runBatch(t.Context(), rest)
	}
	outcomes := make([]error, len(requests))
	for i, r := range requests {
		outcomes[i] = <-r.done
	}
	return outcomes
}

// A write is judged by what stands before it in the pipeline, whether that is
// committed with it or before.
func TestPermitsSeeTheChangesBefore(t *testing.T) {
	l := idle(t)
	denied := errors.New("denied")
	permit := func(_ context.Context, at AuthView) error {
		if at.AuthRows().Users["me"] == nil {
			return denied
		}
		return nil
	}
	outcomes := runPermitted(t, l, permit,
		newTxnCommand(put("a", "1")),
		&authCommand{change: setUser("me", "x")},
		newTxnCommand(put("b", "1")),
		&authCommand{change: setUser("me", "")},
		newTxnCommand(put("c", "1")),
	)
	for i, err := range outcomes {
		if want := i == 0 || i == 4; want != errors.Is(err, denied) || !want && err != nil {
			t.Fatalf("outcomes: %v", outcomes)
		}
	}
	if res := mustRange(t, l.Backend, &RangeRequest{KeyRange: all()}); res.Count != 1 || string(res.Records[0].Key) != "b" {
		t.Fatalf("in the store: %s", describe(res))
	}
}

func TestPermitsSeeTheKeysOfALease(t *testing.T) {
	l := idle(t)
	var seen []string
	permit := func(ctx context.Context, at AuthView) error {
		var keys []string
		err := at.MayWriteLease(ctx, 5, "me", func(key []byte) error {
			keys = append(keys, string(key))
			return nil
		})
		slices.Sort(keys)
		seen = append(seen, fmt.Sprintf("%s", keys))
		return err
	}
	if err := l.reach(t.Context(), verdictOf{5, "me"}, l.AuthRows().Version, func([]byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i, err := range runPermitted(t, l, permit,
		&grantCommand{l: l, row: coder.Lease{ID: 5, TTL: 60}},
		newTxnCommand(putLeased("b", 5)),
		newTxnCommand(putLeased("a", 5)),
		newTxnCommand(del("b")),
		revokeOf(t, l, 5),
		newTxnCommand(put("c", "1")),
	) {
		if err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
	}
	if got, want := fmt.Sprint(seen), "[[] [] [b] [a b] [a] []]"; got != want {
		t.Fatalf("seen %s, want %s", got, want)
	}
}

func TestReadsAreJudgedAtTheirFrontier(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustTxn(t, b, put("k", "v"))
	denied := errors.New("denied")
	asked := 0
	ctx := WithPermit(t.Context(), func(context.Context, AuthView) error { asked++; return denied })
	kr := KeyRange{Key: []byte("k")}
	for name, read := range map[string]func() error{
		"range":        func() error { _, err := b.Range(ctx, &RangeRequest{KeyRange: kr}, true); return err },
		"serializable": func() error { _, err := b.Range(ctx, &RangeRequest{KeyRange: kr}, false); return err },
		"stream": func() error {
			return b.RangeStream(ctx, &RangeRequest{KeyRange: kr}, true, 1, func(*RangeResult, bool) error { t.Error("sent"); return nil })
		},
		"txn": func() error {
			_, err := b.Txn(ctx, &Txn{Then: []Op{{Range: &RangeRequest{KeyRange: kr}}}}, true)
			return err
		},
		"write": func() error { _, err := b.Txn(ctx, put("k", "w"), true); return err },
		"lease": func() error { _, err := b.LeaseRevoke(ctx, 5); return err },
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

// interleaved lets a test change the table between two reads of a load.
type interleaved struct {
	sqlstore.Store
	onIter func()
}

func (s *interleaved) Iter(ctx context.Context, r sqlstore.Range) sqlstore.Iter {
	if s.onIter != nil {
		s.onIter()
	}
	return s.Store.Iter(ctx, r)
}

func TestUsersAndRolesAreReadAtOneVersion(t *testing.T) {
	store := newStore(t)
	lead := open(t, store, nil)
	mustChange(t, lead, setUser("a", "1"))
	reads := 0
	s := newAuthState(&interleaved{Store: store, onIter: func() {
		if reads++; reads == 2 { // users are read, roles are not
			mustChange(t, lead, func(rows *AuthRows) (*AuthChange, error) {
				return &AuthChange{Revision: rows.Revision, Users: map[string][]byte{"a": nil}, Roles: map[string][]byte{"r": []byte("1")}}, nil
			})
		}
	}}, lead)
	defer s.loads.close()
	rows, err := s.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describeAuth(rows), describeAuth(lead.AuthRows()); got != want || reads != 6 {
		t.Fatalf("after %d reads %s, want %s", reads, got, want)
	}
	if again, err := s.load(t.Context()); err != nil || again != rows || reads != 6 {
		t.Fatalf("loaded again after %d reads, %v", reads, err)
	}
}

func TestFollowersObeyWhatTheLeaderHasTold(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	lead, f := p.nodes[0], p.nodes[1]
	defer func() {
		if err := p.resign(0); err != nil {
			t.Error(err)
		}
	}()
	mustChange(t, lead, setUser("a", "1"))
	if f.AuthRows().Version != 0 {
		t.Fatal("nobody has told it")
	}
	seen := ""
	ctx := WithPermit(t.Context(), func(_ context.Context, at AuthView) error { seen = describeAuth(at.AuthRows()); return nil })
	if _, err := f.Range(ctx, &RangeRequest{KeyRange: all()}, true); err != nil {
		t.Fatal(err)
	}
	if want := describeAuth(lead.AuthRows()); seen != want {
		t.Fatalf("a linearizable read was judged by %s, want %s", seen, want)
	}
	mustChange(t, lead, setUser("a", ""))
	if err := f.LoadAuth(t.Context(), lead.AuthRows().Version); err != nil || len(f.AuthRows().Users) != 0 {
		t.Fatalf("%s, %v", describeAuth(f.AuthRows()), err)
	}
	if err := f.LoadAuth(t.Context(), 99); err == nil {
		t.Fatal("a version that is not in the table counts as known")
	}
	mustChange(t, lead, setUser("b", "1"))
	if _, err := f.Check(t.Context()); err != nil || string(f.AuthRows().Users["b"]) != "1" {
		t.Fatalf("%s, %v", describeAuth(f.AuthRows()), err)
	}
	mustChange(t, lead, setUser("c", "1"))
	if rows, err := f.RefreshAuth(t.Context()); err != nil || rows.Version != lead.AuthRows().Version {
		t.Fatalf("%v, %v", rows, err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

func TestTokensEndWithTheirTime(t *testing.T) {
	store := newStore(t)
	var now coder.Token
	describe := func(*AuthRows) (coder.Token, error) { return now, nil }
	short := func(c *Config) { c.TokenTTL = 50 * time.Millisecond }
	b := open(t, store, short)
	now = coder.Token{User: "u", Epoch: 3, Password: 9}
	before := b.Revision()
	token, rev, err := b.IssueToken(t.Context(), "abc", describe)
	if err != nil || rev != before || b.Revision() != before {
		t.Fatalf("%d, %v", rev, err)
	}
	if want := fmt.Sprintf("abc.%d", b.Status().Sequence); token != want {
		t.Fatalf("token %s, want %s: the number of its commit", token, want)
	}
	gone := func(b *Backend, token string) bool {
		_, found, err := b.LookupToken(t.Context(), coder.HashToken(token))
		if err != nil {
			t.Fatal(err)
		}
		return !found
	}
	eventually(t, "the token is gone", func() bool { return gone(b, token) })
	eventually(t, "the token is forgotten", func() bool { return len(b.leading.Load().tokens.over(time.Now().Add(time.Hour))) == 0 })
	closeBackend(t, b)

	b = open(t, store, nil)
	token, _, err = b.IssueToken(t.Context(), "abc", describe)
	if err != nil {
		t.Fatal(err)
	}
	if got, found, err := b.LookupToken(t.Context(), coder.HashToken(token)); err != nil || !found || got != now {
		t.Fatalf("%+v, %v, %v", got, found, err)
	}
	refused := errors.New("refused")
	if _, _, err := b.IssueToken(t.Context(), "abc", func(*AuthRows) (coder.Token, error) { return now, refused }); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	closeBackend(t, b)
	b = open(t, store, short) // a new leader knows of the token
	eventually(t, "the token is gone", func() bool { return gone(b, token) })
}
