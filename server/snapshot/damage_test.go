package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// tryLoad is load that may fail.
func tryLoad(t *testing.T, path string, skipHash bool, store sqlstore.Store) error {
	t.Helper()
	s, err := Open(t.Context(), path, skipHash)
	if err != nil {
		return err
	}
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Load(t.Context(), store, LoadOptions{})
	return err
}

func writeFile(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "damaged.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestDamagedFilesAreRefused(t *testing.T) {
	b := serve(t, newStore(t))
	grow(t, b, 4)
	whole, err := os.ReadFile(save(t, b, defaultRunBytes))
	require.NoError(t, err)
	for at := 0; at < len(whole); at += 977 {
		store := newStore(t)
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x40
		require.ErrorIs(t, tryLoad(t, writeFile(t, flipped), false, store), ErrDamaged, "byte %d", at)
		requireUntouched(t, store, "flipped")
	}
	for size := 0; size < len(whole); size += 1021 {
		store := newStore(t)
		path := writeFile(t, whole[:size])
		require.Error(t, tryLoad(t, path, false, store), "%d bytes", size)
		requireUntouched(t, store, "cut")
		require.ErrorIs(t, tryLoad(t, path, true, store), ErrDamaged, "%d bytes", size)
		requireUntouched(t, store, "cut")
	}
	require.ErrorIs(t, tryLoad(t, writeFile(t, append(whole, "more"...)), false, newStore(t)), ErrDamaged)
}

func TestFileWithoutHashIsLoadedOnRequestOnly(t *testing.T) {
	b := serve(t, newStore(t))
	grow(t, b, 4)
	whole, err := os.ReadFile(save(t, b, defaultRunBytes))
	require.NoError(t, err)
	path := writeFile(t, whole[:len(whole)-sha256.Size])
	require.ErrorIs(t, tryLoad(t, path, false, newStore(t)), ErrNoHash)
	store := newStore(t)
	require.NoError(t, tryLoad(t, path, true, store))
	requireSame(t, b, serve(t, store))
}

// edited returns a copy of an empty snapshot with changes of its own.
func edited(t *testing.T, change func(*bbolt.Tx) error) string {
	t.Helper()
	path := save(t, serve(t, newStore(t)), defaultRunBytes)
	require.NoError(t, os.Truncate(path, fileSize(t, path)-sha256.Size))
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(change))
	require.NoError(t, db.Close())
	return path
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

func putIn(bucket, key, value []byte) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, value) }
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

func TestOtherFilesAreRefused(t *testing.T) {
	version := func(rev int64, kv *mvccpb.KeyValue) func(*bbolt.Tx) error {
		return putIn(bucketKey, encodeRevision(rev, 0, false), marshal(t, kv))
	}
	cases := map[string]struct {
		change func(*bbolt.Tx) error
		want   string
	}{
		"a revision of the wrong length": {putIn(bucketKey, []byte("short"), nil), "is not a revision"},
		"a negative revision":            {putIn(bucketKey, encodeRevision(-1, 0, false), nil), "negative"},
		"a value that is none":           {putIn(bucketKey, encodeRevision(2, 0, false), []byte{0xff}), "change 0"},
		"a version before its creation": {version(2, &mvccpb.KeyValue{Key: []byte("k"), CreateRevision: 3, Version: 1}),
			"create revision 3"},
		"a version 0": {version(2, &mvccpb.KeyValue{Key: []byte("k"), CreateRevision: 2}), "version number 0"},
		"a key that does not fit": {version(2, &mvccpb.KeyValue{Key: make([]byte, 2000), CreateRevision: 2, Version: 1}),
			"key is too long"},
		"a lease without its id":    {putIn(bucketLease, []byte("12345678"), nil), "the lease"},
		"a user under another name": {putIn(bucketAuthUsers, []byte("name"), nil), "the user"},
		"a role that is none":       {putIn(bucketAuthRoles, []byte("name"), []byte{0xff}), "the role"},
		"a revision of users":       {putIn(bucketAuth, authRevision, []byte("x")), "is not a number"},
		"a compact revision":        {putIn(bucketMeta, metaFinishedCompact, []byte("x")), "is not a revision"},
		"another bbolt database":    {func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketKey) }, "but not of an etcd"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			require.ErrorContains(t, tryLoad(t, edited(t, c.change), true, store), c.want)
			requireUntouched(t, store, name)
		})
	}
}

// An etcd that ended before a compaction was carried out has more than is needed.
func TestScheduledCompactionIsCarriedOut(t *testing.T) {
	path := edited(t, func(tx *bbolt.Tx) error {
		for _, v := range []struct {
			rev, created, version int64
			key                   string
		}{{2, 2, 1, "a"}, {3, 2, 2, "a"}, {4, 0, 0, "b"}, {5, 5, 1, "b"}, {6, 6, 1, "c"}} {
			kv := &mvccpb.KeyValue{Key: []byte(v.key)}
			if v.version > 0 {
				kv.CreateRevision, kv.ModRevision, kv.Version = v.created, v.rev, v.version
			}
			if err := tx.Bucket(bucketKey).Put(encodeRevision(v.rev, 0, v.version == 0), marshal(t, kv)); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketMeta).Put(metaScheduledCompact, encodeRevision(5, 0, false))
	})
	store := newStore(t)
	require.NoError(t, tryLoad(t, path, true, store))
	require.Len(t, contentOf(t, store, 0).Versions, 3) // a at 3, b at 5, c
	b := serve(t, store)
	require.EqualValues(t, 5, b.CompactRevision())
	require.EqualValues(t, 6, b.Revision())
	_, err := b.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: everything, Revision: 4}, true)
	require.ErrorIs(t, err, mvcc.ErrCompacted)
}

// In one transaction etcd puts a key and deletes it, and deletes all keys and puts one.
func TestKeyTwiceInOneRevision(t *testing.T) {
	type version struct{ rev, sub, created, version int64 } // version 0: a tombstone
	for name, c := range map[string]struct {
		versions []version
		after    int64 // the mod revision of the key at revision 3, 0 for none
	}{
		"put, delete": {[]version{{2, 0, 2, 1}, {3, 0, 2, 2}, {3, 1, 0, 0}}, 0},
		"delete, put": {[]version{{2, 0, 2, 1}, {3, 0, 0, 0}, {3, 1, 3, 1}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			file := func(compacted int64, more ...version) string {
				return edited(t, func(tx *bbolt.Tx) error {
					for _, v := range append(c.versions, more...) {
						kv := &mvccpb.KeyValue{Key: []byte("k")}
						if v.version > 0 {
							kv.CreateRevision, kv.ModRevision, kv.Version = v.created, v.rev, v.version
						}
						err := tx.Bucket(bucketKey).Put(encodeRevision(v.rev, v.sub, v.version == 0), marshal(t, kv))
						if err != nil {
							return err
						}
					}
					return tx.Bucket(bucketMeta).Put(metaScheduledCompact, encodeRevision(compacted, 0, false))
				})
			}
			path, store := file(2), newStore(t)
			require.ErrorContains(t, tryLoad(t, path, true, store), `revision 3 changes the key "k" twice`)
			requireUntouched(t, store, "refused")
			s, err := Open(t.Context(), path, true)
			require.NoError(t, err)
			require.ErrorContains(t, s.Check(t.Context(), nil), "twice")
			l, err := s.Load(t.Context(), store, LoadOptions{Bump: 10})
			require.NoError(t, err)
			require.Equal(t, c.after > 0, l.Keys == 1)
			require.NoError(t, s.Close())

			for compacted, path := range map[int64]string{3: file(3), 4: file(4, version{4, 0, 4, 1})} {
				store := newStore(t)
				require.NoError(t, tryLoad(t, path, true, store))
				b := serve(t, store)
				res, err := b.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: everything}, true)
				require.NoError(t, err)
				want := c.after
				if compacted == 4 {
					want = 4
				}
				var got int64
				for _, rec := range res.Records {
					got = rec.ModRevision
				}
				require.Equal(t, want, got)
				require.Equal(t, compacted+1, mustTxn(t, b, put("k", "", 0)))
			}
		})
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	b := serve(t, newStore(t))
	grow(t, b, 5)
	s, err := Open(t.Context(), save(t, b, defaultRunBytes), false)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Load(ctx, newStore(t), LoadOptions{})
	require.ErrorIs(t, err, context.Canceled)
}

func FuzzDecodeVersion(f *testing.F) {
	kv, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), CreateRevision: 2, ModRevision: 3,
		Version: 2, Lease: -1})
	require.NoError(f, err)
	f.Add(encodeRevision(3, 1, false), kv)
	f.Add(encodeRevision(3, 1, true), kv)
	f.Add(encodeRevision(1<<62, 0, false), []byte{})
	f.Add([]byte("_"), []byte{0xff})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		rev, r, err := decodeVersion(key, value)
		if err != nil || r == nil {
			return
		}
		// What is accepted is stored again as it was understood.
		again, err := EncodeValue(r)
		require.NoError(t, err)
		stored := encodeRevision(rev, int64(r.Sub), r.Tombstone)
		require.Equal(t, key, stored)
		_, same, err := decodeVersion(stored, again)
		require.NoError(t, err)
		requireEqual(t, r, same)
	})
}

func TestFileWithARefusedPasswordIsNotLoaded(t *testing.T) {
	refused := errors.New("too costly")
	path := edited(t, putIn(bucketAuthUsers, []byte("u"),
		marshal(t, &authpb.User{Name: []byte("u"), Password: []byte("hash")})))
	file, err := Open(t.Context(), path, true)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	store := newStore(t)
	_, err = file.Load(t.Context(), store, LoadOptions{CheckPassword: func(hash []byte) error {
		if string(hash) == "hash" {
			return refused
		}
		return nil
	}})
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, `the user "u"`)
	requireUntouched(t, store, "refused")
}
