package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// idle returns a leader whose pipeline does not run, for batches made by hand.
func idle(t *testing.T) *leader {
	t.Helper()
	b, err := prepare(t.Context(), newStore(t), Config{Logger: testLogger(t), Exclusive: true, countPieceKeys: 1, countChanges: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.hub.Close(); b.metrics.unregister() })
	l, err := b.takeOver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.leading.Store(l)
	return l
}

// runTogether runs commands as one batch and returns their outcomes.
func runTogether(t *testing.T, b *leader, commands ...command) []error {
	t.Helper()
	var requests []*request
	for _, c := range commands {
		requests = append(requests, &request{cmd: c, done: make(chan error, 1)})
	}
	for rest := requests; len(rest) > 0; {
		rest = b.runBatch(t.Context(), rest)
	}
	outcomes := make([]error, len(requests))
	for i, r := range requests {
		outcomes[i] = <-r.done
	}
	return outcomes
}

// revokeOf returns the command that revokes a lease, with what it reads ahead.
func revokeOf(t *testing.T, l *leader, id int64) *revokeCommand {
	t.Helper()
	keys, err := l.prepareLease(t.Context(), id, nil, RevocationKeys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.settle(keys) })
	return &revokeCommand{l: l, id: id, keys: keys}
}

// TestLeaseChangesAnswerTheirOwnRevision: not that of the batch they are
// committed with, at which the store was not when they took effect.
func TestLeaseChangesAnswerTheirOwnRevision(t *testing.T) {
	b := idle(t)
	grant := &grantCommand{l: b, row: coder.Lease{ID: 7, TTL: 60}}
	grantEmpty := &grantCommand{l: b, row: coder.Lease{ID: 8, TTL: 60}}
	revoke, revokeEmpty := revokeOf(t, b, 7), revokeOf(t, b, 8)
	for i, err := range runTogether(t, b,
		newTxnCommand(put("a", "2")), grant, newTxnCommand(putLeased("b", 7)), grantEmpty,
		newTxnCommand(put("a", "4")), revoke, newTxnCommand(put("a", "6")), revokeEmpty, newTxnCommand(put("a", "7")),
	) {
		if err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
	}
	got := []int64{grant.revision, grantEmpty.revision, revoke.revision, revokeEmpty.revision, b.Revision()}
	if want := []int64{2, 3, 5, 6, 7}; !slices.Equal(got, want) {
		t.Fatalf("revisions %v, want %v", got, want)
	}
}

func TestEveryRevisionOfABatchCanBeRead(t *testing.T) {
	b := idle(t)
	runTogether(t, b, newTxnCommand(put("k", "0"))) // revision 2
	steps := []*Txn{put("k", "3"), put("k", "4"), del("k"), put("k", "6"), put("other", "7"), del("other"), put("k", "9")}
	var commands []command
	for _, s := range steps {
		commands = append(commands, newTxnCommand(s))
	}
	sequence := b.seen.Load().Sequence
	for i, err := range runTogether(t, b, commands...) {
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	if n := b.seen.Load().Sequence - sequence; n != 1 {
		t.Fatalf("it took %d commits, want one", n)
	}
	want := map[int64]string{1: "", 2: "k=0", 3: "k=3", 4: "k=4", 5: "", 6: "k=6", 7: "k=6 other=7", 8: "k=6", 9: "k=9"}
	check := func() {
		t.Helper()
		for rev := int64(1); rev <= 9; rev++ {
			res, err := b.rangeAt(t.Context(), &RangeRequest{KeyRange: all(), Revision: rev}, b.Revision())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, r := range res.Records {
				got += fmt.Sprintf(" %s=%s", r.Key, r.Value)
			}
			if got != want[rev] && got != " "+want[rev] {
				t.Errorf("revision %d reads%s, want %s", rev, got, want[rev])
			}
			read := b.reader.at(rev)
			for name, count := range map[string]func(context.Context, KeyRange) (int64, error){
				"count": read.count, "each": read.countEach, "back": read.countBack, "table": read.countTable,
				"pieces": read.countPieces, "pieces again": read.countPieces,
			} {
				if n, err := count(t.Context(), all()); err != nil || n != res.Count {
					t.Errorf("revision %d counts %d by %s, %v, has %d", rev, n, name, err, res.Count)
				}
			}
		}
	}
	check()
	// One more change, so that the version before is not the row value before.
	runTogether(t, b, newTxnCommand(put("k", "10")))
	check()
}

func TestACommandSeesTheOnesBeforeIt(t *testing.T) {
	b := idle(t)
	first := newTxnCommand(put("a", "1"))
	second := newTxnCommand(&Txn{
		Compares: []Compare{{KeyRange: KeyRange{Key: []byte("a")}, Target: CompareValue, Value: []byte("1")}},
		Then:     []Op{{Delete: &DeleteRequest{KeyRange: all(), PrevKV: true}}, {Range: &RangeRequest{KeyRange: all()}}},
	})
	third := newTxnCommand(&Txn{Then: []Op{{Put: &PutRequest{Key: []byte("a"), IgnoreValue: true}}}})
	outcomes := runTogether(t, b, first, second, third)
	if outcomes[0] != nil || outcomes[1] != nil || !errors.Is(outcomes[2], ErrKeyNotFound) {
		t.Fatalf("outcomes: %v", outcomes)
	}
	if !second.result.Succeeded || second.result.Results[0].Delete.Deleted != 1 || second.result.Results[1].Range.Count != 0 || second.result.Revision != 3 {
		t.Fatalf("the second saw %s", describe(second.result))
	}
}

func TestAFailedCommandLeavesNothingBehind(t *testing.T) {
	b := idle(t)
	bad := newTxnCommand(&Txn{Then: []Op{
		{Put: &PutRequest{Key: []byte("a"), Value: []byte("1")}},
		{Put: &PutRequest{Key: []byte("b"), Value: []byte("1"), Lease: 99}},
	}})
	good := newTxnCommand(put("c", "1"))
	outcomes := runTogether(t, b, bad, good)
	if !errors.Is(outcomes[0], ErrLeaseNotFound) || outcomes[1] != nil {
		t.Fatalf("outcomes: %v", outcomes)
	}
	if good.result.Revision != 2 || b.Revision() != 2 {
		t.Fatalf("the failed command took a revision: %d, %d", good.result.Revision, b.Revision())
	}
	res, err := b.rangeAt(t.Context(), &RangeRequest{KeyRange: all()}, 2)
	if err != nil || res.Count != 1 {
		t.Fatalf("the table holds %s, %v", describe(res), err)
	}
}

// A client may ask for a revision that is being made in the same batch.
func TestARevisionOfTheSameBatchWaitsForTheNext(t *testing.T) {
	b := idle(t)
	ask := newTxnCommand(&Txn{Then: []Op{
		{Range: &RangeRequest{KeyRange: all(), Revision: 2}},
		{Put: &PutRequest{Key: []byte("c"), Value: []byte("1")}},
	}})
	outcomes := runTogether(t, b, newTxnCommand(put("a", "1")), newTxnCommand(put("b", "1")), ask)
	if err := errors.Join(outcomes...); err != nil {
		t.Fatal(err)
	}
	if r := ask.result.Results[0].Range; r.Count != 1 || r.Revision != 3 {
		t.Fatalf("revision 2 reads %s", describe(r))
	}
	future := newTxnCommand(&Txn{Then: []Op{{Range: &RangeRequest{KeyRange: all(), Revision: 5}}, {Put: &PutRequest{Key: []byte("d")}}}})
	if err := runTogether(t, b, future)[0]; !errors.Is(err, ErrFutureRevision) {
		t.Fatalf("revision 5 of 4: %v", err)
	}
}

// narrow is a store that takes no batch above a size.
type narrow struct {
	sqlstore.Store
	bytes int
}

type narrowBatch struct {
	sqlstore.BatchWrite
	bytes int
}

func (n *narrow) BeginBatchWrite() sqlstore.BatchWrite {
	return &narrowBatch{BatchWrite: n.Store.BeginBatchWrite(), bytes: n.bytes}
}

func (b *narrowBatch) Commit(ctx context.Context) error {
	if b.Size() > b.bytes {
		return fmt.Errorf("%w: made up", sqlstore.ErrTooLarge)
	}
	return b.BatchWrite.Commit(ctx)
}

func TestARequestTooLargeFailsAlone(t *testing.T) {
	b := idle(t)
	b.store = &narrow{Store: b.store, bytes: 2000}
	outcomes := runTogether(t, b,
		newTxnCommand(put("a", "1")), newTxnCommand(put("b", string(make([]byte, 3000)))), newTxnCommand(put("c", "1")))
	if outcomes[0] != nil || !errors.Is(outcomes[1], ErrTooLarge) || outcomes[2] != nil || b.Revision() != 3 {
		t.Fatalf("outcomes %v, revision %d", outcomes, b.Revision())
	}
}

func TestLeasesOfTheSameBatch(t *testing.T) {
	b := idle(t)
	outcomes := runTogether(t, b,
		&grantCommand{l: b, row: coder.Lease{ID: 5, TTL: 60}},
		newTxnCommand(putLeased("a", 5)),
		revokeOf(t, b, 5),
		newTxnCommand(putLeased("b", 5)),
		&grantCommand{l: b, row: coder.Lease{ID: 5, TTL: 60}},
		newTxnCommand(putLeased("c", 5)),
	)
	for i, err := range outcomes {
		if want := i == 3; want != errors.Is(err, ErrLeaseNotFound) || !want && err != nil {
			t.Fatalf("outcomes: %v", outcomes)
		}
	}
	keys, err := b.attachedKeys(t.Context(), 5)
	if _, exists := b.lessor.row(5); err != nil || fmt.Sprintf("%s", keys) != "[c]" || !exists {
		t.Fatalf("attached: %s, %v", keys, err)
	}
}

func TestPagedListsCountRight(t *testing.T) {
	b := idle(t)
	for i := range 10 {
		runTogether(t, b, newTxnCommand(put(fmt.Sprintf("k%d", i), "v")))
	}
	rev := b.Revision()
	runTogether(t, b, newTxnCommand(del("k7")), newTxnCommand(put("k99", "v")))
	key := []byte("k")
	for left := int64(10); left > 0; left -= 3 {
		res, err := b.rangeAt(t.Context(), &RangeRequest{KeyRange: KeyRange{Key: key, End: []byte("l")}, Revision: rev, Limit: 3}, b.Revision())
		if err != nil {
			t.Fatal(err)
		}
		if res.Count != left || res.More != (left > 3) {
			t.Fatalf("from %q: count %d, more %v; %d are left", key, res.Count, res.More, left)
		}
		key = append(res.Records[len(res.Records)-1].Key, 0)
	}
}

// The sums are what etcd 3.7.3 answered for the same history, restarted behind
// the compaction: it keeps the sum it took before removing rows until then.
func TestHashIsEtcds(t *testing.T) {
	b := idle(t)
	runTogether(t, b, newTxnCommand(put("a", "1")))
	runTogether(t, b, newTxnCommand(put("a", "2")))
	runTogether(t, b, newTxnCommand(del("a")))
	runTogether(t, b, newTxnCommand(&Txn{Then: []Op{
		{Put: &PutRequest{Key: []byte("b"), Value: []byte("3")}}, {Put: &PutRequest{Key: []byte("a"), Value: []byte("4")}},
		{Put: &PutRequest{Key: []byte("c"), Value: []byte("5")}},
	}}))
	marshal := func(r *coder.Record) ([]byte, error) {
		if r.Tombstone {
			return proto.Marshal(&mvccpb.KeyValue{Key: r.Key})
		}
		return proto.Marshal(&mvccpb.KeyValue{
			Key: r.Key, Value: r.Value, CreateRevision: r.CreateRevision, ModRevision: r.ModRevision, Version: r.Version, Lease: r.Lease,
		})
	}
	sums := map[int64]uint32{4: 1363947557, 5: 4181467771}
	for rev, want := range sums {
		if h, err := b.HashKV(t.Context(), rev, marshal); err != nil || h.Hash != want {
			t.Errorf("hash at %d: %+v, %v; want %d", rev, h, err, want)
		}
	}
	runTogether(t, b, newTxnCommand(put("a", "6")), newTxnCommand(del("c")))
	if err := runTogether(t, b, &compactCommand{l: b, rev: 6})[0]; err != nil {
		t.Fatal(err)
	}
	compacted := map[int64]uint32{6: 3554762776, 7: 2529338593}
	for rev, want := range compacted {
		if h, err := b.HashKV(t.Context(), rev, marshal); err != nil || h.Hash != want || h.CompactRevision != 6 {
			t.Errorf("compacted, hash at %d: %+v, %v; want %d", rev, h, err, want)
		}
	}
	// At revision 8 no key exists.
	runTogether(t, b, newTxnCommand(&Txn{Then: []Op{{Delete: &DeleteRequest{KeyRange: all()}}}}))
	runTogether(t, b, newTxnCommand(put("d", "x")))
	emptied := map[int64]uint32{6: 3554762776, 8: 3940543721, 9: 3255857154}
	for rev, want := range emptied {
		if h, err := b.HashKV(t.Context(), rev, marshal); err != nil || h.Hash != want {
			t.Errorf("emptied, hash at %d: %+v, %v; want %d", rev, h, err, want)
		}
	}
}
