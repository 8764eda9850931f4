package workload

import (
	"fmt"
	"sync"
	"sync/atomic"
)

const (
	keptFailures = 20        // failures described in the report
	keptItems    = 4_000_000 // keys of answers kept for a later check
)

// item is one key of an answer.
type item struct {
	object *object
	state  state
}

// reading is an answer to a single-key read: the object at a revision.
type reading struct {
	object *object
	rev    int64
	found  bool
	state  state
}

// listing is an answer to a whole list: all pages, at one revision.
type listing struct {
	prefix string
	rev    int64
	items  []item
	count  int64 // of the first page
	begun  bool  // only the first pages, because the time was over
}

// verifier compares answers with the model. Safe for concurrent use.
type verifier struct {
	model                   *model
	answers, keys           atomic.Int64
	events, skipped, failed atomic.Int64
	missing, unexpected     atomic.Int64 // events
	different               atomic.Int64 // events

	mu       sync.Mutex
	failures []string
	readings []reading  // to be checked when nothing is being written
	listings []*listing // the same
	kept     int        // keys in listings
}

func (v *verifier) fail(format string, args ...any) {
	v.failed.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.failures) < keptFailures {
		v.failures = append(v.failures, fmt.Sprintf(format, args...))
	}
}

// revision checks that an answer is not older than least, which follows from
// what was answered before the request was sent, and takes note of it.
func (v *verifier) revision(what string, rev, least int64) {
	if rev < least {
		v.fail("%s: answered at revision %d, want at least %d", what, rev, least)
	}
	v.model.see(rev)
}

// reading checks r now, or keeps it for settle if the object is being written.
func (v *verifier) reading(r reading) {
	if !v.tryReading(r) {
		v.mu.Lock()
		v.readings = append(v.readings, r)
		v.mu.Unlock()
	}
}

func (v *verifier) tryReading(r reading) bool {
	want, live, known, lost := r.object.settled(r.rev)
	switch {
	case lost:
		v.skipped.Add(1)
		return true
	case !known:
		return false
	}
	v.answers.Add(1)
	switch {
	case live != r.found:
		v.fail("get %s at %d: found is %t, want %t", r.object.key, r.rev, r.found, live)
	case r.found && r.state != want:
		v.fail("get %s at %d: %v, want %v", r.object.key, r.rev, r.state, want)
	}
	if r.found {
		v.keys.Add(1)
	}
	return true
}

// later keeps l for settle.
func (v *verifier) later(l *listing) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept+len(l.items) > keptItems {
		v.skipped.Add(1)
		return
	}
	v.kept += len(l.items)
	v.listings = append(v.listings, l)
}

// settle checks the answers that were kept for later. No write may be in progress.
func (v *verifier) settle() {
	v.mu.Lock()
	readings, listings := v.readings, v.listings
	v.readings, v.listings, v.kept = nil, nil, 0
	v.mu.Unlock()
	for _, r := range readings {
		if !v.tryReading(r) {
			v.fail("get %s: still being written at the end", r.object.key)
		}
	}
	sorted := map[string][]*object{}
	for _, l := range listings {
		if sorted[l.prefix] == nil {
			sorted[l.prefix] = v.model.sorted(l.prefix)
		}
		v.listing(l, sorted[l.prefix])
	}
}

// listing checks l against objects, which are all those below l.prefix in key
// order. Objects of unknown state are left out on both sides.
func (v *verifier) listing(l *listing, objects []*object) {
	v.answers.Add(1)
	v.keys.Add(int64(len(l.items)))
	items, exact := l.items, true
	want := int64(0)
	for _, o := range objects {
		s, live, known, lost := o.settled(l.rev)
		for lost && len(items) > 0 && items[0].object == o {
			items = items[1:]
		}
		switch {
		case lost:
			exact = false
			continue
		case !known:
			v.fail("list %s: %s is still being written", l.prefix, o.key)
			return
		case !live:
			continue
		}
		want++
		if l.begun && len(items) == 0 {
			continue
		}
		if len(items) == 0 || items[0].object != o {
			v.fail("list %s at %d: %s is missing", l.prefix, l.rev, o.key)
			return
		}
		got := items[0].state
		if got != s {
			v.fail("list %s at %d: %s is %v, want %v", l.prefix, l.rev, o.key, got, s)
		}
		items = items[1:]
	}
	if len(items) > 0 {
		v.fail("list %s at %d: %s should not be there", l.prefix, l.rev, items[0].object.key)
	}
	if !exact {
		want = l.count // an unknown object may or may not count
	}
	if l.count != want {
		v.fail("list %s at %d: count %d, want %d", l.prefix, l.rev, l.count, want)
	}
}

// counted checks the answer to a count, which must be want if known is true.
func (v *verifier) counted(prefix string, rev, got, want int64, known bool) {
	v.answers.Add(1)
	switch {
	case !known:
		v.skipped.Add(1)
	case got != want:
		v.fail("count %s at %d: %d, want %d", prefix, rev, got, want)
	}
}

// difference counts the events that got lacks, those that it should not have or has twice, and those
// that came with another content.
func (v *verifier) difference(got, want []event) {
	type id struct {
		object *object
		mod    int64
	}
	missing := make(map[id]event, len(want))
	for _, e := range want {
		missing[id{e.object, e.now.mod}] = e
	}
	for _, e := range got {
		expected, ok := missing[id{e.object, e.now.mod}]
		switch {
		case !ok:
			v.unexpected.Add(1)
		case e != expected:
			v.different.Add(1)
		}
		delete(missing, id{e.object, e.now.mod})
	}
	v.missing.Add(int64(len(missing)))
}

// live returns how many of the objects exist at rev, unless the state of one is
// unknown.
func live(objects []*object, rev int64) (n int64, known bool) {
	for _, o := range objects {
		_, live, _, lost := o.settled(rev)
		if lost {
			return 0, false
		}
		if live {
			n++
		}
	}
	return n, true
}

func (v *verifier) report() Verification {
	_, lost := v.model.revisions()
	v.mu.Lock()
	defer v.mu.Unlock()
	return Verification{
		Answers: v.answers.Load(), Keys: v.keys.Load(), Events: v.events.Load(), Skipped: v.skipped.Load(), Lost: int64(lost),
		Missing: v.missing.Load(), Unexpected: v.unexpected.Load(), Different: v.different.Load(),
		Failed: v.failed.Load(), Failures: v.failures,
	}
}
