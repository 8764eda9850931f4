package auth

import (
	"errors"
	"reflect"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

func TestLoadReadsRowsOfOneVersion(t *testing.T) {
	store := newTable(t)
	c := &commits{table: store, users: NewUsers(store)}
	must := func(change Change) {
		t.Helper()
		if err := c.run(t, func(tx Tx) error {
			return Apply(tx, func(*Rows) (*Change, error) { return &change, nil })
		}); err != nil {
			t.Fatal(err)
		}
	}
	must(Change{Users: map[string][]byte{"a": []byte("1")}})
	reads := 0
	store.reading = func() {
		if reads++; reads == 2 { // users are read, roles are not
			must(Change{Users: map[string][]byte{"a": nil}, Roles: map[string][]byte{"r": []byte("1")}})
		}
	}
	loaded := NewUsers(store)
	rows, err := loaded.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := c.users.Rows(); !reflect.DeepEqual(rows, want) || reads != 6 {
		t.Fatalf("after %d reads %+v, want %+v", reads, rows, want)
	}
	if again, err := loaded.Load(t.Context()); err != nil || again != rows || reads != 6 {
		t.Fatalf("loaded again after %d reads, %v", reads, err)
	}
}

func TestRaiseKeepsNewerRows(t *testing.T) {
	u := NewUsers(newTable(t))
	first := u.Rows().With(&Change{})
	second := first.With(&Change{})
	if got := u.Raise(second); got != second {
		t.Errorf("raised to version %d", got.Version)
	}
	if got := u.Raise(first); got != second || u.Rows() != second {
		t.Errorf("version %d replaced version 2", got.Version)
	}
}

func TestApplyRemovesRevokedTokens(t *testing.T) {
	store := newTable(t)
	c := &commits{table: store, users: NewUsers(store)}
	tokens, err := LoadTokens(t.Context(), store, 0)
	if err != nil {
		t.Fatal(err)
	}
	token := c.issue(t, tokens, "abc")
	h := coder.HashToken(token)
	refused := errors.New("refused")
	for _, change := range []func(*Rows) (*Change, error){
		func(*Rows) (*Change, error) { return nil, refused },
		func(*Rows) (*Change, error) { return nil, nil },
	} {
		if err := c.run(t, func(tx Tx) error { return Apply(tx, change) }); err != nil && !errors.Is(err, refused) {
			t.Fatal(err)
		}
		if rows := c.users.Rows(); rows.Version != 0 {
			t.Fatalf("a change that is refused or empty made version %d", rows.Version)
		}
	}
	if err := c.run(t, func(tx Tx) error {
		return Apply(tx, func(*Rows) (*Change, error) { return &Change{Revoked: map[string][]byte{string(h[:]): {1}}}, nil })
	}); err != nil {
		t.Fatal(err)
	}
	if _, found, err := LookupToken(t.Context(), store, h); err != nil || found {
		t.Errorf("the row of a revoked token: %t, %v", found, err)
	}
	if rows := c.users.Rows(); rows.Version != 1 || len(rows.Revoked) != 1 {
		t.Errorf("%+v", rows)
	}
}
