package write

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// create returns the transaction that kube-apiserver creates objects with: its
// failure branch says what is there.
func create(key, value string) *mvcc.Txn {
	return &mvcc.Txn{
		Compares: []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: []byte(key)}, Target: mvcc.CompareMod,
			Result: mvcc.CompareEqual}},
		Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte(value)}}},
		Else: []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte(key)}}}},
	}
}

// countedReads counts the index rows that are asked for.
type countedReads struct {
	sqlstore.Store
	keys int
}

func (c *countedReads) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	for _, k := range keys {
		if _, err := coder.DecodeIndexKey(k); err == nil {
			c.keys++
		}
	}
	return c.Store.MultiGet(ctx, keys)
}

// optimistic returns an idle leader whose index cache is empty, over a store that
// counts, with the key "old" in it.
func optimistic(t *testing.T) (*testLeader, *countedReads) {
	t.Helper()
	store := &countedReads{Store: newStore(t)}
	l := lead(t, store)
	l.must(t, put("old", "0"), put("gone", "0"), del("gone"))
	l.p.index.purge()
	store.keys = 0
	return l, store
}

func TestCreatingReadsNothing(t *testing.T) {
	l, store := optimistic(t)
	first, second := NewTxnCommand(create("new", "1")), NewTxnCommand(create("new", "2"))
	for _, err := range l.together(t, first, second) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !first.Result().Succeeded || second.Result().Succeeded {
		t.Fatalf("first %v, second %v", first.Result().Succeeded, second.Result().Succeeded)
	}
	if kvs := second.Result().Results[0].Range.Records; len(kvs) != 1 || string(kvs[0].Value) != "1" {
		t.Fatalf("the second found %v", kvs)
	}
	if store.keys != 0 {
		t.Fatalf("%d index rows were read", store.keys)
	}
}

// leasesThen looks up leases, and then does something else.
type leasesThen struct {
	Leases
	then func()
}

func (l *leasesThen) Lease(id int64) (coder.Lease, bool) {
	l.then()
	return l.Leases.Lease(id)
}

// TestAnAssumedKeyStaysAbsent, although another request needs its row, and caches it between the compare and the put.
func TestAnAssumedKeyStaysAbsent(t *testing.T) {
	leases := &leasesThen{}
	l := lead(t, newStore(t), func(c *Config) { leases.Leases, c.Leases = c.Leases, leases })
	leases.then = func() { l.p.readKeys(t.Context(), [][]byte{[]byte("old")}) }
	l.leases[7] = coder.Lease{}
	l.must(t, put("old", "0"))
	l.p.index.purge()
	txn := create("old", "1")
	txn.Then[0].Put.Lease = 7
	cmd := NewTxnCommand(txn)
	require.NoError(t, l.together(t, cmd)[0])
	require.False(t, cmd.Result().Succeeded, "it was created a second time")
	require.Equal(t, "0", string(cmd.Result().Results[0].Range.Records[0].Value))
}

// TestAnAssumedKeyIsNotWhatAnEarlierCommandRead: that is in the same batch, and the row was evicted since.
func TestAnAssumedKeyIsNotWhatAnEarlierCommandRead(t *testing.T) {
	leases := &leasesThen{then: func() {}}
	l := lead(t, newStore(t), func(c *Config) { leases.Leases, c.Leases = c.Leases, leases })
	l.leases[7] = coder.Lease{}
	l.must(t, put("old", "0"))
	reads := create("other", "1")
	reads.Compares[0].Key, reads.Compares[0].Result = []byte("old"), mvcc.CompareGreater
	reads.Then[0].Put.Lease = 7
	leases.then = l.p.index.purge
	creates := NewTxnCommand(create("old", "1"))
	require.NoError(t, errors.Join(l.together(t, NewTxnCommand(reads), creates)...))
	require.False(t, creates.Result().Succeeded, "it was created a second time")
}

// TestAnAssumedKeyIsNotReadForALaterCommand of the batch, with the other keys that are read then.
func TestAnAssumedKeyIsNotReadForALaterCommand(t *testing.T) {
	l, _ := optimistic(t)
	both := put("other", "1")
	both.Then = append([]mvcc.Op{{Txn: create("old", "1")}}, both.Then...)
	creates := NewTxnCommand(both)
	require.NoError(t, errors.Join(l.together(t, creates, NewTxnCommand(put("old", "2")))...))
	require.False(t, creates.Result().Results[0].Txn.Succeeded, "it was created a second time")
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
			l, store := optimistic(t)
			before := l.Revision()
			others := []*TxnCommand{NewTxnCommand(create("a", "1")), NewTxnCommand(create("b", "1"))}
			c := NewTxnCommand(create(tc.key, "1"))
			for _, err := range l.together(t, others[0], c, others[1]) {
				if err != nil {
					t.Fatal(err)
				}
			}
			if c.Result().Succeeded != tc.succeeded || !others[0].Result().Succeeded || !others[1].Result().Succeeded {
				t.Fatalf("succeeded: %v, others %v and %v", c.Result().Succeeded, others[0].Result().Succeeded,
					others[1].Result().Succeeded)
			}
			want := before + 2
			if tc.succeeded {
				want++
			} else if kvs := c.Result().Results[0].Range.Records; len(kvs) != 1 || string(kvs[0].Value) != "0" {
				t.Fatalf("found %v", kvs)
			}
			if got := l.Revision(); got != want || others[1].Result().Revision != want {
				t.Fatalf("revision %d, the last answer %d, want %d", got, others[1].Result().Revision, want)
			}
			if n := testutil.ToFloat64(l.p.cfg.Metrics.assumptionsFailed); n != 1 {
				t.Fatalf("%v assumptions failed, want 1", n)
			}
			// From now on for a while, keys are looked up before.
			store.keys = 0
			l.together(t, NewTxnCommand(create("c", "1")))
			if store.keys != 1 {
				t.Fatalf("%d index rows were read, want 1", store.keys)
			}
		})
	}
}

// TestAssumptionsAreProvenOrDropped: an outcome that rests on a key's absence
// without creating the key is not proven by any commit.
func TestAssumptionsAreProvenOrDropped(t *testing.T) {
	l, _ := optimistic(t)
	leased := create("old", "1")
	leased.Then[0].Put.Lease = 99
	ignoring := create("old", "1")
	ignoring.Then[0].Put.IgnoreValue = true
	for name, txn := range map[string]*mvcc.Txn{"unknown lease": leased, "ignored value": ignoring} {
		c := NewTxnCommand(txn)
		if err := l.together(t, c)[0]; err != nil || c.Result().Succeeded {
			t.Errorf("%s: %v, %+v; want the other branch, because the key is there", name, err, c.Result())
		}
		l.p.index.purge()
	}
	fresh := create("new", "1")
	fresh.Then[0].Put.Lease = 99
	if err := l.together(t, NewTxnCommand(fresh))[0]; !errors.Is(err, mvcc.ErrLeaseNotFound) {
		t.Errorf("unknown lease of a new key: %v", err)
	}
}

// TestKeysThatAreNotAssumedAreReadTogether: those of a transaction whose assumptions no commit would prove, and those
// of a batch without assumptions. Each is read once.
func TestKeysThatAreNotAssumedAreReadTogether(t *testing.T) {
	const keys = 100
	nested, creations := &mvcc.Txn{}, make([]*mvcc.Txn, keys)
	for i := range creations {
		creations[i] = create(fmt.Sprint("new/", i), "1")
		leased := create(fmt.Sprint("leased/", i), "1")
		leased.Then[0].Put.Lease = 99
		nested.Then = append(nested.Then, mvcc.Op{Txn: leased})
	}
	l, store := optimistic(t)
	before := testutil.ToFloat64(l.p.cfg.Metrics.indexMisses)
	require.ErrorIs(t, l.together(t, NewTxnCommand(nested))[0], mvcc.ErrLeaseNotFound)
	require.Equal(t, keys, store.keys)
	l.p.optimism.pause.Store(2 * keys)
	l.must(t, creations...)
	require.Equal(t, 2*keys, store.keys)
	require.Equal(t, before+2, testutil.ToFloat64(l.p.cfg.Metrics.indexMisses))
}

// TestOptimismIsResumed: once as many keys as the pause asks for were read ahead.
func TestOptimismIsResumed(t *testing.T) {
	var p optimism
	p.pause.Store(3)
	for i, n := range []int{0, 2, 1, 1} {
		wait := p.pause.Load() > 0
		if got := p.assumeAbsent(n); got != (n == 0 || !wait) {
			t.Errorf("step %d: %v", i, got)
		}
	}
	if !p.allowed() {
		t.Error("still paused")
	}
}

func TestTransactionsTakenForCreations(t *testing.T) {
	key := mvcc.KeyRange{Key: []byte("k")}
	other := create("k", "")
	other.Then[0].Put.Key = []byte("other")
	two := create("k", "")
	two.Compares = append(two.Compares, mvcc.Compare{KeyRange: mvcc.KeyRange{Key: []byte("l")}, Target: mvcc.CompareLease})
	for name, tc := range map[string]struct {
		txn  *mvcc.Txn
		want bool
	}{
		"mod revision": {create("k", ""), true},
		"version": {&mvcc.Txn{Compares: []mvcc.Compare{{KeyRange: key, Target: mvcc.CompareVersion}},
			Then: create("k", "").Then}, true},
		"create revision": {&mvcc.Txn{Compares: []mvcc.Compare{{KeyRange: key, Target: mvcc.CompareCreate}},
			Then: create("k", "").Then}, true},
		"lease": {&mvcc.Txn{Compares: []mvcc.Compare{{KeyRange: key, Target: mvcc.CompareLease}},
			Then: create("k", "").Then}, false},
		"revision 7": {&mvcc.Txn{Compares: []mvcc.Compare{{KeyRange: key, Target: mvcc.CompareMod, Int: 7}},
			Then: create("k", "").Then}, false},
		"not equal": {&mvcc.Txn{Compares: []mvcc.Compare{{KeyRange: key, Target: mvcc.CompareMod,
			Result: mvcc.CompareNotEqual}}, Then: create("k", "").Then}, false},
		"range": {&mvcc.Txn{Compares: []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: []byte("k"), End: []byte("l")},
			Target: mvcc.CompareMod}}, Then: create("k", "").Then}, false},
		"another key":    {other, false},
		"two conditions": {two, false},
		"put":            {put("k", ""), false},
	} {
		if c := NewTxnCommand(tc.txn); (len(c.creates) == 1) != tc.want || (len(c.keys) == 0) != tc.want {
			t.Errorf("%s: reads %q, expects %q to be new", name, c.keys, c.creates)
		}
	}
}
