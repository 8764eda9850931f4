package storetest

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var seedFlag = flag.Uint64("storetest.seed", 0, "seed of the random histories; 0 runs the fixed ones")

// testHistory commits random batches, checks each answer and every kind of read
// against a map, and names the seed of a history that fails.
func testHistory(t *testing.T, s sqlstore.Store) {
	seeds := []uint64{11, 12, 13}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	for _, seed := range seeds {
		h := &history{t: t, store: s, rnd: rand.New(rand.NewPCG(seed, 0)), rows: map[string][]byte{}, rev: 1}
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			h.t = t
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("replay with -storetest.seed=%d", seed)
				}
			})
			h.run(60)
		})
		commit(t, s, func(b sqlstore.BatchWrite) {
			for key := range h.rows {
				b.Del([]byte(key))
			}
		})
	}
}

type history struct {
	t     *testing.T
	store sqlstore.Store
	rnd   *rand.Rand
	rows  map[string][]byte // the table as it should be
	rev   int64
}

func (h *history) run(steps int) {
	for range steps {
		h.commit()
		h.checkReads()
	}
	sameRows(h.t, "the whole table", all(h.t, h.store, whole()), h.between(whole().Start, whole().End))
}

// rawKey returns one of few keys, made of few bytes, so that they collide and
// are prefixes of each other.
func (h *history) rawKey() []byte {
	const alphabet = "\x00$%&aA/\xff"
	key := make([]byte, 1+h.rnd.IntN(3))
	for i := range key {
		key[i] = alphabet[h.rnd.IntN(len(alphabet))]
	}
	return key
}

// commit commits a random batch and checks the answer; in one of four batches
// some expectation is wrong.
func (h *history) commit() {
	h.rev++
	b := h.store.BeginBatchWrite()
	next := maps.Clone(h.rows)
	used := map[string]bool{}
	conflicts := false
	wrong := h.rnd.IntN(4) == 0
	onlyMarked := h.rnd.IntN(2) == 0
	for range 1 + h.rnd.IntN(12) {
		raw := h.rawKey()
		key := coder.EncodeIndexKey(raw)
		if used[string(key)] {
			continue
		}
		used[string(key)] = true
		current, exists := h.rows[string(key)]
		expect := h.rev
		if exists {
			expect, _, _ = coder.RowVersions(current)
		}
		if wrong && h.rnd.IntN(3) == 0 {
			expect += 1000
		}
		old := coder.EncodeIndex(coder.Index{ModRevision: expect})
		if exists && expect < h.rev {
			old = current
		}
		value := randomBytes(h.rnd, h.rnd.IntN(200))
		r := &coder.Record{Key: raw, Value: value, CreateRevision: 1, ModRevision: h.rev, Version: 1,
			Tombstone: h.rnd.IntN(4) == 0}
		index := coder.EncodeIndex(indexOf(r, expect))
		versionKey := coder.EncodeVersionKey(raw, h.rev)
		kind := h.rnd.IntN(3)
		if !onlyMarked {
			kind = h.rnd.IntN(6)
		}
		switch {
		case kind == 0 && (!exists || wrong):
			index = coder.EncodeIndex(indexOf(r, 0))
			b.PutIfNotExist(key, index)
			conflicts = conflicts || exists
		case kind == 1 && (expect != h.rev || exists):
			b.CASOrPut(key, index, old)
			conflicts = conflicts || exists && !bytes.Equal(current, old)
		case kind <= 2 && exists:
			b.CAS(key, index, old)
			conflicts = conflicts || !bytes.Equal(current, old)
		case kind == 3:
			b.Del(key)
			delete(next, string(key))
			continue
		case kind == 4:
			b.DelCurrent(key, old)
			if bytes.Equal(current, old) {
				delete(next, string(key))
			}
			continue
		default:
			b.Put(key, index)
		}
		b.PutIfNotExist(versionKey, coder.EncodeVersion(r))
		next[string(key)] = index
		next[string(versionKey)] = coder.EncodeVersion(r)
	}
	err := b.Commit(context.Background())
	if conflicts {
		require.True(h.t, sqlstore.IsConflict(err), "revision %d: %v", h.rev, err)
		return
	}
	require.NoError(h.t, err, "revision %d", h.rev)
	h.rows = next
}

// between returns the model's rows of [lo, hi) in order.
func (h *history) between(lo, hi []byte) []sqlstore.Row {
	var rows []sqlstore.Row
	for key, value := range h.rows {
		if key >= string(lo) && key < string(hi) {
			rows = append(rows, sqlstore.Row{Key: []byte(key), Value: value})
		}
	}
	slices.SortFunc(rows, func(a, b sqlstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	return rows
}

func (h *history) checkReads() {
	ctx, rnd := context.Background(), h.rnd
	from, to := h.rawKey(), h.rawKey()
	if rnd.IntN(3) == 0 {
		to = []byte{0}
	}
	lo, hi := coder.IndexBounds(from, to)
	if cmp.Compare(string(lo), string(hi)) > 0 {
		lo, hi = hi, lo
	}
	index := h.between(lo, hi)
	r := sqlstore.Range{Start: lo, End: hi, Reverse: rnd.IntN(2) == 0, Limit: rnd.IntN(10), PageBytes: 1 + rnd.IntN(500)}
	want := slices.Clone(index)
	if r.Reverse {
		slices.Reverse(want)
	}
	if r.Limit > 0 && r.Limit < len(want) {
		want = want[:r.Limit]
	}
	sameRows(h.t, "Iter", all(h.t, h.store, r), want)

	listed, more, err := h.store.List(ctx, sqlstore.ListQuery{Start: lo, End: hi, Limit: r.Limit})
	require.NoError(h.t, err)
	if r.Limit > 0 && len(index) > r.Limit && (len(listed) != r.Limit || !more) ||
		(r.Limit == 0 || len(index) <= r.Limit) && len(listed) != len(index) {
		h.t.Fatalf("List returned %d rows of %d at limit %d, more %v", len(listed), len(index), r.Limit, more)
	}
	lookups := make([][]byte, len(index))
	for i, row := range index {
		lookups[i] = row.Key
	}
	looked, _, err := h.store.Lookup(ctx, lookups, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	at := h.rev - int64(rnd.IntN(10))
	var live, newer int64
	for i, row := range index {
		x, err := coder.DecodeIndex(row.Value)
		require.NoError(h.t, err)
		raw, err := coder.DecodeIndexKey(row.Key)
		require.NoError(h.t, err)
		version, ok := h.rows[string(coder.EncodeVersionKey(raw, x.ModRevision))]
		if i < len(listed) && (!bytes.Equal(listed[i].Key, row.Key) || !bytes.Equal(listed[i].Index, row.Value) ||
			!bytes.Equal(listed[i].Version, version) || (listed[i].Version != nil) != ok) {
			h.t.Fatalf("List row %d of %q is %s, want version %s (%v)", i, raw, short(listed[i].Version), short(version), ok)
		}
		if !bytes.Equal(looked[i].Key, row.Key) || !bytes.Equal(looked[i].Index, row.Value) ||
			!bytes.Equal(looked[i].Version, version) || (looked[i].Version != nil) != ok {
			h.t.Fatalf("Lookup of %q is %s, want version %s (%v)", raw, short(looked[i].Version), short(version), ok)
		}
		switch {
		case x.ModRevision > at:
			newer++
		case !x.Tombstone:
			live++
		}
	}
	gotLive, gotNewer, err := h.store.Count(ctx, lo, hi, at)
	require.NoError(h.t, err)
	require.Equal(h.t, []int64{live, newer}, []int64{gotLive, gotNewer}, "Count at %d", at)

	var ranges []sqlstore.Partition
	var floors []sqlstore.Row
	for range 5 {
		lo, hi := coder.VersionsUpTo(h.rawKey(), at)
		ranges = append(ranges, sqlstore.Partition{Start: lo, End: hi})
		floor := sqlstore.Row{}
		if rows := h.between(lo, hi); len(rows) > 0 {
			floor = rows[len(rows)-1]
		}
		floors = append(floors, floor)
	}
	got, err := h.store.LatestAtOrBefore(ctx, ranges)
	require.NoError(h.t, err)
	sameRows(h.t, "LatestAtOrBefore", got, floors)
}
