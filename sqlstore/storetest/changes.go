package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// A change is tried on a missing row, on one that holds what it expects, and
// on one that holds something else.
type change struct {
	name string
	do   func(b sqlstore.BatchWrite, key []byte)
	// What the row holds afterwards in each of the three cases: nil is missing,
	// conflict that nothing is written.
	missing, same, other []byte
}

var conflict = []byte("a conflict")

func testChanges(t *testing.T, s sqlstore.Store, prefix string, key func(string) []byte, same, other []byte,
	changes []change) {
	n := 0
	for _, c := range changes {
		for _, state := range []struct {
			name         string
			before, want []byte
		}{{"missing", nil, c.missing}, {"same", same, c.same}, {"other", other, c.other}} {
			// Alone, and with other rows before and after it in the batch.
			for _, company := range []bool{false, true} {
				n++
				k := key(fmt.Sprintf("%s%d", prefix, n))
				before, behind := fmt.Appendf(nil, "%s%d before", prefix, n), fmt.Appendf(nil, "%s%d zz behind", prefix, n)
				if state.before != nil {
					commit(t, s, func(b sqlstore.BatchWrite) { b.Put(k, state.before) })
				}
				err := tryCommit(s, func(b sqlstore.BatchWrite) {
					if company {
						b.PutIfNotExist(before, []byte("x"))
					}
					c.do(b, k)
					if company {
						b.PutIfNotExist(behind, []byte("x"))
					}
				})
				what := fmt.Sprintf("%s on a row that is %s (company %v)", c.name, state.name, company)
				want, beside := state.want, []byte("x")
				if string(state.want) == string(conflict) {
					require.Error(t, err, "%s: committed, want a *Conflict", what)
					wantConflict(t, err, k)
					want, beside = state.before, nil
				} else {
					require.NoError(t, err, what)
				}
				if !company {
					beside = nil
				}
				got, err := s.MultiGet(context.Background(), [][]byte{k, before, behind})
				require.NoError(t, err)
				require.Equal(t, [][]byte{want, beside, beside}, got, "%s: rows (it, before, behind)", what)
			}
		}
	}
}

func testChangesPlain(t *testing.T, s sqlstore.Store) {
	same, other, next := []byte("same"), []byte("other"), []byte("next")
	key := func(name string) []byte { return []byte(name) }
	testChanges(t, s, "plain", key, same, other, []change{
		{"PutIfNotExist", func(b sqlstore.BatchWrite, k []byte) { b.PutIfNotExist(k, next) }, next, conflict, conflict},
		{"CAS", func(b sqlstore.BatchWrite, k []byte) { b.CAS(k, next, same) }, conflict, next, conflict},
		{"Put", func(b sqlstore.BatchWrite, k []byte) { b.Put(k, next) }, next, next, next},
		{"Put of an empty value", func(b sqlstore.BatchWrite, k []byte) { b.Put(k, []byte{}) }, []byte{}, []byte{}, []byte{}},
		{"Del", func(b sqlstore.BatchWrite, k []byte) { b.Del(k) }, nil, nil, nil},
		{"DelCurrent", func(b sqlstore.BatchWrite, k []byte) { b.DelCurrent(k, same) }, nil, nil, other},
	})
	// A comparison that ignored case, trailing blanks or a prefix would match these.
	testChanges(t, s, "exact", key, []byte("abc"), []byte("ABC"), []change{
		{"CAS", func(b sqlstore.BatchWrite, k []byte) { b.CAS(k, next, []byte("abc")) }, conflict, next, conflict},
		{"DelCurrent", func(b sqlstore.BatchWrite, k []byte) { b.DelCurrent(k, []byte("abc")) }, nil, nil, []byte("ABC")},
	})
	testChanges(t, s, "empty", key, []byte{}, []byte{0}, []change{
		{"PutIfNotExist", func(b sqlstore.BatchWrite, k []byte) { b.PutIfNotExist(k, next) }, next, conflict, conflict},
		{"CAS", func(b sqlstore.BatchWrite, k []byte) { b.CAS(k, next, []byte{}) }, conflict, next, conflict},
		{"DelCurrent", func(b sqlstore.BatchWrite, k []byte) { b.DelCurrent(k, []byte{}) }, nil, nil, []byte{0}},
	})
	testChanges(t, s, "blank", key, []byte("abc"), []byte("abc "), []change{
		{"CAS", func(b sqlstore.BatchWrite, k []byte) { b.CAS(k, next, []byte("abc")) }, conflict, next, conflict},
	})
	// A Galera or a Group Replication would not see that another server has changed the row.
	k, beside := []byte("to the same"), []byte("to the same, beside")
	commit(t, s, func(b sqlstore.BatchWrite) { b.Put(k, same) })
	require.ErrorIs(t, tryCommit(s, func(b sqlstore.BatchWrite) { b.Put(beside, next); b.CAS(k, same, same) }),
		sqlstore.ErrSameValue)
	_, err := s.Get(context.Background(), beside)
	require.ErrorIs(t, err, sqlstore.ErrKeyNotFound)
}

func testChangesVersioned(t *testing.T, s sqlstore.Store) {
	same, other := versioned(7, 3, "same"), versioned(8, 3, "other")
	next, created := versioned(9, 7, "next"), versioned(9, 0, "created")
	testChanges(t, s, "versioned", versionedKey, same, other, []change{
		{"PutIfNotExist", func(b sqlstore.BatchWrite, k []byte) { b.PutIfNotExist(k, created) }, created, conflict, conflict},
		// A creation that carries row versions by chance must not swap.
		{"PutIfNotExist with a fitting row version", func(b sqlstore.BatchWrite, k []byte) { b.PutIfNotExist(k, next) }, next,
			conflict, conflict},
		{"CASOrPut", func(b sqlstore.BatchWrite, k []byte) { b.CASOrPut(k, next, same) }, next, next, conflict},
		{"Put", func(b sqlstore.BatchWrite, k []byte) { b.Put(k, next) }, next, next, next},
		{"Del", func(b sqlstore.BatchWrite, k []byte) { b.Del(k) }, nil, nil, nil},
		{"DelCurrent", func(b sqlstore.BatchWrite, k []byte) { b.DelCurrent(k, same) }, nil, nil, other},
	})
	// CAS on rows that are there; what it does on a missing one is a test of its own.
	for i, before := range [][]byte{same, other, []byte("short"), {}} {
		k := versionedKey(fmt.Sprintf("cas%d", i))
		commit(t, s, func(b sqlstore.BatchWrite) { b.Put(k, before) })
		err := tryCommit(s, func(b sqlstore.BatchWrite) { b.CAS(k, next, same) })
		if i == 0 {
			require.NoError(t, err)
			mustHold(t, s, k, next)
			continue
		}
		wantConflict(t, err, k)
		mustHold(t, s, k, before)
	}
}

func testMissingVersionedRow(t *testing.T, s sqlstore.Store) {
	k, beside := versionedKey("gone"), []byte("beside")
	next := versioned(9, 7, "next")
	err := tryCommit(s, func(b sqlstore.BatchWrite) {
		b.CAS(k, next, versioned(7, 3, "old"))
		b.PutIfNotExist(beside, []byte("x"))
	})
	if errors.Is(err, sqlstore.ErrRowMissing) {
		mustHold(t, s, k, next)
		mustHold(t, s, beside, []byte("x"))
		return
	}
	wantConflict(t, err, k)
	mustHold(t, s, k, nil)
	mustHold(t, s, beside, nil)
}

// testMissingFenceRow: a loss of the fence row is noticed whatever else the batch finds.
func testMissingFenceRow(t *testing.T, s sqlstore.Store) {
	fence := func(sequence int64) []byte {
		return coder.EncodeFenceToken(coder.FenceToken{Sequence: sequence, Term: 3, Revision: 5})
	}
	tombstone := coder.EncodeIndex(coder.Index{ModRevision: 5, Tombstone: true})
	again := coder.EncodeIndex(coder.Index{ModRevision: 6, PrevRevision: 5, CreateRevision: 6, Version: 1})
	for _, removed := range []int{0, 1, 3} { // by compaction
		keys := [][]byte{versionedKey("a"), versionedKey("b"), versionedKey("c")}
		reset := func(token []byte) {
			commit(t, s, func(b sqlstore.BatchWrite) {
				if token != nil {
					b.Put(coder.FenceKey(), token)
				} else {
					b.Del(coder.FenceKey())
				}
				for i, k := range keys {
					if i < removed {
						b.Del(k)
					} else {
						b.Put(k, tombstone)
					}
				}
			})
		}
		create := func(b sqlstore.BatchWrite) {
			b.CAS(coder.FenceKey(), fence(8), fence(7))
			for _, k := range keys {
				b.CASOrPut(k, again, tombstone)
			}
		}
		reset(fence(7))
		commit(t, s, create)
		for _, k := range keys {
			mustHold(t, s, k, again)
		}
		reset(nil)
		if err := tryCommit(s, create); !errors.Is(err, sqlstore.ErrRowMissing) {
			wantConflict(t, err, coder.FenceKey())
			mustHold(t, s, coder.FenceKey(), nil)
		}
	}
}

func testZeroRowVersions(t *testing.T, s sqlstore.Store) {
	zero, one := versioned(0, -1, "zero"), versioned(1, 0, "one")
	testChanges(t, s, "zero", versionedKey, zero, versioned(5, 4, "other"), []change{
		{"PutIfNotExist", func(b sqlstore.BatchWrite, k []byte) { b.PutIfNotExist(k, one) }, one, conflict, conflict},
		{"CASOrPut", func(b sqlstore.BatchWrite, k []byte) { b.CASOrPut(k, one, zero) }, one, one, conflict},
	})
	k := versionedKey("zero cas")
	commit(t, s, func(b sqlstore.BatchWrite) { b.Put(k, zero) })
	commit(t, s, func(b sqlstore.BatchWrite) { b.CAS(k, one, zero) })
	mustHold(t, s, k, one)
}

// testTwoSwaps: each of two swaps in a batch is made only if the other one is, also if a row is missing.
func testTwoSwaps(t *testing.T, s sqlstore.Store) {
	type row struct{ key, old, other, next []byte }
	plain := func(key string) row { return row{[]byte(key), []byte("old"), []byte("other"), []byte("next")} }
	lock := row{versionedKey("lock"), versioned(7, 3, "old"), versioned(8, 3, "other"), versioned(9, 7, "next")}
	set := func(r row, value []byte) {
		commit(t, s, func(b sqlstore.BatchWrite) {
			if value == nil {
				b.Del(r.key)
			} else {
				b.Put(r.key, value)
			}
		})
	}
	for _, pair := range [][2]row{{plain("a"), plain("b")}, {plain("b"), plain("a")}, {lock, plain("z")},
		{lock, plain("a")}} {
		for _, first := range [][]byte{pair[0].old, pair[0].other, nil} {
			for _, second := range [][]byte{pair[1].old, pair[1].other, nil} {
				set(pair[0], first)
				set(pair[1], second)
				err := tryCommit(s, func(b sqlstore.BatchWrite) {
					for _, r := range pair {
						b.CAS(r.key, r.next, r.old)
					}
				})
				if bytes.Equal(first, pair[0].old) && bytes.Equal(second, pair[1].old) {
					require.NoError(t, err)
					mustHold(t, s, pair[0].key, pair[0].next)
					mustHold(t, s, pair[1].key, pair[1].next)
					continue
				}
				require.True(t, sqlstore.IsConflict(err), "%v", err)
				mustHold(t, s, pair[0].key, first)
				mustHold(t, s, pair[1].key, second)
			}
		}
	}
}

func testAtomicConflict(t *testing.T, s sqlstore.Store) {
	// Whichever row conflicts, whatever kind the others are, nothing is written.
	prepare := func(id string) {
		commit(t, s, func(b sqlstore.BatchWrite) {
			b.Put(versionedKey(id+"cas"), versioned(1, 0, ""))
			b.Put(versionedKey(id+"casorput"), versioned(1, 0, ""))
			b.Put([]byte(id+"plain cas"), []byte("old"))
			b.Put([]byte(id+"put"), []byte("old"))
			b.Put([]byte(id+"del"), []byte("old"))
			b.Put([]byte(id+"delcurrent"), []byte("old"))
			b.Put([]byte(id+"exists"), []byte("old"))
		})
	}
	for _, marksOnly := range []bool{true, false} {
		for at := range 6 {
			id := fmt.Sprintf("%v/%d/", marksOnly, at)
			prepare(id)
			before := all(t, s, whole())
			bad := []byte(id + "exists")
			err := tryCommit(s, func(b sqlstore.BatchWrite) {
				fail := func(i int) {
					switch {
					case i != at:
					case marksOnly:
						b.PutIfNotExist(bad, []byte("new"))
					default:
						b.CAS(bad, []byte("new"), []byte("expected"))
					}
				}
				fail(0)
				b.CAS(versionedKey(id+"cas"), versioned(2, 1, ""), versioned(1, 0, ""))
				fail(1)
				b.CASOrPut(versionedKey(id+"casorput"), versioned(2, 1, ""), versioned(1, 0, ""))
				fail(2)
				b.PutIfNotExist([]byte(id+"new"), []byte("new"))
				fail(3)
				b.PutIfNotExist([]byte(id+"newer"), []byte("new"))
				fail(4)
				if !marksOnly {
					b.CAS([]byte(id+"plain cas"), []byte("new"), []byte("old"))
					b.Put([]byte(id+"put"), []byte("new"))
					b.Del([]byte(id + "del"))
					b.DelCurrent([]byte(id+"delcurrent"), []byte("old"))
				}
				fail(5)
			})
			wantConflict(t, err, bad)
			sameRows(t, "after a conflict", all(t, s, whole()), before)
		}
	}
}

// testPipelineBatches commits what the write pipeline commits: fence row, log
// row, version rows and index rows of creations, updates and re-creations.
func testPipelineBatches(t *testing.T, s sqlstore.Store) {
	token := coder.FenceToken{Sequence: 1, Term: 1, Revision: 1}
	commit(t, s, func(b sqlstore.BatchWrite) { b.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(token)) })
	key := func(i int) []byte { return fmt.Appendf(nil, "/registry/pods/%03d", i) }
	newest := map[int]coder.Index{}
	batch := func(old, next coder.FenceToken, size int) func(sqlstore.BatchWrite) {
		return func(b sqlstore.BatchWrite) {
			var changes []coder.Change
			for i := range size {
				rev := old.Revision + 1 + int64(i)
				r := &coder.Record{Key: key(i), Value: fmt.Appendf(nil, "at %d", rev), CreateRevision: rev, ModRevision: rev,
					Version: 1}
				b.PutIfNotExist(coder.EncodeVersionKey(r.Key, rev), coder.EncodeVersion(r))
				index := coder.EncodeIndex(indexOf(r, newest[i].ModRevision))
				before := coder.EncodeIndex(newest[i])
				switch {
				case newest[i].ModRevision == 0:
					b.PutIfNotExist(coder.EncodeIndexKey(r.Key), index)
				case i%5 == 0:
					b.CASOrPut(coder.EncodeIndexKey(r.Key), index, before)
				default:
					b.CAS(coder.EncodeIndexKey(r.Key), index, before)
				}
				changes = append(changes, coder.Change{Revision: rev, Key: r.Key, PrevRevision: newest[i].ModRevision})
			}
			for i, row := range coder.EncodeLog(time.Time{}, changes) {
				b.PutIfNotExist(coder.EncodeLogKey(next.Revision, uint16(i+1)), row)
			}
			b.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), coder.EncodeFenceToken(old))
		}
	}
	for round, size := range []int{1, 8, 8, 64, 1, 256, 256, 700} {
		next := coder.FenceToken{Sequence: token.Sequence + 1, Term: token.Term, Revision: token.Revision + int64(size)}
		fill := batch(token, next, size)
		commit(t, s, fill)
		mustHold(t, s, coder.FenceKey(), coder.EncodeFenceToken(next))
		before := all(t, s, whole())
		// The same batch again, as a late packet of a lost attempt would be.
		wantConflict(t, tryCommit(s, fill))
		// A deposed leader: new rows, but the fence row it knows is the old one.
		stale := coder.FenceToken{Sequence: token.Sequence + 1, Term: token.Term, Revision: next.Revision + 1}
		wantConflict(t, tryCommit(s, func(b sqlstore.BatchWrite) {
			b.CAS(coder.FenceKey(), coder.EncodeFenceToken(stale), coder.EncodeFenceToken(token))
			b.PutIfNotExist(coder.EncodeLogKey(stale.Revision, 1), []byte("x"))
			b.PutIfNotExist(fmt.Appendf(nil, "by a deposed leader %d", round), []byte("x"))
		}))
		// A leader of another term, whose row version fits after the database lost commits.
		other := coder.FenceToken{Sequence: next.Sequence, Term: token.Term + 9, Revision: next.Revision}
		ahead := coder.FenceToken{Sequence: next.Sequence + 1, Term: token.Term + 9, Revision: next.Revision + 1}
		wantConflict(t, tryCommit(s, func(b sqlstore.BatchWrite) {
			b.CAS(coder.FenceKey(), coder.EncodeFenceToken(ahead), coder.EncodeFenceToken(other))
			b.PutIfNotExist(coder.EncodeLogKey(ahead.Revision, 1), []byte("x"))
			b.PutIfNotExist(fmt.Appendf(nil, "by a leader of another term %d", round), []byte("x"))
		}))
		sameRows(t, "after a stale commit", all(t, s, whole()), before)
		for i := range size {
			rev := token.Revision + 1 + int64(i)
			r := &coder.Record{CreateRevision: rev, ModRevision: rev, Version: 1}
			newest[i] = indexOf(r, newest[i].ModRevision)
		}
		token = next
		if round%2 == 1 { // another leader
			taken := coder.FenceToken{Sequence: token.Sequence + 1, Term: token.Term + 1, Revision: token.Revision}
			commit(t, s, func(b sqlstore.BatchWrite) {
				b.CAS(coder.FenceKey(), coder.EncodeFenceToken(taken), coder.EncodeFenceToken(token))
			})
			mustHold(t, s, coder.FenceKey(), coder.EncodeFenceToken(taken))
			token = taken
		}
	}
	// A tombstone whose index row compaction has taken away is created again.
	commit(t, s, func(b sqlstore.BatchWrite) { b.Del(coder.EncodeIndexKey(key(0))) })
	next := coder.FenceToken{Sequence: token.Sequence + 1, Term: token.Term, Revision: token.Revision + 1}
	commit(t, s, batch(token, next, 1))
}

func testBatchMisuse(t *testing.T, s sqlstore.Store) {
	ctx := context.Background()
	empty := s.BeginBatchWrite()
	require.Zero(t, empty.Len()+empty.Size())
	require.NoError(t, empty.Commit(ctx))
	b := s.BeginBatchWrite()
	b.Put([]byte("abc"), []byte("12345"))
	b.Del([]byte("de"))
	require.Equal(t, 2, b.Len())
	require.GreaterOrEqual(t, b.Size(), 10)
	require.NoError(t, b.Commit(ctx))
	require.Error(t, b.Commit(ctx), "a batch was committed twice")
	require.Error(t, tryCommit(s, func(b sqlstore.BatchWrite) {
		b.Put([]byte("k"), []byte("1"))
		b.Del([]byte("k"))
	}), "a key twice in a batch was accepted")
	for _, keys := range []string{"kk", "kakz", "kaaz", "zaaz", "kzaa", "kazk", "kaz", "azk"} {
		err := tryCommit(s, func(b sqlstore.BatchWrite) {
			for _, key := range keys {
				b.Del([]byte{byte(key)})
			}
		})
		require.Equal(t, len(keys) > 3 || keys == "kk", errors.Is(err, sqlstore.ErrDuplicateKey), "%s: %v", keys, err)
	}
	require.Error(t, tryCommit(s, func(b sqlstore.BatchWrite) { b.CASOrPut([]byte("k"), []byte("1"), []byte("2")) }),
		"CASOrPut of a row without row versions was accepted")
	sameRows(t, "rows", all(t, s, whole()), []sqlstore.Row{{Key: []byte("abc"), Value: []byte("12345")}})
}
