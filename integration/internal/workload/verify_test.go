package workload

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// testRunner returns a runner without connections, on a store at revision 10.
func testRunner() *runner {
	m := newModel(&generator{seed: 1, prefix: "/r"}, false)
	m.see(10)
	return &runner{cfg: DefaultConfig(), model: m, verify: &verifier{model: m}, clients: []*clientv3.Client{nil}}
}

// testHistory is a model of three objects: a is created at 11 and updated at
// 14; b created at 12, deleted at 15, created again at 16; c created at 13.
func testHistory() (r *runner, a, b, c *object) {
	r = testRunner()
	a, b, c = r.model.add(0), r.model.add(0), r.model.add(0)
	put := func(o *object, mod, create, ver int64) {
		r.model.commit(o, version{state: state{mod: mod, create: create, version: ver, hash: uint64(mod), size: 9}})
	}
	put(a, 11, 11, 1)
	put(b, 12, 12, 1)
	put(c, 13, 13, 1)
	put(a, 14, 11, 2)
	r.model.commit(b, version{state: state{mod: 15}, deleted: true})
	put(b, 16, 16, 1)
	return r, a, b, c
}

func listed(r *runner, rev int64) *listing {
	l := &listing{prefix: "/r/", rev: rev}
	for _, o := range r.model.sorted(l.prefix) {
		if s, live, _, _ := o.settled(rev); live {
			l.items = append(l.items, item{o, s})
			l.count++
		}
	}
	return l
}

func TestWrongListsAreFound(t *testing.T) {
	for name, spoil := range map[string]func(*listing){
		"right":         nil,
		"missing key":   func(l *listing) { l.items = l.items[1:] },
		"missing last":  func(l *listing) { l.items = l.items[:len(l.items)-1] },
		"doubled key":   func(l *listing) { l.items = append(l.items, l.items[len(l.items)-1]) },
		"swapped keys":  func(l *listing) { slices.Reverse(l.items) },
		"old version":   func(l *listing) { l.items[0].state.mod-- },
		"other value":   func(l *listing) { l.items[0].state.hash++ },
		"other lease":   func(l *listing) { l.items[0].state.lease++ },
		"wrong count":   func(l *listing) { l.count++ },
		"other moment":  func(l *listing) { l.rev = 15 },
		"later kept":    func(l *listing) { l.rev = 11 },
		"wrong version": func(l *listing) { l.items[1].state.version++ },
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _, _ := testHistory()
			l := listed(r, 16)
			if spoil != nil {
				spoil(l)
			}
			r.verify.later(l)
			r.verify.settle()
			require.Equal(t, spoil != nil, r.verify.failed.Load() > 0, "%v", r.verify.failures)
		})
	}
}

func TestWrongReadsAreFound(t *testing.T) {
	r, a, b, _ := testHistory()
	now, _ := a.latest()
	r.verify.reading(reading{object: a, rev: 16, found: true, state: now})
	r.verify.reading(reading{object: b, rev: 15})
	require.Zero(t, r.verify.failed.Load())
	stale := now
	stale.mod = 11
	for _, wrong := range []reading{
		{object: a, rev: 16, found: true, state: stale},
		{object: a, rev: 13, found: true, state: now},
		{object: a, rev: 16},
		{object: b, rev: 15, found: true, state: now},
	} {
		before := r.verify.failed.Load()
		r.verify.reading(wrong)
		require.Equal(t, before+1, r.verify.failed.Load(), "%+v", wrong)
	}
}

func TestReadsDuringAWriteAreCheckedAfterIt(t *testing.T) {
	r, a, _, _ := testHistory()
	old, _ := a.latest()
	require.True(t, a.claim())
	require.False(t, a.claim())
	r.verify.reading(reading{object: a, rev: 17, found: true, state: old})
	require.Zero(t, r.verify.answers.Load())
	r.model.commit(a, version{state: state{mod: 17}, deleted: true})
	a.release()
	r.verify.settle()
	require.EqualValues(t, 1, r.verify.failed.Load(), "the write at 17 was to be seen")
}

func TestObjectsOfUnknownStateAreLeftOut(t *testing.T) {
	r, a, _, _ := testHistory()
	with := listed(r, 16)
	without := listed(r, 16)
	without.items = slices.DeleteFunc(without.items, func(i item) bool { return i.object == a })
	without.count--
	a.lose()
	for _, l := range []*listing{with, without} {
		r.verify.listing(l, r.model.sorted("/r/"))
	}
	r.verify.reading(reading{object: a, rev: 16})
	require.Zero(t, r.verify.failed.Load(), "%v", r.verify.failures)
	require.EqualValues(t, 1, r.verify.skipped.Load())
}

func TestWrongEventsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		spoil                          func([]event) []event
		missing, unexpected, different int64
	}{
		"right":        {func(e []event) []event { return e }, 0, 0, 0},
		"lost":         {func(e []event) []event { return append(e[:2], e[3:]...) }, 1, 0, 0},
		"lost last":    {func(e []event) []event { return e[:len(e)-1] }, 1, 0, 0},
		"twice":        {func(e []event) []event { return append(e[:2], e[1:]...) }, 0, 1, 0},
		"out of order": {func(e []event) []event { slices.Reverse(e); return e }, 0, 0, 0},
		"no prev":      {func(e []event) []event { e[3].hasPrev, e[3].prev = false, state{}; return e }, 0, 0, 1},
		"wrong prev":   {func(e []event) []event { e[4].prev.mod++; return e }, 0, 0, 1},
		"put, not del": {func(e []event) []event { e[4].deleted = false; return e }, 0, 0, 1},
		"wrong value":  {func(e []event) []event { e[0].now.hash++; return e }, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _, _ := testHistory()
			want := eventsOf(r.model.sorted("/r/"), 10, 16)
			require.Len(t, want, 6)
			w := &watcher{set: &watches{r: r}, prefix: "/r/", from: 11, events: c.spoil(slices.Clone(want))}
			w.compare(want, 16)
			require.Equal(t, name != "right", r.verify.failed.Load() > 0, "%v", r.verify.failures)
			v := r.verify.report()
			require.Equal(t, []int64{6, c.missing, c.unexpected, c.different},
				[]int64{v.Events, v.Missing, v.Unexpected, v.Different})
		})
	}
}

func TestRevisionsMustBeDistinct(t *testing.T) {
	r, a, _, _ := testHistory()
	r.checkRevisions()
	require.Zero(t, r.verify.failed.Load(), "%v", r.verify.failures)
	r.model.commit(a, version{state: state{mod: 18}})
	r.model.commit(a, version{state: state{mod: 18}})
	r.checkRevisions()
	require.EqualValues(t, 1, r.verify.failed.Load(), "revision 18 twice")
}

func TestRevisionsNeverGoBack(t *testing.T) {
	r := testRunner()
	r.verify.revision("get", 12, 10)
	require.EqualValues(t, 12, r.model.revision.Load())
	r.verify.revision("get", 11, 12)
	require.EqualValues(t, 1, r.verify.failed.Load())
	require.EqualValues(t, 12, r.model.revision.Load())
}
