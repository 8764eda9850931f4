package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// LoadOptions control how Load and Copy fill a table.
type LoadOptions struct {
	// Replace permits a table that is not empty. No server may serve it.
	Replace bool
	// Bump is added to the revision, unless it is NoBump. 0: the revision is kept in a table that had none, and raised
	// above what another had (repair.Previous.Raise). If it is raised, everything below counts as compacted.
	Bump int64
	// CheckPassword, if not nil, checks each user's password hash. Load refuses a file if
	// CheckPassword returns an error.
	CheckPassword func(hash []byte) error
	// Log, if not nil, continues the versions of the file.
	Log Log
	// Progress, if not nil, is called periodically, by the goroutine that loads.
	Progress func(Progress)
}

// Log is what was committed after a file was made. Its methods are called several times, and give the same each time.
type Log interface {
	// Began returns when the newest version of the file was committed, or an earlier time: none of Versions is earlier.
	Began() time.Time
	// Versions calls f with the versions in the order of revisions, and when each was committed. f may keep them.
	Versions(ctx context.Context, f func(rec *coder.Record, at time.Time) error) error
	// State returns the leases, users and roles that take the place of the file's. users is nil if those stay.
	State() (leases []coder.Lease, users *auth.Change)
	// Lease returns a lease of Versions that State may lack; false if nothing is known of it.
	Lease(id int64) (coder.Lease, bool)
}

// NoBump is the Bump that keeps the revision, whatever the table had.
const NoBump = -1

// raise returns where a store continues whose newest revision is rev.
func (o *LoadOptions) raise(p *repair.Previous, rev int64) (int64, error) {
	switch o.Bump {
	case 0:
		return p.Raise(rev)
	case NoBump:
		return rev, nil
	}
	return repair.Bump(rev, o.Bump)
}

// Progress is how far a load is in its current phase.
type Progress struct {
	Phase       string
	Done, Total int // versions, or keys
}

// Loaded is what a load has written.
type Loaded struct {
	Revision        int64 `json:"revision"`
	CompactRevision int64 `json:"compact_revision"` // 0: nothing was compacted
	// Replaced is the newest revision that the table had before, 0 if it had none.
	Replaced    int64 `json:"replaced_revision,omitempty"`
	Versions    int   `json:"versions"`
	Keys        int   `json:"keys"`
	Leases      int   `json:"leases"`
	Users       int   `json:"users"`
	Roles       int   `json:"roles"`
	AuthEnabled bool  `json:"auth_enabled"`
	// Alarms of the file are not raised again: their members do not exist here.
	Alarms int `json:"alarms_left_out"`
}

// progressEvery is the number of versions between two reports of progress.
const progressEvery = 10_000

// Load fills store, which must be empty unless o.Replace is set, with the content of the file. After an error
// the store cannot be served until another Load has succeeded. The whole file is read
// before the store is changed. Errors: repair.ErrNotEmpty, ErrDamaged, those of
// repair.Restore.
func (s *Saved) Load(ctx context.Context, store sqlstore.Store, o LoadOptions) (l *Loaded, err error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	previous, err := repair.FindPrevious(ctx, store, o.Replace)
	if err != nil {
		return nil, err
	}
	err = s.survey(ctx, o, previous, func(in *loading) error {
		l, err = in.load(store)
		return err
	})
	return l, err
}

// Check reads all that Load would, and log unless that is nil. Errors: those of Load for what it reads.
func (s *Saved) Check(ctx context.Context, log Log) error {
	o := LoadOptions{Log: log, Progress: func(Progress) {}}
	return s.survey(ctx, o, &repair.Previous{}, func(*loading) error { return nil })
}

// survey calls f once everything was read.
func (s *Saved) survey(ctx context.Context, o LoadOptions, previous *repair.Previous, f func(*loading) error) error {
	err := guarded(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			in := &loading{ctx: ctx, tx: tx, options: o, previous: previous, compacted: s.compacted, proved: s.proved,
				kept: make(map[string]revision)}
			if err := in.survey(); err != nil {
				return err
			}
			return f(in)
		})
	})
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return err
}

// loading is one Load.
type loading struct {
	ctx     context.Context
	tx      *bbolt.Tx
	options LoadOptions

	previous  *repair.Previous
	compacted int64 // 0: none
	proved    bool  // as in Saved
	revision  int64
	total     int
	// kept has each key's last change up to the compact revision, the zero revision if the key was deleted
	// before it.
	kept map[string]revision
	at   time.Time // of the current version; the zero time in a file without a log: it does not say

	leases []coder.Lease
	auth   auth.Change
	alarms int
}

// revision is that of one change, as etcd has it.
type revision struct {
	main int64
	sub  int32
}

// survey reads everything once, to find damage, and versions that compaction would have
// removed.
func (in *loading) survey() error {
	newest := int64(0)
	err := in.versions(func(rev int64, _ *coder.Record) error {
		// Each revision after the compact revision changed something. A gap reveals a page of
		// an older state of the file, which its structure does not show.
		if before := max(newest, in.compacted, 1); !in.proved && rev > before+1 {
			return damaged("the revisions between %d and %d are missing", before, rev)
		}
		newest = rev
		in.total++
		return nil
	})
	if err != nil {
		return err
	}
	newest = max(newest, in.compacted, 1)
	if in.revision, err = in.options.raise(in.previous, newest); err != nil {
		return err
	}
	if in.revision > newest {
		in.compacted = in.revision
	}
	seen, current := 0, int64(0)
	var changed map[string]bool    // the keys of the current revision
	held := make(map[string]int64) // by key, if there is a log
	err = in.versions(func(rev int64, r *coder.Record) error {
		if seen++; seen%progressEvery == 0 {
			in.options.Progress(Progress{"checking", seen, in.total})
		}
		if r == nil {
			return nil
		}
		switch {
		case in.options.Log == nil:
		case r.Tombstone || r.Lease == 0:
			delete(held, string(r.Key))
		default:
			held[string(r.Key)] = r.Lease
		}
		if err := coder.CheckKey(r.Key); err != nil {
			return fmt.Errorf("the key %.100q of revision %d: %w", r.Key, rev, err)
		}
		switch {
		case rev > in.compacted:
			if rev != current {
				current, changed = rev, make(map[string]bool)
			}
			// One transaction of etcd may do that. A table has one version row for a key and a revision. Compacted at
			// this revision itself, etcd loses a key that was deleted and put.
			if changed[string(r.Key)] {
				return fmt.Errorf("revision %d changes the key %.100q twice: compact etcd above this revision, and take "+
					"the snapshot again, or restore with --bump-revision", rev, r.Key)
			}
			changed[string(r.Key)] = true
		case r.Tombstone && rev < in.compacted:
			in.kept[string(r.Key)] = revision{}
		default:
			in.kept[string(r.Key)] = revision{rev, r.Sub}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = errors.Join(in.readLeases(), in.readAuth(), in.forEach(bucketAlarm, func(_, _ []byte) error {
		in.alarms++
		return nil
	}))
	if err != nil || in.options.Log == nil {
		return err
	}
	ofFile := in.leases
	if leases, users := in.options.Log.State(); users != nil {
		in.leases, in.auth = leases, *users
	}
	for name, content := range in.auth.Users {
		if err := in.checkUser(name, content); err != nil {
			return err
		}
	}
	in.addLeases(held, ofFile)
	return nil
}

// unknownTTL is the TTL of a lease that keys have and that nothing is known of: it ended before the log's leases were
// read. In seconds.
const unknownTTL = 60

// addLeases adds those that keys hold and that are missing: else the keys would never expire. It clears Revoking.
func (in *loading) addLeases(held map[string]int64, ofFile []coder.Lease) {
	known, old := make(map[int64]bool), make(map[int64]coder.Lease)
	for _, l := range in.leases {
		known[l.ID] = true
	}
	for _, l := range ofFile {
		old[l.ID] = l
	}
	for _, id := range held {
		if known[id] {
			continue
		}
		known[id] = true
		l, ok := in.options.Log.Lease(id)
		if !ok {
			l, ok = old[id]
		}
		if !ok {
			l = coder.Lease{ID: id, TTL: unknownTTL}
		}
		in.leases = append(in.leases, l)
	}
	for i := range in.leases {
		in.leases[i].Revoking = false // that may have begun after the moment
	}
}

// versions calls f with the versions in the order of revisions; see decodeVersion. f may
// keep them.
func (in *loading) versions(f func(rev int64, r *coder.Record) error) error {
	var last []byte
	n := 0
	if in.options.Log != nil {
		in.at = in.options.Log.Began()
	}
	err := in.forEach(bucketKey, func(k, v []byte) error {
		if n++; n%1000 == 0 {
			if err := in.ctx.Err(); err != nil {
				return err
			}
		}
		if bytes.Compare(k, last) <= 0 {
			return damaged("the revision %x follows %x", k, last)
		}
		last = append(last[:0], k...)
		rev, r, err := decodeVersion(k, v)
		if err != nil {
			return err
		}
		return f(rev, r)
	})
	if err != nil || in.options.Log == nil {
		return err
	}
	return in.options.Log.Versions(in.ctx, func(rec *coder.Record, at time.Time) error {
		in.at = at
		return f(rec.ModRevision, rec)
	})
}

func (in *loading) forEach(bucket []byte, f func(k, v []byte) error) error {
	b := in.tx.Bucket(bucket)
	if b == nil {
		return nil // files of older etcds
	}
	return b.ForEach(f)
}

func (in *loading) readLeases() error {
	return in.forEach(bucketLease, func(k, v []byte) error {
		id, err := uint64From(k)
		if err != nil {
			return err
		}
		row := &leasepb.Lease{}
		if err := proto.Unmarshal(v, row); err != nil {
			return damaged("the lease %x: %v", id, err)
		}
		if row.ID != int64(id) || row.ID == 0 || row.TTL < 1 || row.TTL > lease.MaxTTL || row.RemainingTTL < 0 {
			return damaged("the lease %x has the id %x and a TTL of %d s", id, uint64(row.ID), row.TTL)
		}
		in.leases = append(in.leases, coder.Lease{ID: row.ID, TTL: row.TTL, Remaining: min(row.RemainingTTL, row.TTL)})
		return nil
	})
}

func (in *loading) readAuth() error {
	in.auth = auth.Change{Users: make(map[string][]byte), Roles: make(map[string][]byte)}
	if b := in.tx.Bucket(bucketAuth); b != nil {
		in.auth.Enabled = bytes.Equal(b.Get(authEnabled), []byte{1})
		if raw := b.Get(authRevision); raw != nil {
			rev, err := uint64From(raw)
			if err != nil {
				return err
			}
			in.auth.Revision = int64(rev)
		}
	}
	err := in.forEach(bucketAuthUsers, func(k, v []byte) error {
		in.auth.Users[string(k)] = bytes.Clone(v)
		return in.checkUser(string(k), v)
	})
	if err != nil {
		return err
	}
	return in.forEach(bucketAuthRoles, func(k, v []byte) error {
		r := &authpb.Role{}
		if err := proto.Unmarshal(v, r); err != nil || !bytes.Equal(r.Name, k) {
			return damaged("the role %.100q cannot be read", k)
		}
		in.auth.Roles[string(k)] = bytes.Clone(v)
		return nil
	})
}

func (in *loading) checkUser(name string, content []byte) error {
	u := &authpb.User{}
	if err := proto.Unmarshal(content, u); err != nil || string(u.Name) != name {
		return damaged("the user %.100q cannot be read", name)
	}
	if in.options.CheckPassword != nil {
		if err := in.options.CheckPassword(u.Password); err != nil {
			return fmt.Errorf("the user %.100q: %w", name, err)
		}
	}
	return nil
}

func (in *loading) load(store sqlstore.Store) (*Loaded, error) {
	r, err := in.previous.Begin(in.ctx, store, in.compacted)
	if err != nil {
		return nil, err
	}
	l := &Loaded{
		CompactRevision: in.compacted, Replaced: in.previous.Revision, Leases: len(in.leases), Users: len(in.auth.Users),
		Roles:       len(in.auth.Roles),
		AuthEnabled: in.auth.Enabled, Alarms: in.alarms,
	}
	seen := 0
	err = in.versions(func(rev int64, rec *coder.Record) error {
		if seen++; seen%progressEvery == 0 {
			in.options.Progress(Progress{"writing", seen, in.total})
		}
		if rec == nil || rev <= in.compacted && in.kept[string(rec.Key)] != (revision{rev, rec.Sub}) {
			return nil
		}
		l.Versions++
		if in.at.IsZero() {
			return r.Put(in.ctx, rec)
		}
		return r.PutAt(in.ctx, rec, in.at)
	})
	if err != nil {
		return nil, err
	}
	for _, row := range in.leases {
		if err := r.Lease(in.ctx, row); err != nil {
			return nil, err
		}
	}
	if err := r.Auth(in.ctx, &in.auth); err != nil {
		return nil, err
	}
	l.Keys, l.Revision, err = r.Finish(in.ctx, in.revision, func(keys int) {
		in.options.Progress(Progress{"indexing", keys, r.Keys()})
	})
	return l, err
}
