// Package storetest is the conformance suite of sqlstore.Store. Every engine
// runs it; so does the in-memory reference. A test is named after the obligation
// of kvstorage.go it checks, and fails on an engine that does not meet it.
//
// Start reading at Run; the other files hold the tests by subject.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Opener returns an empty store. The suite closes it; what else the store
// needs, such as its database, the opener releases through t.Cleanup.
type Opener func(t testing.TB) sqlstore.Store

// Run runs the whole suite as subtests of t, each on a store of its own.
func Run(t *testing.T, open Opener) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, sqlstore.Store)
	}{
		{"KeysAreOrderedBytewise", testOrder},
		{"ValuesAreBinary", testBinaryValues},
		{"IterCoversTheRange", testIterRanges},
		{"IterClosesAnyTime", testIterClose},
		{"SlicesBelongToTheCaller", testOwnership},
		{"GetAndMultiGet", testGet},
		{"MultiGetOfThousands", testMultiGetMany},
		{"MultiGetIsOneSnapshot", testMultiGetSnapshot},
		{"ListIsOneSnapshot", testListSnapshot},
		{"ListPages", testListPages},
		{"ListMissingVersion", testListMissingVersion},
		{"CountJudgesRevisionAndTombstone", testCount},
		{"SkipFindsTheRowBehind", testSkip},
		{"FloorOfManyRanges", testFloor},
		{"ChangesOnPlainRows", testChangesPlain},
		{"ChangesOnMarkedRows", testChangesMarked},
		{"CompareAndSwapOnMissingMarkedRow", testMissingMarkedRow},
		{"MarksOfZeroAreValues", testZeroMarks},
		{"ConflictLeavesNothing", testAtomicConflict},
		{"PipelineShapedBatches", testPipelineBatches},
		{"BatchMisuseIsRefused", testBatchMisuse},
		{"LargeValues", testLargeValues},
		{"BigBatches", testBigBatches},
		{"TooLargeIsRefused", testTooLarge},
		{"OneOfManySwapsWins", testConcurrentCAS},
		{"SwapsAddUp", testConcurrentCounter},
		{"CommittedIsVisible", testReadYourCommit},
		{"ContextEndsCalls", testContext},
		{"CloseEndsEverything", testClose},
		{"PartitionsCoverTheRange", testPartitions},
		{"SizeAndDefragment", testSize},
		{"TimestampIsATime", testTimestamp},
		{"RandomHistories", testHistory},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := open(t)
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			test.run(t, store)
		})
	}
}

// commit commits what fill adds to a batch and fails the test unless it is there.
func commit(t testing.TB, s sqlstore.Store, fill func(sqlstore.BatchWrite)) {
	t.Helper()
	if err := tryCommit(s, fill); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func tryCommit(s sqlstore.Store, fill func(sqlstore.BatchWrite)) error {
	b := s.BeginBatchWrite()
	fill(b)
	return b.Commit(context.Background())
}

// wantConflict fails the test unless err is a *Conflict; its key, if it names
// one, is one of keys.
func wantConflict(t testing.TB, err error, keys ...[]byte) {
	t.Helper()
	var c *sqlstore.Conflict
	if !errors.As(err, &c) {
		t.Fatalf("error %v, want a *Conflict", err)
	}
	if c.Key == nil {
		return
	}
	for _, key := range keys {
		if bytes.Equal(c.Key, key) {
			return
		}
	}
	t.Fatalf("conflict names row %x, which holds what was expected", c.Key)
}

// all reads the rows of r and fails the test on an error.
func all(t testing.TB, s sqlstore.Store, r sqlstore.Range) []sqlstore.Row {
	t.Helper()
	it := s.Iter(context.Background(), r)
	var rows []sqlstore.Row
	for it.Next() {
		rows = append(rows, sqlstore.Row{Key: it.Key(), Value: it.Value()})
	}
	if err := it.Err(); err != nil {
		t.Fatalf("Iter: %v", err)
	}
	if err := it.Close(); err != nil {
		t.Fatalf("Iter.Close: %v", err)
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
			t.Fatalf("%s: row %d (%s) has value %s, want %s", what, i, short(got[i].Key), short(got[i].Value), short(want[i].Value))
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
	switch {
	case want == nil && !errors.Is(err, sqlstore.ErrKeyNotFound):
		t.Fatalf("Get(%s) = %s, %v, want ErrKeyNotFound", short(key), short(got), err)
	case want == nil:
	case err != nil:
		t.Fatalf("Get(%s): %v", short(key), err)
	case got == nil || !bytes.Equal(got, want):
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
