package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var (
	// ErrRestoring: the table is being filled by a Restore, or one was interrupted.
	ErrRestoring = errors.New("the database is being restored, or a restore was interrupted: run sqlbrain restore again, to its end")
	// ErrNotEmpty: a Restore needs an empty table.
	ErrNotEmpty = errors.New("the database is not empty: restore needs one that has never been served; sqlbrain migrate down --yes, then up, removes everything")
)

// refuseRestoring returns ErrRestoring if the table is not whole yet.
func refuseRestoring(ctx context.Context, store sqlstore.Store) error {
	_, err := store.Get(ctx, coder.RestoringKey())
	switch {
	case err == nil:
		return ErrRestoring
	case errors.Is(err, sqlstore.ErrKeyNotFound):
		return nil
	}
	return fmt.Errorf("looking for a restore under way: %w", err)
}

// RefuseRestoring returns ErrRestoring if the table is not whole yet. Whoever joins a
// cluster asks first, since joining writes.
func RefuseRestoring(ctx context.Context, store sqlstore.Store) error {
	return refuseRestoring(ctx, store)
}

const (
	// restoreRows and restoreBytes bound one commit of a restore. Its rows are in key order, so
	// that the larger it is the fewer pages the engine touches: MySQL takes a fifth less time
	// than with a fifth of the rows.
	restoreRows  = 10_000
	restoreBytes = 16 << 20
	// restoreGroup is how many changes one log row takes together, as a commit of
	// a busy server has them.
	restoreGroup = 256
	// restoreAttempts is how often a commit is tried while the database is away.
	restoreAttempts = 8
)

// Restore fills an empty table with versions that another server made, so that it is
// as this server's own commits would have left it. Until Finish it is marked, and no
// server serves it. It keeps every key in memory, with about 150 bytes besides. Used by
// one goroutine.
type Restore struct {
	store     sqlstore.Store
	compacted int64 // -1 for none

	keys   map[string]*restoredKey
	leases map[int64]bool
	newest int64 // revision of the newest version
	rows   []sqlstore.Row
	bytes  int
	log    []coder.Change // of whole revisions, not written yet
	retry  retrier
}

// restoredKey is a key as the versions so far have left it.
type restoredKey struct {
	coder.Index
	live int64 // revision of the newest version, if that is no tombstone; else 0
}

// BeginRestore marks the table and removes what an interrupted restore left there.
// History is complete from compacted on, -1 for all of it. Errors: ErrNotEmpty.
func BeginRestore(ctx context.Context, store sqlstore.Store, compacted int64) (*Restore, error) {
	r := &Restore{store: store, compacted: -1, keys: make(map[string]*restoredKey), leases: make(map[int64]bool)}
	if compacted > 0 {
		r.compacted = compacted
	}
	switch err := refuseRestoring(ctx, store); {
	case errors.Is(err, ErrRestoring):
		return r, r.clear(ctx)
	case err != nil:
		return nil, err
	}
	it := store.Iter(ctx, sqlstore.Range{Start: []byte{}, End: []byte{0xff}, Limit: 1, KeysOnly: true})
	found := it.Next()
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		return nil, err
	}
	if found {
		return nil, ErrNotEmpty
	}
	// The chain row with the mark: a server that looked for the mark before it was
	// there either has the chain row already, or finds both.
	batch := store.BeginBatchWrite()
	batch.PutIfNotExist(coder.ChainKey(), coder.EncodeChain(coder.Chain{Sequence: 1}))
	batch.PutIfNotExist(coder.RestoringKey(), coder.Empty())
	err := batch.Commit(ctx)
	if conflict := (*sqlstore.Conflict)(nil); errors.As(err, &conflict) {
		return nil, ErrNotEmpty
	}
	if err != nil {
		return nil, fmt.Errorf("marking the database: %w", err)
	}
	return r, nil
}

// clear removes all rows but the mark and the chain row.
func (r *Restore) clear(ctx context.Context) error {
	it := r.store.Iter(ctx, sqlstore.Range{Start: []byte{}, End: []byte{0xff}, KeysOnly: true})
	defer func() { _ = it.Close() }()
	var keys [][]byte
	remove := func() error {
		err := r.commit(ctx, func(batch sqlstore.BatchWrite) {
			for _, k := range keys {
				batch.Del(k)
			}
		})
		keys = nil
		return err
	}
	for it.Next() {
		if k := it.Key(); !bytes.Equal(k, coder.RestoringKey()) && !bytes.Equal(k, coder.ChainKey()) {
			keys = append(keys, k)
		}
		if len(keys) >= restoreRows {
			if err := remove(); err != nil {
				return err
			}
		}
	}
	if err := it.Err(); err != nil || len(keys) == 0 {
		return err
	}
	return remove()
}

// Put adds a version. Versions come in the order of revisions and, within one, of
// changes; up to the compact revision only those that it needs, in the order of
// revisions for each key. Errors: coder.ErrKeyTooLong, the database's.
func (r *Restore) Put(ctx context.Context, rec *coder.Record) error {
	if err := coder.CheckKey(rec.Key); err != nil {
		return fmt.Errorf("the key %.100q of revision %d: %w", rec.Key, rec.ModRevision, err)
	}
	if n := len(r.log); n > 0 && r.log[n-1].Revision != rec.ModRevision && n >= restoreGroup {
		if err := r.writeLog(ctx); err != nil {
			return err
		}
	}
	if err := r.put(ctx, coder.EncodeVersionKey(rec.Key, rec.ModRevision), coder.EncodeVersion(rec)); err != nil {
		return err
	}
	k := r.keys[string(rec.Key)]
	if k == nil {
		k = &restoredKey{}
		r.keys[string(rec.Key)] = k
	}
	if rec.ModRevision >= r.compacted {
		r.log = append(r.log, coder.Change{
			Revision: rec.ModRevision, Sub: rec.Sub, Key: rec.Key, PrevRevision: k.live, Tombstone: rec.Tombstone,
		})
	}
	k.Index = coder.Index{
		ModRevision: rec.ModRevision, PrevRevision: k.ModRevision, CreateRevision: rec.CreateRevision,
		Version: rec.Version, Lease: rec.Lease, Tombstone: rec.Tombstone,
	}
	if k.live = rec.ModRevision; rec.Tombstone {
		k.live = 0
	}
	r.newest = max(r.newest, rec.ModRevision)
	return nil
}

// Lease adds a lease; keys that name one that is not there are kept without an end.
func (r *Restore) Lease(ctx context.Context, l coder.Lease) error {
	r.leases[l.ID] = true
	return r.put(ctx, coder.EncodeLeaseKey(l.ID), coder.EncodeLease(l))
}

// Auth sets users and roles.
func (r *Restore) Auth(ctx context.Context, c *AuthChange) error {
	for _, k := range []struct {
		kind coder.AuthKind
		rows map[string][]byte
	}{{coder.AuthUser, c.Users}, {coder.AuthRole, c.Roles}} {
		for name, content := range k.rows {
			if err := coder.CheckAuthName(name); err != nil {
				return fmt.Errorf("the name %.100q: %w", name, err)
			}
			if err := r.put(ctx, coder.EncodeAuthKey(k.kind, name), coder.EncodeAuthValue(content)); err != nil {
				return err
			}
		}
	}
	settings := coder.AuthSettings{Version: 1, Enabled: c.Enabled, Revision: c.Revision}
	return r.put(ctx, coder.AuthSettingsKey(), coder.EncodeAuthSettings(settings))
}

// Keys is how many keys there are so far, deleted ones included.
func (r *Restore) Keys() int { return len(r.keys) }

// Finish writes what is left, and makes the table one that can be served, at revision
// rev, or the newest version's if that is higher. It returns that, and how many keys
// exist. progress is told of keys whose index rows were written.
func (r *Restore) Finish(ctx context.Context, rev int64, progress func(keys int)) (keys int, revision int64, err error) {
	if err := r.writeLog(ctx); err != nil {
		return 0, 0, err
	}
	for i, key := range slices.Sorted(maps.Keys(r.keys)) {
		k := r.keys[key]
		if err := r.put(ctx, coder.EncodeIndexKey([]byte(key)), coder.EncodeIndex(k.Index)); err != nil {
			return 0, 0, err
		}
		if !k.Tombstone {
			keys++
		}
		if k.Lease != 0 && !k.Tombstone && r.leases[k.Lease] {
			if err := r.put(ctx, coder.EncodeAttachmentKey(k.Lease, []byte(key)), coder.Empty()); err != nil {
				return 0, 0, err
			}
		}
		if progress != nil && i%restoreRows == 0 {
			progress(i)
		}
	}
	if err := r.flush(ctx); err != nil {
		return 0, 0, err
	}
	rev = max(rev, r.newest, r.compacted, 1)
	return keys, rev, r.unmark(ctx, rev)
}

// unmark is the step that makes the table a whole one.
func (r *Restore) unmark(ctx context.Context, rev int64) error {
	r.retry.reset()
	for attempt := 1; ; attempt++ {
		err := r.tryUnmark(ctx, rev)
		if err == nil || attempt == restoreAttempts || !passing(err) {
			return err
		}
		// It may have been done all the same.
		if refused := refuseRestoring(ctx, r.store); refused == nil {
			return nil
		}
		if r.retry.wait(ctx) != nil {
			return err
		}
	}
}

func (r *Restore) tryUnmark(ctx context.Context, rev int64) error {
	raw, err := r.store.Get(ctx, coder.ChainKey())
	if err != nil {
		return fmt.Errorf("reading the chain row: %w", err)
	}
	held, err := coder.DecodeChain(raw)
	if err != nil {
		return fmt.Errorf("reading the chain row: %w", err)
	}
	batch := r.store.BeginBatchWrite()
	next := coder.Chain{Sequence: held.Sequence, Term: held.Term + 1, Revision: rev}.Resigned()
	batch.CAS(coder.ChainKey(), coder.EncodeChain(next), raw)
	if r.compacted > 0 {
		batch.Put(coder.CompactKey(), coder.EncodeInt64(r.compacted))
	}
	batch.Del(coder.RestoringKey())
	return batch.Commit(ctx)
}

func (r *Restore) writeLog(ctx context.Context) error {
	if len(r.log) == 0 {
		return nil
	}
	last := r.log[len(r.log)-1].Revision
	rows := coder.EncodeLog(r.log)
	r.log = r.log[:0]
	if len(rows) > math.MaxUint16 {
		return fmt.Errorf("the revision %d changes too many keys", last)
	}
	for i, row := range rows {
		if err := r.put(ctx, coder.EncodeLogKey(last, uint16(i+1)), row); err != nil {
			return err
		}
	}
	return nil
}

// put adds a row to the commit at hand.
func (r *Restore) put(ctx context.Context, key, value []byte) error {
	r.rows = append(r.rows, sqlstore.Row{Key: key, Value: value})
	if r.bytes += len(key) + len(value); len(r.rows) < restoreRows && r.bytes < restoreBytes {
		return nil
	}
	return r.flush(ctx)
}

func (r *Restore) flush(ctx context.Context) error {
	if len(r.rows) == 0 {
		return nil
	}
	// Rows in key order touch the engine's pages in order.
	slices.SortFunc(r.rows, func(a, b sqlstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	err := r.commit(ctx, func(batch sqlstore.BatchWrite) {
		for _, row := range r.rows {
			batch.Put(row.Key, row.Value)
		}
	})
	r.rows, r.bytes = r.rows[:0], 0
	return err
}

// commit makes a commit that may be made twice.
func (r *Restore) commit(ctx context.Context, fill func(sqlstore.BatchWrite)) error {
	r.retry.reset()
	for attempt := 1; ; attempt++ {
		batch := r.store.BeginBatchWrite()
		fill(batch)
		err := batch.Commit(ctx)
		if err == nil || attempt == restoreAttempts || !passing(err) || r.retry.wait(ctx) != nil {
			return err
		}
	}
}

// passing reports whether a commit may succeed if it is repeated.
func passing(err error) bool {
	return errors.Is(err, sqlstore.ErrUncertain) || errors.Is(err, sqlstore.ErrUnavailable)
}
