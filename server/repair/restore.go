package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

var (
	// ErrRestoring says that a Restore is filling the table, or was interrupted.
	ErrRestoring = errors.New("the database is being restored, or a restore was interrupted: run sqlbrain restore again, to its end")
	// ErrNotEmpty says that the table is not empty, as a Restore needs it.
	ErrNotEmpty = errors.New("the database is not empty: restore needs one that has never been served; sqlbrain migrate down --yes, then up, removes everything")
)

// RefuseRestoring returns ErrRestoring if the table is not complete yet. Every process
// that opens the table calls it before it writes.
func RefuseRestoring(ctx context.Context, store sqlstore.Store) error {
	_, err := store.Get(ctx, coder.RestoringKey())
	switch {
	case err == nil:
		return ErrRestoring
	case errors.Is(err, sqlstore.ErrKeyNotFound):
		return nil
	}
	return fmt.Errorf("looking for a restore under way: %w", err)
}

const (
	// restoreRows and restoreBytes bound one commit of a restore. Rows are in key order, so a
	// large commit touches fewer pages for each row: MySQL takes a fifth less time than with
	// commits a fifth as large.
	restoreRows  = 10_000
	restoreBytes = 16 << 20
	// restoreGroup is about how many changes share one log row, as in a commit of a busy server.
	restoreGroup = 256
	// restoreAttempts is how often a commit is tried while the database does not answer.
	restoreAttempts = 8
)

// Restore fills an empty table with versions that another server made. The result is the
// same as after the same writes to this server. Until Finish the table is marked, and no
// server serves it. Restore keeps every key in memory, and about 150 bytes for each. Not
// safe for concurrent use.
type Restore struct {
	store     sqlstore.Store
	compacted int64 // -1 for none

	keys   map[string]*restoredKey
	newest int64 // revision of the newest version
	rows   []sqlstore.Row
	bytes  int
	log    []coder.Change // of whole revisions, not written yet
}

// restoredKey is a key as the versions so far have left it.
type restoredKey struct {
	coder.Index
	live int64 // revision of the newest version, 0 if that is a tombstone
}

// BeginRestore marks the table and removes what an interrupted restore left there.
// History is complete from compacted on, -1 for all of it. Errors: ErrNotEmpty.
func BeginRestore(ctx context.Context, store sqlstore.Store, compacted int64) (*Restore, error) {
	r := &Restore{store: store, compacted: -1, keys: make(map[string]*restoredKey)}
	if compacted > 0 {
		r.compacted = compacted
	}
	switch err := RefuseRestoring(ctx, store); {
	case errors.Is(err, ErrRestoring):
		return r, r.clear(ctx)
	case err != nil:
		return nil, err
	}
	switch empty, err := IsEmpty(ctx, store); {
	case err != nil:
		return nil, err
	case !empty:
		return nil, ErrNotEmpty
	}
	// One commit writes the chain row and the mark: a server that looked for the mark
	// earlier either conflicts on the chain row, or finds both.
	batch := store.BeginBatchWrite()
	batch.PutIfNotExist(coder.ChainKey(), coder.EncodeChain(coder.Chain{Sequence: 1}))
	batch.PutIfNotExist(coder.RestoringKey(), coder.Empty())
	err := batch.Commit(ctx)
	if sqlstore.IsConflict(err) {
		return nil, ErrNotEmpty
	}
	if err != nil {
		return nil, fmt.Errorf("marking the database: %w", err)
	}
	return r, nil
}

// IsEmpty reports whether the table has no row.
func IsEmpty(ctx context.Context, store sqlstore.Store) (bool, error) {
	_, found, err := sqlstore.First(store.Iter(ctx, sqlstore.Range{Start: []byte{}, End: []byte{0xff}, Limit: 1, KeysOnly: true}))
	return !found, err
}

// Discard empties a table of which the caller needs nothing. chain is the chain row by which the
// caller decided that, nil if there was none, or if a Restore was interrupted. If another row is
// there, nothing is changed; a server that leads finds that it was replaced. Afterwards the table
// is as new. If Discard is interrupted, the table is as after an interrupted Restore.
func Discard(ctx context.Context, store sqlstore.Store, chain *coder.Chain) error {
	if chain != nil {
		next := coder.Chain{Sequence: chain.Sequence, Term: chain.Term + 1, Revision: chain.Revision}.Resigned()
		batch := store.BeginBatchWrite()
		batch.CAS(coder.ChainKey(), coder.EncodeChain(next), coder.EncodeChain(*chain))
		batch.PutIfNotExist(coder.RestoringKey(), coder.Empty())
		if err := batch.Commit(ctx); err != nil {
			return fmt.Errorf("marking the database: %w", err)
		}
	}
	r := &Restore{store: store}
	if err := r.clear(ctx); err != nil {
		return err
	}
	return r.commit(ctx, func(batch sqlstore.BatchWrite) {
		batch.Del(coder.ChainKey())
		batch.Del(coder.RestoringKey())
	})
}

// clear removes all rows except for the mark and the chain row.
func (r *Restore) clear(ctx context.Context) error {
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
	for row, err := range r.store.Iter(ctx, sqlstore.Range{Start: []byte{}, End: []byte{0xff}, KeysOnly: true}) {
		if err != nil {
			return err
		}
		if k := row.Key; !bytes.Equal(k, coder.RestoringKey()) && !bytes.Equal(k, coder.ChainKey()) {
			keys = append(keys, k)
		}
		if len(keys) >= restoreRows {
			if err := remove(); err != nil {
				return err
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return remove()
}

// Put adds a version. The caller adds versions by revision and, within one revision, by
// change. Up to the compact revision it adds only the versions that this revision sees, by
// revision for each key. Errors: coder.ErrKeyTooLong, the database's.
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

// Lease adds a lease. A key whose lease is never added does not expire, unless a lease of that id is granted later.
func (r *Restore) Lease(ctx context.Context, l coder.Lease) error {
	return r.put(ctx, coder.EncodeLeaseKey(l.ID), coder.EncodeLease(l))
}

// Auth sets users and roles. Errors: coder's for a name that is too long, the database's.
func (r *Restore) Auth(ctx context.Context, c *auth.Change) error {
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

// Keys returns how many keys were added so far, deleted ones included.
func (r *Restore) Keys() int { return len(r.keys) }

// Finish writes the remaining rows and removes the mark. The table is then at revision
// rev, or at that of the newest version if that is higher. It returns the revision and the
// number of keys that exist. progress, if not nil, is called with the number of keys whose
// index rows were written.
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
		// Also if the lease is not there: once another of that id is granted, a put with it would not attach the key,
		// which has that lease already. etcd attaches such a key at its next start.
		if k.Lease != 0 && !k.Tombstone {
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

// unmark completes the table: it sets the chain row and removes the mark.
func (r *Restore) unmark(ctx context.Context, rev int64) error {
	for attempt := 1; ; attempt++ {
		err := r.tryUnmark(ctx, rev)
		if err == nil || attempt == restoreAttempts || !passing(err) && !sqlstore.IsConflict(err) {
			return err
		}
		// The attempt may have taken effect, or an earlier one while it ran.
		if refused := RefuseRestoring(ctx, r.store); refused == nil {
			return nil
		}
		if retry.Database.Wait(ctx, attempt) != nil {
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

// put adds a row to the current commit.
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

// commit repeats a commit that has the same effect if it takes effect twice.
func (r *Restore) commit(ctx context.Context, fill func(sqlstore.BatchWrite)) error {
	for attempt := 1; ; attempt++ {
		batch := r.store.BeginBatchWrite()
		fill(batch)
		err := batch.Commit(ctx)
		if err == nil || attempt == restoreAttempts || !passing(err) || retry.Database.Wait(ctx, attempt) != nil {
			return err
		}
	}
}

// passing reports whether a commit that failed with err may succeed if repeated.
func passing(err error) bool {
	return errors.Is(err, sqlstore.ErrUncertain) || errors.Is(err, sqlstore.ErrUnavailable)
}
