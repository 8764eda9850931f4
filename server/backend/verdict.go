package backend

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/coder"
)

// A caller that puts a key with a lease, or revokes one, must be permitted to write all keys
// that the lease holds. The sequencer must not read them for every such request, so
// their verdict is reached once, in the goroutine of the request, and remembered:
// commits note which keys are attached later, and only those are judged again.

const (
	// verdictsKept bounds the verdicts remembered, and verdictKeys the keys noted for
	// each: if there are more it is reached anew.
	verdictsKept = 512
	verdictKeys  = 1024
)

// verdicts remembers for users whether they may write all keys of a lease.
type verdicts struct {
	mu    sync.Mutex
	known *simplelru.LRU[verdictOf, *verdict]
	of    map[int64]map[*verdict]struct{} // by lease
}

type verdictOf struct {
	lease int64
	who   string
}

// verdict is valid for one version of users and roles. The mutex of the verdicts
// guards fresh and void; the rest is written before reached is closed.
type verdict struct {
	verdictOf
	version int64
	reached chan struct{}
	err     error  // why reaching it failed; it is forgotten then
	refused []byte // the key that the user may not write, nil: there is none
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

// valid reports whether v holds for users and roles of that version. The caller must
// hold the mutex.
func (v *verdict) valid(version int64) bool { return v != nil && v.version == version && !v.void }

// get returns the verdict that was reached, and the keys attached since, which the
// caller judges; nil if there is none.
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

// judged forgets keys that were found to be permitted.
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
			if v.fresh[string(rec.Key)] = struct{}{}; len(v.fresh) > verdictKeys {
				v.void, v.fresh = true, make(map[string]struct{})
			}
		}
	}
}

// errUnpermitted: the permit of a request needs a verdict that was not reached.
// Nothing was written.
var errUnpermitted = errors.New("backend: must be permitted first")

// errKeyRefused ends reaching a verdict at the first key that is not permitted.
var errKeyRefused = errors.New("backend: not permitted")

// reach returns once the verdict of whether who may write all keys of lease id, by
// see, has been reached for that version of users and roles. Many callers wait for
// one.
func (l *leader) reach(ctx context.Context, of verdictOf, version int64, see func(key []byte) error) error {
	vs := l.verdicts
	vs.mu.Lock()
	v, _ := vs.known.Get(of)
	if v.valid(version) {
		vs.mu.Unlock()
		select {
		case <-v.reached:
			return v.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	v = &verdict{verdictOf: of, version: version, reached: make(chan struct{}), fresh: make(map[string]struct{})}
	vs.known.Remove(of)
	vs.known.Add(of, v)
	if vs.of[of.lease] == nil {
		vs.of[of.lease] = make(map[*verdict]struct{})
	}
	vs.of[of.lease][v] = struct{}{}
	vs.mu.Unlock()

	v.err = l.eachAttached(ctx, of.lease, nil, 0, func(key []byte) error {
		if see(key) != nil {
			v.refused = key
			return errKeyRefused
		}
		return nil
	})
	if errors.Is(v.err, errKeyRefused) {
		v.err = nil
	}
	close(v.reached)
	if v.err != nil {
		vs.forget(v)
	}
	return v.err
}

// permitView is what a permit looks at in the goroutine of its request, to reach
// verdicts.
type permitView struct{ l *leader }

var _ AuthView = permitView{}

func (p permitView) AuthRows() *AuthRows { return p.l.AuthRows() }

func (p permitView) MayWriteLease(ctx context.Context, id int64, who string, see func(key []byte) error) error {
	if err := p.l.reach(ctx, verdictOf{id, who}, p.l.AuthRows().Version, see); err != nil {
		return &unreachedError{err}
	}
	return nil
}

// unreachedError: a verdict could not be reached.
type unreachedError struct{ error }

func (e *unreachedError) Unwrap() error { return e.error }

// reachVerdicts has p reach the verdicts that its request needs. What p says is left
// to the sequencer to judge.
func (l *leader) reachVerdicts(ctx context.Context, p Permit) error {
	var failed *unreachedError
	if err := p(ctx, permitView{l}); errors.As(err, &failed) {
		return failed.error
	}
	return nil
}

// MayWriteLease implements AuthView. It returns errUnpermitted if the verdict is to be
// reached first.
func (st *stage) MayWriteLease(ctx context.Context, id int64, who string, see func(key []byte) error) error {
	if !st.leaseExists(id) {
		return nil
	}
	for k, ks := range st.keys {
		if !ks.rec.Tombstone && ks.rec.Lease == id {
			if err := see([]byte(k)); err != nil {
				return err
			}
		}
	}
	v, fresh := st.l.verdicts.get(verdictOf{id, who}, st.auth.Version)
	if v == nil {
		return errUnpermitted
	}
	if v.refused != nil {
		err, held := st.stillRefused(ctx, id, v.refused, see)
		if held || err != nil {
			return err
		}
		st.l.verdicts.forget(v) // other keys may be refused, or none
		return errUnpermitted
	}
	for i, key := range fresh {
		if err, held := st.stillRefused(ctx, id, key, see); held || err != nil {
			st.l.verdicts.judged(v, fresh[:i])
			return err
		}
	}
	st.l.verdicts.judged(v, fresh)
	return nil
}

// stillRefused reports whether see refuses key, with what error, and lease id holds
// it. Without held, the error is the database's.
func (st *stage) stillRefused(ctx context.Context, id int64, key []byte, see func(key []byte) error) (err error, held bool) {
	refusal := see(key)
	if refusal == nil {
		return nil, false
	}
	var cur *coder.Record
	if cur, err = st.current(ctx, key); err != nil || cur == nil || cur.Lease != id {
		return err, false
	}
	return refusal, true
}
