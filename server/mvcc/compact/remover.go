package compact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// ErrStalled says that no compacted rows were removed for the Deadline of the Remover.
var ErrStalled = errors.New("no compacted rows were removed")

const (
	// DefaultPatience is far longer than removing one chunk takes.
	DefaultPatience = 30 * time.Second
	// chunkRows is how many rows one statement or transaction removes, exclusiveRows where commits wait for it.
	chunkRows, exclusiveRows = 500, 125
	// maxRest is the longest pause after a chunk.
	maxRest = time.Second
)

// Config configures a Remover.
type Config struct {
	Store    sqlstore.Store
	Revision func() int64 // returns the compact revision, -1 if nothing was compacted
	// Claim writes the claim row, in a commit of the leader.
	Claim func(ctx context.Context, claim []byte) error
	// TombstonesRemoved is notified of the index rows that were removed.
	TombstonesRemoved func(tombstones []coder.Change)
	Count             *quota.Count
	Exclusive         bool // the store makes one commit at a time: those of clients wait for a chunk
	Deadline          time.Duration
	Logger            *slog.Logger
	Metrics           *Metrics
}

// Metrics are the metrics of removing rows. They outlive a Remover.
type Metrics struct {
	rows, errors prometheus.Counter
	lag          prometheus.Gauge
}

// NewMetrics creates the metrics on r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	make := promauto.With(r)
	return &Metrics{
		rows: make.NewCounter(prometheus.CounterOpts{Name: "sqlbrain_compaction_removed_rows_total",
			Help: "Rows removed by compaction."}),
		errors: make.NewCounter(prometheus.CounterOpts{Name: "sqlbrain_compaction_errors_total",
			Help: "Failed attempts to remove compacted rows."}),
		lag: make.NewGauge(prometheus.GaugeOpts{
			Name: "sqlbrain_compaction_lag_revisions",
			Help: "Revisions up to the compact revision whose garbage is not removed yet.",
		}),
	}
}

// Remover removes the rows that no readable revision needs, as etcd does: of each key all
// versions up to the compact revision except for the newest, and that too if it is a
// tombstone below the compact revision. A watch may start at the compact revision, so what
// that revision wrote stays, with its log row, until the next compaction.
//
// Its work list are the log rows: each names the versions that its commit replaced. It
// removes a log row after the rows that it names, so that it continues after a restart
// where it stopped. The work is proportional to the number of rows to remove. After each
// chunk the Remover pauses for as long as the chunk took, at most a second, so that
// clients get the database too. Safe for concurrent use.
//
// Each chunk adds the bytes of its rows to the removed row (quota.Count). Their lengths are read before, in a statement
// for all of them.
//
// Rows are removed outside the fenced commits, on the basis of rows that were read before.
// If the database then loses the commits that replaced the versions, those versions are needed
// again. Therefore the Remover first writes a random number, its claim, to the claim row, in a
// commit of the leader. Each chunk is removed on condition that the row still holds the claim,
// and raises it by one: databases that accept writes on several servers check only rows that a
// commit changes. The table holds the claim only as long as it holds all commits before it. A
// later compaction does not change the claim, so that it does not interrupt the removal.
type Remover struct {
	cfg  Config
	wake chan struct{}

	mu       sync.Mutex
	done     int64         // all rows are removed up to this revision
	progress chan struct{} // closed, and replaced, when rows were removed
	failure  error         // of the newest attempt

	inDoubt *inDoubt // the last removal, if its outcome is unknown; Run's
}

// NewRemover returns a Remover that begins with what an earlier process left.
func NewRemover(cfg Config) *Remover {
	r := &Remover{cfg: cfg, wake: make(chan struct{}, 1), done: -1, progress: make(chan struct{})}
	r.Wake()
	return r
}

// Wake notifies Run that the compact revision has risen.
func (r *Remover) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Wait returns once all rows that a compaction at rev makes unnecessary are removed, or ended is closed, which it
// reports as false. It waits as long as rows are being removed. Errors: ErrStalled, ctx's.
func (r *Remover) Wait(ctx context.Context, rev int64, ended <-chan struct{}) (removed bool, err error) {
	deadline := time.NewTimer(r.cfg.Deadline)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		done, progress, failure := r.done, r.progress, r.failure
		r.mu.Unlock()
		if done >= rev {
			return true, nil
		}
		select {
		case <-progress:
			deadline.Reset(r.cfg.Deadline)
		case <-ended:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-deadline.C:
			r.cfg.Logger.Warn("a physical compaction is answered before its rows are gone, removing them continues", "revision",
				rev, "error", failure)
			return false, fmt.Errorf("%w for %s", ErrStalled, r.cfg.Deadline)
		}
	}
}

// recordAttempt records an attempt to remove rows, after which those of a compaction at done are removed.
func (r *Remover) recordAttempt(done int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done, r.failure = max(r.done, done), err
	if err == nil {
		close(r.progress)
		r.progress = make(chan struct{})
	}
}

// Run removes rows whenever the compact revision has risen, until ctx ends.
func (r *Remover) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for failures := 1; ; failures++ {
			rev := r.cfg.Revision()
			err := r.removeUpTo(ctx, rev)
			if err == nil {
				r.recordAttempt(rev, nil)
				break
			}
			if ctx.Err() != nil {
				return
			}
			r.recordAttempt(-1, err)
			r.cfg.Metrics.errors.Inc()
			r.cfg.Logger.Warn("removing compacted rows failed, trying again", "revision", rev, "error", err)
			if retry.Database.Wait(ctx, failures) != nil {
				return
			}
		}
	}
}

// removeUpTo works through the changes up to rev, the compact revision.
func (r *Remover) removeUpTo(ctx context.Context, rev int64) error {
	if rev <= 0 {
		return nil
	}
	lo, hi := coder.LogBounds(0, math.MaxInt64)
	chunk, most := &garbage{}, chunkRows
	if r.cfg.Exclusive {
		most = exclusiveRows
	}
log:
	for row, err := range r.cfg.Store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return err
		}
		newest, _, err := coder.DecodeLogKey(row.Key)
		if err != nil {
			return err
		}
		r.cfg.Metrics.lag.Set(float64(max(rev-newest, 0)))
		changes, err := coder.DecodeLog(row.Value)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if change.Revision > rev {
				break log
			}
			chunk.add(change, rev)
			if chunk.len() >= most {
				if err := r.remove(ctx, chunk); err != nil {
					return err
				}
			}
		}
		if newest < rev {
			chunk.rows = append(chunk.rows, row.Key)
		}
	}
	if chunk.len() > 0 {
		if err := r.remove(ctx, chunk); err != nil {
			return err
		}
	}
	r.cfg.Metrics.lag.Set(0)
	return nil
}

// garbage is a chunk of rows to remove.
type garbage struct {
	claim      int64  // what the claim row must hold; 0: it is not written yet
	removed    []byte // what the removed row holds, nil: there is none; known with a claim
	rows       [][]byte
	tombstones []coder.Change // their index rows go too, if they are still the newest
}

func (g *garbage) len() int { return len(g.rows) + len(g.tombstones) }

// add adds the rows that a change up to rev, the compact revision, made unnecessary: the
// version row that it replaced and, if it is a tombstone below rev, its index row.
func (g *garbage) add(c coder.Change, rev int64) {
	if prev := max(c.PrevRevision, c.PrevTombstone); prev > 0 {
		g.rows = append(g.rows, coder.EncodeVersionKey(c.Key, prev))
	}
	if c.Tombstone && c.Revision < rev {
		c.Key = bytes.Clone(c.Key) // it must not keep the log row
		g.tombstones = append(g.tombstones, c)
	}
}

// inDoubt is a removal of unknown outcome.
type inDoubt struct {
	removed    []byte         // what the removed row holds if it took effect
	tombstones []coder.Change // whose index rows it removed then
}

// claim writes the claim row, unless g has a claim. From then on no earlier removal can take effect, so that the
// outcome of the last one is known, and what the removed row holds.
func (r *Remover) claim(ctx context.Context, g *garbage) error {
	if g.claim != 0 {
		return nil
	}
	claim := 1 + rand.Int64N(math.MaxInt64-1)
	if err := r.cfg.Claim(ctx, coder.EncodeInt64(claim)); err != nil {
		return fmt.Errorf("writing the claim: %w", err)
	}
	removed, err := r.cfg.Store.Get(ctx, coder.RemovedKey())
	if err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound) {
		return err
	}
	if r.inDoubt != nil && bytes.Equal(removed, r.inDoubt.removed) {
		r.cfg.TombstonesRemoved(r.inDoubt.tombstones)
	}
	r.inDoubt = nil
	g.claim, g.removed = claim, removed
	return nil
}

// remove removes the chunk's rows and empties it.
func (r *Remover) remove(ctx context.Context, g *garbage) error {
	started := time.Now()
	if err := r.claim(ctx, g); err != nil {
		return err
	}
	next := garbage{claim: g.claim + 1}
	keys := make([][]byte, len(g.tombstones))
	for i, t := range g.tombstones {
		keys[i] = coder.EncodeIndexKey(t.Key)
	}
	rows, err := r.cfg.Count.Remove(ctx, keys, func() (rows []quota.RemovedRow, err error) {
		batch := r.cfg.Store.BeginBatchWrite()
		if rows, err = r.addRows(ctx, g.rows, batch); err != nil {
			return nil, err
		}
		index, tombstones, err := r.addIndexRows(ctx, g.tombstones, batch)
		if err != nil {
			return nil, err
		}
		rows = append(rows, index...)
		batch.CAS(coder.ClaimKey(), coder.EncodeInt64(next.claim), coder.EncodeInt64(g.claim))
		if next.removed, err = addBytes(g.removed, rows, batch); err != nil {
			return nil, err
		}
		// Removing a row twice is harmless, so after an unknown outcome the log rows that are left are read again.
		err = batch.Commit(ctx)
		if errors.Is(err, sqlstore.ErrUncertain) {
			r.inDoubt = &inDoubt{next.removed, tombstones}
		}
		if err == nil {
			r.cfg.TombstonesRemoved(tombstones)
		}
		return rows, err
	})
	if err != nil {
		return err
	}
	r.recordAttempt(-1, nil)
	r.cfg.Metrics.rows.Add(float64(len(rows)))
	*g = next
	return retry.Sleep(ctx, min(time.Since(started), maxRest))
}

// addBytes adds the bytes of rows to the removed row, which holds removed, and returns what it holds then.
func addBytes(removed []byte, rows []quota.RemovedRow, batch sqlstore.BatchWrite) ([]byte, error) {
	var sum, before int64
	for _, row := range rows {
		sum += row.Bytes
	}
	if sum == 0 {
		return removed, nil
	}
	if removed == nil {
		value := coder.EncodeInt64(sum)
		batch.PutIfNotExist(coder.RemovedKey(), value)
		return value, nil
	}
	before, err := coder.DecodeInt64(removed)
	if err != nil {
		return nil, fmt.Errorf("reading the removed row: %w", err)
	}
	value := coder.EncodeInt64(before + sum)
	batch.CAS(coder.RemovedKey(), value, removed)
	return value, nil
}

// addRows adds rows, which never change, as far as they exist.
func (r *Remover) addRows(ctx context.Context, keys [][]byte, batch sqlstore.BatchWrite) ([]quota.RemovedRow, error) {
	// A batch takes a key once, and damaged log rows may name a version twice.
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	lengths, err := r.cfg.Store.Lengths(ctx, keys)
	if err != nil {
		return nil, err
	}
	rows := make([]quota.RemovedRow, 0, len(keys))
	for i, key := range keys {
		if lengths[i] >= 0 {
			batch.Del(key)
			rows = append(rows, quota.RemovedRow{Key: key, Bytes: int64(len(key) + lengths[i])})
		}
	}
	return rows, nil
}

// addIndexRows adds the index rows of keys that are still deleted, and returns them. Each is removed
// only if it did not change. The sequencer may create the key again at any time. It
// then finds the tombstone or nothing, to the same effect.
func (r *Remover) addIndexRows(ctx context.Context, tombstones []coder.Change, batch sqlstore.BatchWrite) (
	rows []quota.RemovedRow, removed []coder.Change, err error) {
	if len(tombstones) == 0 {
		return nil, nil, nil
	}
	newest := make(map[string]coder.Change, len(tombstones))
	for _, t := range tombstones {
		newest[string(t.Key)] = t
	}
	keys := make([][]byte, 0, len(newest))
	changes := make([]coder.Change, 0, len(newest))
	for k, t := range newest {
		keys = append(keys, coder.EncodeIndexKey([]byte(k)))
		changes = append(changes, t)
	}
	values, err := r.cfg.Store.MultiGet(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	for i, v := range values {
		if v == nil {
			continue
		}
		x, err := coder.DecodeIndex(v)
		if err != nil {
			return nil, nil, err
		}
		if x.Tombstone && x.ModRevision == changes[i].Revision {
			batch.DelCurrent(keys[i], v)
			rows = append(rows, quota.RemovedRow{Key: keys[i], Bytes: int64(len(keys[i]) + len(v)), Index: true})
			removed = append(removed, changes[i])
		}
	}
	return rows, removed, nil
}
