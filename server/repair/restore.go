package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// ErrNotEmpty says that the table is not empty, as a Restore needs it.
var ErrNotEmpty = errors.New("the database is not empty: restore --replace replaces what it holds, once all servers " +
	"are stopped")

const (
	// restoreRows and restoreBytes bound one commit of a restore. Rows are in key order, so a
	// large commit touches fewer pages for each row: MySQL takes a fifth less time than with
	// commits a fifth as large.
	restoreRows  = 10_000
	restoreBytes = 16 << 20
	// restoreGroup is about how many changes share one log row, as in a commit of a busy server.
	restoreGroup = 256
)

// Restore fills an empty table with versions that another server made. The result is the
// same as after the same writes to this server. It is a job: until Finish no server serves
// the table, and its methods return ErrOvertaken once another job has the table. Restore
// keeps every key in memory, and about 150 bytes for each. Not safe for concurrent use.
type Restore struct {
	*job
	compacted int64 // -1 for none

	keys   map[string]*coder.Index // of all keys, as the versions so far have left them
	newest int64                   // revision of the newest version
	rows   []sqlstore.Row
	bytes  int
	log    []coder.Change // of whole revisions, not written yet
	at     time.Time      // of its commits
	began  time.Time
}

// BeginRestore begins a restore. An unfinished restore is overtaken, and what it left in the table
// is removed. History is complete from compacted on, -1 for all of it. Errors: ErrNotEmpty,
// ErrImporting, ErrReverting, the database's.
func BeginRestore(ctx context.Context, store sqlstore.Store, compacted int64) (*Restore, error) {
	return begin(ctx, store, coder.JobRestore, []coder.JobKind{coder.JobRestore}, compacted, requireEmpty(ctx, store))
}

// BeginImport is BeginRestore for the keys of kine's table. It overtakes an unfinished import, and an
// unfinished Discard. Errors: ErrNotEmpty, ErrRestoring, the database's.
func BeginImport(ctx context.Context, store sqlstore.Store, compacted int64) (*Restore, error) {
	return begin(ctx, store, coder.JobImport, ofKine, compacted, requireEmpty(ctx, store))
}

// ofKine are the jobs in which kine's table has all keys, so that each of them may follow on each.
var ofKine = []coder.JobKind{coder.JobImport, coder.JobRevert}

// requireEmpty returns what adds the fence row to the first commit of a job in an empty table.
func requireEmpty(ctx context.Context, store sqlstore.Store) func(sqlstore.BatchWrite) error {
	return func(batch sqlstore.BatchWrite) error {
		switch empty, err := IsEmpty(ctx, store); {
		case err != nil:
			return err
		case !empty:
			return ErrNotEmpty
		}
		batch.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 1}))
		return nil
	}
}

// begin begins a job that fills the table. One commit writes the job row and the fence row, which first adds: a server
// that looked for the job row earlier either conflicts on the fence row, or finds both.
func begin(ctx context.Context, store sqlstore.Store, kind coder.JobKind, over []coder.JobKind, compacted int64,
	first func(sqlstore.BatchWrite) error) (*Restore, error) {
	j, err := beginJob(ctx, store, kind, over, first)
	if err != nil {
		return nil, err
	}
	r := &Restore{job: j, compacted: -1, keys: make(map[string]*coder.Index), began: time.Now()}
	if compacted > 0 {
		r.compacted = compacted
	}
	return r, j.clear(ctx)
}

// IsEmpty reports whether the table has no row but that of a job, which it may keep.
func IsEmpty(ctx context.Context, store sqlstore.Store) (bool, error) {
	for row, err := range store.Iter(ctx, sqlstore.Range{Start: []byte{}, End: []byte{0xff}, Limit: 2, KeysOnly: true}) {
		if err != nil || !bytes.Equal(row.Key, coder.JobKey()) {
			return false, err
		}
	}
	return true, nil
}

// Discard empties a table of which the caller needs nothing, as kine's table has all its keys. token is
// the fence row by which the caller decided that, nil if there was none, or if an import or a Discard was
// interrupted, which Discard then overtakes. A server that leads finds that it was replaced. The job does not end, so
// that no server serves the empty table, also if it looked at kine's before: only an import or another Discard, with a
// fence row of nil, may follow, or a restore that replaces. Errors: ErrFenceMoved,
// without changing anything, if another fence row is there; ErrNotEmpty, if there is none, and data; ErrRestoring,
// ErrOvertaken, the database's.
func Discard(ctx context.Context, store sqlstore.Store, token *coder.FenceToken) error {
	over := ofKine
	if token != nil {
		over = nil // it has begun since the caller read the row
	}
	j, err := beginJob(ctx, store, coder.JobRevert, over, func(batch sqlstore.BatchWrite) error {
		switch held, raw, err := fence.LoadToken(ctx, store); {
		case token == nil && errors.Is(err, sqlstore.ErrKeyNotFound):
			if err := requireEmpty(ctx, store)(batch); err != nil {
				return fmt.Errorf("there is no fence row: %w", err)
			}
		case err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound):
			return err
		case token == nil || held != *token:
			return ErrFenceMoved
		default:
			next := coder.FenceToken{Sequence: token.Sequence, Term: token.Term + 1, Revision: token.Revision}.Resigned()
			batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), raw)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return j.clear(ctx)
}

// clear removes all rows except for those of the job and the fence row.
func (j *job) clear(ctx context.Context) error {
	var keys [][]byte
	remove := func() error {
		err := j.commit(ctx, func(batch sqlstore.BatchWrite) {
			for _, k := range keys {
				batch.Del(k)
			}
		})
		keys = nil
		return err
	}
	for row, err := range j.store.Iter(ctx, sqlstore.Range{Start: []byte{}, End: []byte{0xff}, KeysOnly: true}) {
		if err != nil {
			return err
		}
		switch k := row.Key; {
		case bytes.Equal(k, coder.JobKey()), bytes.Equal(k, coder.JobStepKey()), bytes.Equal(k, coder.FenceKey()):
		default:
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

// Put adds a version, as PutAt does at the time of the restore.
func (r *Restore) Put(ctx context.Context, rec *coder.Record) error {
	return r.PutAt(ctx, rec, r.began)
}

// PutAt adds a version that was committed at a time, which must not be before that of the version before. The caller
// adds versions by revision and, within one revision, by change. Up to the compact revision it adds only the versions
// that this revision sees, by revision for each key. Errors: coder.ErrKeyTooLong, the database's.
func (r *Restore) PutAt(ctx context.Context, rec *coder.Record, at time.Time) error {
	if err := coder.CheckKey(rec.Key); err != nil {
		return fmt.Errorf("the key %.100q of revision %d: %w", rec.Key, rec.ModRevision, err)
	}
	if n := len(r.log); n > 0 && r.log[n-1].Revision != rec.ModRevision && (n >= restoreGroup || !at.Equal(r.at)) {
		if err := r.writeLog(ctx); err != nil {
			return err
		}
	}
	r.at = at
	x := r.keys[string(rec.Key)]
	if x == nil {
		x = &coder.Index{}
		r.keys[string(rec.Key)] = x
	}
	c := coder.Change{Revision: rec.ModRevision, Sub: rec.Sub, Key: rec.Key, PrevRevision: x.ModRevision,
		Tombstone: rec.Tombstone}
	if x.Tombstone {
		c.PrevRevision = 0
	}
	if x.Tombstone && !rec.Tombstone { // a damaged file may have two tombstones in a row
		c.PrevTombstone = x.ModRevision
		if err := r.put(ctx, coder.EncodeVersionKey(rec.Key, x.ModRevision), coder.EncodeTombstone()); err != nil {
			return err
		}
	}
	if !rec.Tombstone {
		if err := r.put(ctx, coder.EncodeVersionKey(rec.Key, rec.ModRevision), coder.EncodeVersion(rec)); err != nil {
			return err
		}
	}
	if rec.ModRevision >= r.compacted {
		r.log = append(r.log, c)
	}
	*x = coder.Index{
		ModRevision: rec.ModRevision, PrevRevision: x.ModRevision, CreateRevision: rec.CreateRevision,
		Version: rec.Version, Lease: rec.Lease, Tombstone: rec.Tombstone,
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

// Finish writes the remaining rows and ends the job. The table is then at revision
// rev, or at that of the newest version if that is higher. It returns the revision and the
// number of keys that exist. progress, if not nil, is called with the number of keys whose
// index rows were written.
func (r *Restore) Finish(ctx context.Context, rev int64,
	progress func(keys int)) (keys int, revision int64, err error) {
	if err := r.writeLog(ctx); err != nil {
		return 0, 0, err
	}
	for i, key := range slices.Sorted(maps.Keys(r.keys)) {
		k := r.keys[key]
		if err := r.put(ctx, coder.EncodeIndexKey([]byte(key)), coder.EncodeIndex(*k)); err != nil {
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
	return keys, rev, r.end(ctx, func(batch sqlstore.BatchWrite) error { return r.complete(ctx, batch, rev) })
}

// complete sets the fence row, which a server may have changed that looked for the job row too early.
func (r *Restore) complete(ctx context.Context, batch sqlstore.BatchWrite, rev int64) error {
	held, raw, err := fence.LoadToken(ctx, r.store)
	if err != nil {
		return err
	}
	next := coder.FenceToken{Sequence: held.Sequence, Term: held.Term + 1, Revision: rev}.Resigned()
	batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), raw)
	if r.compacted > 0 {
		batch.Put(coder.CompactKey(), coder.EncodeInt64(r.compacted))
	}
	return nil
}

func (r *Restore) writeLog(ctx context.Context) error {
	if len(r.log) == 0 {
		return nil
	}
	last := r.log[len(r.log)-1].Revision
	rows := coder.EncodeLog(r.at, r.log)
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
