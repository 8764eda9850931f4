package backend

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
)

// A transaction that puts a key if it does not exist is nearly always right about
// that, and the commit finds out anyway: it creates the key's index row, which
// conflicts if there is one. So such a key is not read ahead, which for keys that
// the index cache cannot know would be a statement for nothing. It is presumed
// absent while its command is evaluated. If that shows in anything but the creation
// of the key, the command is evaluated again on what the table holds; if the commit
// conflicts, the whole batch is.

// errPresumed: a key that was presumed absent was found while its command was
// evaluated, or a commit conflicted that presumed some. Nothing was written.
var errPresumed = errors.New("backend: a key was presumed absent that may exist")

// presumePause is for how many keys nothing is presumed once one was there: whoever
// creates what exists all the time pays with a read each, not with a batch.
const presumePause = 1024

// presumptions says whether keys may be presumed absent. Safe for concurrent use.
type presumptions struct {
	pause atomic.Int64 // so many keys are read ahead first
}

// hold reports whether they may.
func (p *presumptions) hold() bool { return p.pause.Load() <= 0 }

// holdFor is hold for one who reads n keys if they may not.
func (p *presumptions) holdFor(n int) bool {
	return n == 0 || p.hold() || p.pause.Add(int64(-n)) < 0
}

// loadFresh makes sure that the index cache knows the keys that requests expect to
// be absent. Failing is no error, as in readAhead.
func (l *leader) loadFresh(ctx context.Context, requests []*request) {
	var keys [][]byte
	for _, r := range requests {
		_, fresh := r.cmd.touches()
		keys = append(keys, fresh...)
	}
	l.readKeys(ctx, keys)
}

// judgePresumptions looks at the keys that s presumed absent, now that its commit
// conflicted. The index cache knows them then.
func (l *leader) judgePresumptions(ctx context.Context, s *batchState) {
	l.readKeys(ctx, s.presumed)
	if slices.ContainsFunc(s.presumed, func(key []byte) bool {
		e, known := l.index.get(string(key))
		return !known || e.exists
	}) {
		l.presumptions.pause.Store(presumePause)
		l.metrics.presumedWrongly.Inc()
	}
}

// presumeAbsent reports whether key is to be taken to be absent: the command
// expects it, and the index cache has no idea.
func (st *stage) presumeAbsent(key []byte) bool {
	expected := slices.ContainsFunc(st.fresh, func(k []byte) bool { return bytes.Equal(k, key) })
	if !expected || st.l.index.knows(key) {
		return false
	}
	if !st.presumedAbsent(key) {
		st.ownPresumed = append(st.ownPresumed, key)
	}
	return true
}

// presumedAbsent reports whether the command took key to be absent.
func (st *stage) presumedAbsent(key []byte) bool {
	return slices.ContainsFunc(st.ownPresumed, func(k []byte) bool { return bytes.Equal(k, key) })
}

// unproven reports whether the stage's outcome rests on the absence of a key that
// it does not create, so that no commit would prove it.
func (st *stage) unproven() bool {
	return slices.ContainsFunc(st.ownPresumed, func(key []byte) bool { return st.local[string(key)] == nil })
}
