package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// forest returns a database of three levels, whose values flow over to other pages here and
// there, with pages that are free in between.
func forest(t *testing.T) []byte {
	t.Helper()
	path := edited(t, func(tx *bbolt.Tx) error { return nil })
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, NoSync: true})
	require.NoError(t, err)
	const versions, compacted = 9_000, 2_500
	for from := int64(2); from <= versions; from += 1000 {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucketKey)
			b.FillPercent = 0.9 // as etcd has it
			for rev := from; rev < min(from+1000, versions+1); rev++ {
				kv := &mvccpb.KeyValue{Key: fmt.Appendf(nil, "k%d", rev), CreateRevision: rev, ModRevision: rev, Version: 1,
					Lease: 7}
				if rev%3000 == 0 {
					kv.Value = bytes.Repeat([]byte{'v'}, 20_000)
				}
				if err := b.Put(encodeRevision(rev, 0, false), marshal(t, kv)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		for rev := int64(2000); rev < 2300; rev++ {
			if err := tx.Bucket(bucketKey).Delete(encodeRevision(rev, 0, false)); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketMeta).Put(metaFinishedCompact, encodeRevision(compacted, 0, false))
	}))
	require.NoError(t, db.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	return whole
}

var pageSize = os.Getpagesize()

// reached reports of each page of a file whether it holds something.
func reached(t *testing.T, file []byte) (seen []bool) {
	t.Helper()
	path := writeFile(t, file)
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		p := &pages{ctx: t.Context(), file: bytes.NewReader(file), size: uint64(pageSize),
			seen: make([]bool, tx.Size()/int64(pageSize))}
		require.NoError(t, p.tree(uint64(tx.Cursor().Bucket().Root()), true, nil, nil, 1))
		seen = p.seen
		return nil
	}))
	return seen
}

// used returns the pages of a file that hold something.
func used(t *testing.T, file []byte) (branches, leaves []uint64) {
	t.Helper()
	for id, seen := range reached(t, file) {
		header := file[id*pageSize:]
		switch {
		case !seen || binary.NativeEndian.Uint64(header) != uint64(id): // free, or another one's
		case binary.NativeEndian.Uint16(header[8:]) == pageBranch:
			branches = append(branches, uint64(id))
		default:
			leaves = append(leaves, uint64(id))
		}
	}
	return branches, leaves
}

func clearFree(t *testing.T, file []byte) {
	t.Helper()
	for id, seen := range reached(t, file) {
		if !seen && id > 1 {
			clear(file[id*pageSize:][:pageSize])
		}
	}
}

func requireUntouched(t *testing.T, store sqlstore.Store, what string) {
	t.Helper()
	_, found, err := sqlstore.First(store.Iter(t.Context(), sqlstore.Range{Start: []byte{}, End: []byte{0xff}, Limit: 1,
		KeysOnly: true}))
	require.NoError(t, err, what)
	require.False(t, found, what)
}

// requireDamaged fails unless the restore of a file ends with an error that says so, before the
// database is touched.
func requireDamaged(t *testing.T, file []byte, what string) {
	t.Helper()
	store := newStore(t)
	require.ErrorIs(t, tryLoad(t, writeFile(t, file), true, store), ErrDamaged, what)
	requireUntouched(t, store, what)
}

// A branch that leads back up is what bbolt would follow for ever.
func TestPagesThatAreNotATreeAreRefused(t *testing.T) {
	file := forest(t)
	branches, leaves := used(t, file)
	require.Greater(t, len(branches), 2, "of three levels")
	require.NoError(t, tryLoad(t, writeFile(t, file), true, newStore(t)))
	target := func(branch uint64, child int) []byte {
		return file[branch*uint64(pageSize)+pageHeader+uint64(child)*pageElement+8:]
	}
	for _, branch := range branches {
		for _, child := range []int{0, 1} {
			at := target(branch, child)
			was := binary.NativeEndian.Uint64(at)
			for name, to := range map[string]uint64{
				"itself": branch, "another branch": branches[0], "the last branch": branches[len(branches)-1],
				"a leaf": leaves[len(leaves)/2], "a meta page": 0, "behind the end": uint64(len(file) / pageSize),
				"far behind it": 1 << 60,
			} {
				if to == was {
					continue
				}
				binary.NativeEndian.PutUint64(at, to)
				requireDamaged(t, file, fmt.Sprintf("child %d of page %d is %s", child, branch, name))
			}
			binary.NativeEndian.PutUint64(at, was)
		}
	}
	require.NoError(t, tryLoad(t, writeFile(t, file), true, newStore(t)), "all was put back")
}

// What says where things are is flipped bit by bit: nothing may be missing from what is restored.
// Free pages are emptied before: they hold older states of others, and a branch that leads to one of a
// compacted time cannot be told from one that is right.
func TestFlippedBytesOfTheStructureAreFound(t *testing.T) {
	file := forest(t)
	clearFree(t, file)
	whole := newStore(t)
	require.NoError(t, tryLoad(t, writeFile(t, file), true, whole))
	want := contentOf(t, whole, 0)
	branches, leaves := used(t, file)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	passed := 0
	for range 600 {
		id := branches[r.IntN(len(branches))]
		if r.IntN(2) == 0 {
			id = leaves[r.IntN(len(leaves))]
		}
		page := file[id*uint64(pageSize):]
		count := int(binary.NativeEndian.Uint16(page[10:]))
		at, bit := r.IntN(pageHeader+count*pageElement), byte(1)<<r.IntN(8)
		page[at] ^= bit
		what := fmt.Sprintf("bit %x of byte %d of page %d, seed %d", bit, at, id, seed)
		store := newStore(t)
		err := tryLoad(t, writeFile(t, file), true, store)
		page[at] ^= bit
		if err == nil {
			passed++
			require.Equal(t, want, contentOf(t, store, 0), what)
			continue
		}
		require.ErrorIs(t, err, ErrDamaged, what)
		requireUntouched(t, store, what)
	}
	t.Logf("%d flips that nothing depends on", passed)
	require.Less(t, passed, 60)
}

// A leaf of an older state is as whole as any.
func TestMissingRevisionsAreFound(t *testing.T) {
	without := func(rev int64) error {
		path := writeFile(t, forest(t))
		db, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketKey).Delete(encodeRevision(rev, 0, false))
		}))
		require.NoError(t, db.Close())
		return tryLoad(t, path, true, newStore(t))
	}
	require.NoError(t, without(2499), "what compaction removes")
	for _, rev := range []int64{2501, 8000} {
		err := without(rev)
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, fmt.Sprintf("between %d and %d are missing", rev-1, rev+1))
	}
}

func TestDepthOfPagesIsBounded(t *testing.T) {
	const n = 200
	file := make([]byte, n*pageSize)
	order := binary.NativeEndian
	for id := 2; id < n-1; id++ {
		page := file[id*pageSize:]
		order.PutUint64(page, uint64(id))
		order.PutUint16(page[8:], pageBranch)
		order.PutUint16(page[10:], 1)
		order.PutUint32(page[pageHeader:], pageElement)
		order.PutUint32(page[pageHeader+4:], 1)
		order.PutUint64(page[pageHeader+8:], uint64(id+1))
		page[pageHeader+pageElement] = 'k'
	}
	err := checkPages(t.Context(), bytes.NewReader(file), pageSize, int64(len(file)), 2)
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, "is below 64 others")
}

func FuzzElements(f *testing.F) {
	page := make([]byte, 64)
	page[8], page[10], page[pageHeader+4], page[pageHeader+8] = pageLeaf, 1, pageElement, 3
	f.Add(page, uint64(0))
	f.Fuzz(func(t *testing.T, page []byte, id uint64) {
		elements, _, err := elementsOf(page, id)
		if err != nil {
			return
		}
		total := pageHeader + pageElement*len(elements)
		for _, e := range elements {
			total += len(e.key) + len(e.value)
		}
		if total > len(page) {
			t.Fatalf("%d bytes of %d", total, len(page))
		}
	})
}
