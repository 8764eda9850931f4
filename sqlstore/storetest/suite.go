// Package storetest is the conformance suite of sqlstore.Store. Every engine
// runs it; so does the in-memory reference. A test is named after the obligation
// of kvstorage.go it checks, and fails on an engine that does not meet it.
//
// Start reading at Run in run.go; the other files hold the tests by subject.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Opener returns an empty store. The suite closes it; what else the store
// needs, such as its database, the opener releases through t.Cleanup.
type Opener func(t testing.TB) sqlstore.Store

// commit commits what fill adds to a batch and fails the test unless it is there.
func commit(t testing.TB, s sqlstore.Store, fill func(sqlstore.BatchWrite)) {
	t.Helper()
	require.NoError(t, tryCommit(s, fill), "Commit")
}

func tryCommit(s sqlstore.Store, fill func(sqlstore.BatchWrite)) error {
	b := s.BeginBatchWrite()
	fill(b)
	return b.Commit(context.Background())
}

// wantConflict fails the test unless err is a *Conflict. If keys are given, the key that
// it names, if any, is one of them.
func wantConflict(t testing.TB, err error, keys ...[]byte) {
	t.Helper()
	var c *sqlstore.Conflict
	require.ErrorAs(t, err, &c)
	if c.Key != nil && len(keys) > 0 {
		require.Contains(t, keys, c.Key, "a row that holds what was expected")
	}
}

// all reads the rows of r and fails the test on an error.
func all(t testing.TB, s sqlstore.Store, r sqlstore.Range) []sqlstore.Row {
	t.Helper()
	var rows []sqlstore.Row
	for row, err := range s.Iter(context.Background(), r) {
		require.NoError(t, err, "Iter")
		rows = append(rows, row)
	}
	return rows
}

// whole is the range of every key the suite writes.
func whole() sqlstore.Range {
	return sqlstore.Range{Start: []byte{}, End: bytes.Repeat([]byte{0xff}, 64)}
}

func sameRows(t testing.TB, what string, got, want []sqlstore.Row) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i].Key, want[i].Key) {
			t.Fatalf("%s: row %d has key %s, want %s", what, i, short(got[i].Key), short(want[i].Key))
		}
		if !bytes.Equal(got[i].Value, want[i].Value) || (got[i].Value == nil) != (want[i].Value == nil) {
			t.Fatalf("%s: row %d (%s) has value %s, want %s", what, i, short(got[i].Key), short(got[i].Value),
				short(want[i].Value))
		}
	}
}

func short(b []byte) string {
	if b == nil {
		return "nil"
	}
	if len(b) > 48 {
		return fmt.Sprintf("%x… (%d bytes)", b[:48], len(b))
	}
	return fmt.Sprintf("%x", b)
}

// mustHold fails the test unless key holds want; a nil want is a missing row.
func mustHold(t testing.TB, s sqlstore.Store, key, want []byte) {
	t.Helper()
	got, err := s.Get(context.Background(), key)
	if want == nil {
		require.ErrorIs(t, err, sqlstore.ErrKeyNotFound, short(key))
		return
	}
	require.NoError(t, err, short(key))
	if got == nil || !bytes.Equal(got, want) {
		t.Fatalf("Get(%s) = %s, want %s", short(key), short(got), short(want))
	}
}

func randomBytes(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}
