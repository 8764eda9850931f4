package write

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
)

// A client that attaches a key to a lease, or revokes a lease, must be permitted to write all
// keys of the lease. The sequencer must not read them for every such request. So the verdict is
// reached once, in the goroutine of the request, and remembered. Commits note which keys are
// attached later, and only those are judged again.

const (
	// verdictsKept is how many verdicts are remembered in addition to those that requests wait
	// with.
	verdictsKept = 512
	// UncheckedKeys is how many keys are noted for each verdict. With more it is void.
	UncheckedKeys = 1024
)

// verdicts remembers for users whether they may write all keys of a lease. Safe for concurrent
// use.
type verdicts struct {
	mu    sync.Mutex
	known *simplelru.LRU[verdictOf, *verdict]
	of    map[int64]map[*verdict]struct{} // by lease
	room  int                             // see makeRoom
}

type verdictOf struct {
	lease int64
	who   string
}

// verdict is valid for one version of users and roles. The mutex of verdicts guards fresh and
// void. The other fields are written before reached is closed.
type verdict struct {
	verdictOf
	version int64
	reached chan struct{}
	err     error  // why it could not be reached; the verdict is forgotten then
	left    bool   // because the caller that was to reach it had left
	refused []byte // a key that the user may not write; nil: there is none
	fresh   map[string]struct{}
	void    bool // too many keys were attached since
}

func newVerdicts() (*verdicts, error) {
	vs := &verdicts{of: make(map[int64]map[*verdict]struct{})}
	var err error
	vs.known, err = simplelru.NewLRU(verdictsKept, func(_ verdictOf, v *verdict) {
		delete(vs.of[v.lease], v)
		if len(vs.of[v.lease]) == 0 {
			delete(vs.of, v.lease)
		}
	})
	return vs, err
}

// makeRoom makes room for n verdicts that a request is going to need, or takes it back if n is
// negative. Without that, more than verdictsKept requests would make each other's verdicts
// forgotten, and none would be executed.
func (vs *verdicts) makeRoom(n int) {
	if n == 0 {
		return
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.room += n
	vs.known.Resize(verdictsKept + vs.room)
}

// valid reports whether v is valid for a version of users and roles. The caller must hold the
// mutex.
func (v *verdict) valid(version int64) bool { return v != nil && v.version == version && !v.void }

// get returns a verdict that was reached, and the keys attached since, which the caller must
// judge; nil if there is none.
func (vs *verdicts) get(of verdictOf, version int64) (*verdict, [][]byte) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v, _ := vs.known.Get(of)
	if !v.valid(version) {
		return nil, nil
	}
	select {
	case <-v.reached:
	default:
		return nil, nil
	}
	fresh := make([][]byte, 0, len(v.fresh))
	for k := range v.fresh {
		fresh = append(fresh, []byte(k))
	}
	return v, fresh
}

// judged forgets attached keys that the user may write.
func (vs *verdicts) judged(v *verdict, keys [][]byte) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for _, k := range keys {
		delete(v.fresh, string(k))
	}
}

func (vs *verdicts) forget(v *verdict) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if cur, ok := vs.known.Peek(v.verdictOf); ok && cur == v {
		vs.known.Remove(v.verdictOf)
	}
}

// note records which keys a commit attached to leases.
func (vs *verdicts) note(s *batchState) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if len(vs.of) == 0 {
		return
	}
	for i := range s.changes {
		rec := s.changes[i].rec
		for v := range vs.of[rec.Lease] {
			if v.fresh[string(rec.Key)] = struct{}{}; len(v.fresh) > UncheckedKeys {
				v.void, v.fresh = true, make(map[string]struct{})
			}
		}
	}
}

// errUnpermitted: the permit of a request needs a verdict that has not been reached. Nothing
// was written.
var errUnpermitted = errors.New("write: must be permitted first")

// errKeyRefused stops reaching a verdict at the first key that is not permitted.
var errKeyRefused = errors.New("write: not permitted")

// reach reaches a verdict for a version of users and roles, by calling see with all keys of the
// lease. Concurrent callers share one verdict. Errors: ctx's, the database's.
func (p *Pipeline) reach(ctx context.Context, of verdictOf, version int64, see func(key []byte) error) error {
	vs := p.verdicts
	vs.mu.Lock()
	v, _ := vs.known.Get(of)
	if v.valid(version) {
		vs.mu.Unlock()
		select {
		case <-v.reached:
		case <-ctx.Done():
			return ctx.Err()
		}
		if v.left {
			return p.reach(ctx, of, version, see)
		}
		return v.err
	}
	v = &verdict{verdictOf: of, version: version, reached: make(chan struct{}), fresh: make(map[string]struct{})}
	vs.known.Remove(of)
	vs.known.Add(of, v)
	if vs.of[of.lease] == nil {
		vs.of[of.lease] = make(map[*verdict]struct{})
	}
	vs.of[of.lease][v] = struct{}{}
	vs.mu.Unlock()

	v.err = EachAttached(ctx, p.cfg.Store, of.lease, nil, 0, func(key []byte) error {
		if see(key) != nil {
			v.refused = key
			return errKeyRefused
		}
		return nil
	})
	if errors.Is(v.err, errKeyRefused) {
		v.err = nil
	}
	if v.err != nil {
		v.left = ctx.Err() != nil
		vs.forget(v)
	}
	close(v.reached)
	return v.err
}

// permitView is the auth.View with which a permit reaches verdicts in the goroutine of its
// request.
type permitView struct {
	p    *Pipeline
	rows *auth.Rows // those that the permit judges by, although newer ones may be in force already
	room int        // made for the verdicts
	err  error      // why a verdict could not be reached
}

func (v *permitView) AuthRows() *auth.Rows { return v.rows }

func (v *permitView) MayWriteLease(ctx context.Context, id int64, who string, see func(key []byte) error) error {
	if v.err == nil {
		v.room++
		v.p.verdicts.makeRoom(1)
		v.err = v.p.reach(ctx, verdictOf{id, who}, v.rows.Version, see)
	}
	return v.err
}

// reachVerdicts reaches the verdicts that as needs, and returns the room that was made for them.
// The caller takes it back when the request has been executed, or is not going to be.
func (p *Pipeline) reachVerdicts(ctx context.Context, as auth.Permit) (room int, err error) {
	v := &permitView{p: p, rows: p.cfg.Leader.AuthRows()}
	_ = as.Check(ctx, v) // the sequencer decides later whether as permits the request
	return v.room, v.err
}

// MayWriteLease implements auth.View. It returns errUnpermitted if the verdict must be reached
// first.
func (tx *Tx) MayWriteLease(ctx context.Context, id int64, who string, see func(key []byte) error) error {
	if _, exists := tx.Lease(id); !exists {
		return nil
	}
	for k, ks := range tx.batch.keys {
		if !ks.rec.Tombstone && ks.rec.Lease == id {
			if err := see([]byte(k)); err != nil {
				return err
			}
		}
	}
	v, fresh := tx.batch.p.verdicts.get(verdictOf{id, who}, tx.batch.auth.Version)
	if v == nil {
		return errUnpermitted
	}
	if v.refused != nil {
		err, held := tx.stillRefused(ctx, id, v.refused, see)
		if held || err != nil {
			return err
		}
		tx.batch.p.verdicts.forget(v) // other keys may be refused, or none
		return errUnpermitted
	}
	for i, key := range fresh {
		if err, held := tx.stillRefused(ctx, id, key, see); held || err != nil {
			tx.batch.p.verdicts.judged(v, fresh[:i])
			return err
		}
	}
	tx.batch.p.verdicts.judged(v, fresh)
	return nil
}

// stillRefused reports whether see refuses key and the key is still attached to lease id, and
// returns the error of see. If held is false, the error is the database's.
func (tx *Tx) stillRefused(ctx context.Context, id int64, key []byte,
	see func(key []byte) error) (err error, held bool) {
	refusal := see(key)
	if refusal == nil {
		return nil, false
	}
	var cur *coder.Record
	if cur, err = tx.Get(ctx, key, false); err != nil || cur == nil || cur.Lease != id {
		return err, false
	}
	return refusal, true
}
