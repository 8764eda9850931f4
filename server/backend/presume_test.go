package backend

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// create returns the transaction that kube-apiserver creates objects with: its
// failure branch says what is there.
func create(key, value string) *Txn {
	return &Txn{
		Compares: []Compare{{KeyRange: KeyRange{Key: []byte(key)}, Target: CompareMod, Result: CompareEqual}},
		Then:     []Op{{Put: &PutRequest{Key: []byte(key), Value: []byte(value)}}},
		Else:     []Op{{Range: &RangeRequest{KeyRange: KeyRange{Key: []byte(key)}}}},
	}
}

// countedReads counts the index rows that are asked for.
type countedReads struct {
	sqlstore.Store
	keys int
}

func (c *countedReads) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	c.keys += len(keys)
	return c.Store.MultiGet(ctx, keys)
}

// presuming returns an idle leader whose index cache is empty, over a store that
// counts, with the key "old" in it.
func presuming(t *testing.T) (*leader, *countedReads) {
	t.Helper()
	l := idle(t)
	store := &countedReads{Store: l.store}
	l.store = store
	runTogether(t, l, newTxnCommand(put("old", "0")), newTxnCommand(put("gone", "0")), newTxnCommand(del("gone")))
	l.index.purge()
	store.keys = 0
	return l, store
}

func TestCreatingReadsNothing(t *testing.T) {
	l, store := presuming(t)
	first, second := newTxnCommand(create("new", "1")), newTxnCommand(create("new", "2"))
	for _, err := range runTogether(t, l, first, second) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !first.result.Succeeded || second.result.Succeeded {
		t.Fatalf("first %v, second %v", first.result.Succeeded, second.result.Succeeded)
	}
	if kvs := second.result.Results[0].Range.Records; len(kvs) != 1 || string(kvs[0].Value) != "1" {
		t.Fatalf("the second found %v", kvs)
	}
	if store.keys != 0 {
		t.Fatalf("%d index rows were read", store.keys)
	}
}

func TestCreatingWhatExists(t *testing.T) {
	for name, tc := range map[string]struct {
		key       string
		succeeded bool
	}{
		"live":    {"old", false},
		"deleted": {"gone", true},
	} {
		t.Run(name, func(t *testing.T) {
			l, store := presuming(t)
			before := l.Revision()
			others := []*txnCommand{newTxnCommand(create("a", "1")), newTxnCommand(create("b", "1"))}
			c := newTxnCommand(create(tc.key, "1"))
			for _, err := range runTogether(t, l, others[0], c, others[1]) {
				if err != nil {
					t.Fatal(err)
				}
			}
			if c.result.Succeeded != tc.succeeded || !others[0].result.Succeeded || !others[1].result.Succeeded {
				t.Fatalf("succeeded: %v, others %v and %v", c.result.Succeeded, others[0].result.Succeeded, others[1].result.Succeeded)
			}
			want := before + 2
			if tc.succeeded {
				want++
			} else if kvs := c.result.Results[0].Range.Records; len(kvs) != 1 || string(kvs[0].Value) != "0" {
				t.Fatalf("found %v", kvs)
			}
			if got := l.Revision(); got != want || others[1].result.Revision != want {
				t.Fatalf("revision %d, the last answer %d, want %d", got, others[1].result.Revision, want)
			}
			if n := testutil.ToFloat64(l.metrics.presumedWrongly); n != 1 {
				t.Fatalf("%v batches were presumed wrongly, want 1", n)
			}
			// From now on for a while, keys are looked up before.
			store.keys = 0
			runTogether(t, l, newTxnCommand(create("c", "1")))
			if store.keys != 1 {
				t.Fatalf("%d index rows were read, want 1", store.keys)
			}
		})
	}
}

// TestPresumptionsAreProvenOrDropped: an outcome that rests on a key's absence
// without creating the key is not proven by any commit.
func TestPresumptionsAreProvenOrDropped(t *testing.T) {
	l, _ := presuming(t)
	leased := create("old", "1")
	leased.Then[0].Put.Lease = 99
	ignoring := create("old", "1")
	ignoring.Then[0].Put.IgnoreValue = true
	for name, txn := range map[string]*Txn{"unknown lease": leased, "ignored value": ignoring} {
		c := newTxnCommand(txn)
		if err := runTogether(t, l, c)[0]; err != nil || c.result.Succeeded {
			t.Errorf("%s: %v, %+v; want the other branch, because the key is there", name, err, c.result)
		}
		l.index.purge()
	}
	fresh := create("new", "1")
	fresh.Then[0].Put.Lease = 99
	if err := runTogether(t, l, newTxnCommand(fresh))[0]; !errors.Is(err, ErrLeaseNotFound) {
		t.Errorf("unknown lease of a new key: %v", err)
	}
}

// TestPresumingIsResumed: once as many keys as the pause asks for were read ahead.
func TestPresumingIsResumed(t *testing.T) {
	var p presumptions
	p.pause.Store(3)
	for i, n := range []int{0, 2, 1, 1} {
		wait := p.pause.Load() > 0
		if got := p.holdFor(n); got != (n == 0 || !wait) {
			t.Errorf("step %d: %v", i, got)
		}
	}
	if !p.hold() {
		t.Error("still paused")
	}
}

func TestWhatIsTakenForACreation(t *testing.T) {
	key := KeyRange{Key: []byte("k")}
	other := create("k", "")
	other.Then[0].Put.Key = []byte("other")
	two := create("k", "")
	two.Compares = append(two.Compares, Compare{KeyRange: KeyRange{Key: []byte("l")}, Target: CompareLease})
	for name, tc := range map[string]struct {
		txn  *Txn
		want bool
	}{
		"mod revision":    {create("k", ""), true},
		"version":         {&Txn{Compares: []Compare{{KeyRange: key, Target: CompareVersion}}, Then: create("k", "").Then}, true},
		"create revision": {&Txn{Compares: []Compare{{KeyRange: key, Target: CompareCreate}}, Then: create("k", "").Then}, true},
		"lease":           {&Txn{Compares: []Compare{{KeyRange: key, Target: CompareLease}}, Then: create("k", "").Then}, false},
		"revision 7":      {&Txn{Compares: []Compare{{KeyRange: key, Target: CompareMod, Int: 7}}, Then: create("k", "").Then}, false},
		"not equal":       {&Txn{Compares: []Compare{{KeyRange: key, Target: CompareMod, Result: CompareNotEqual}}, Then: create("k", "").Then}, false},
		"range":           {&Txn{Compares: []Compare{{KeyRange: KeyRange{Key: []byte("k"), End: []byte("l")}, Target: CompareMod}}, Then: create("k", "").Then}, false},
		"another key":     {other, false},
		"two conditions":  {two, false},
		"put":             {put("k", ""), false},
	} {
		if keys, fresh := newTxnCommand(tc.txn).touches(); (len(fresh) == 1) != tc.want || (len(keys) == 0) != tc.want {
			t.Errorf("%s: reads %q, expects %q to be new", name, keys, fresh)
		}
	}
}
