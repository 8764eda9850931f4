package replica

import (
	"context"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// idle returns a leader whose pipeline does not run, for batches made by hand.
func idle(t *testing.T) *leader {
	t.Helper()
	return idleWith(t, newStore(t))
}

func idleWith(t *testing.T, store sqlstore.Store) *leader {
	t.Helper()
	b, err := prepare(t.Context(), store, exclusive(t, func(c *Config) { c.CountPieceKeys, c.CountChanges = 1, 2 }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Hub.Close(); b.metrics.withdraw() })
	l, err := b.takeOver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.leading.Store(l)
	return l
}

// runTogether runs commands as one batch and returns their outcomes.
func runTogether(t *testing.T, l *leader, commands ...write.Command) []error {
	t.Helper()
	requests := make([]write.Request, len(commands))
	for i, c := range commands {
		requests[i] = write.Request{As: auth.System, Command: c}
	}
	return l.pipeline.ExecuteBatch(t.Context(), requests...)
}

func TestEveryRevisionOfBatchCanBeRead(t *testing.T) {
	l := idle(t)
	runTogether(t, l, write.NewTxnCommand(put("k", "0"))) // revision 2
	steps := []*mvcc.Txn{put("k", "3"), put("k", "4"), del("k"), put("k", "6"), put("other", "7"), del("other"),
		put("k", "9")}
	var commands []write.Command
	for _, s := range steps {
		commands = append(commands, write.NewTxnCommand(s))
	}
	sequence := l.replica.seen.Token().Sequence
	for i, err := range runTogether(t, l, commands...) {
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	if n := l.replica.seen.Token().Sequence - sequence; n != 1 {
		t.Fatalf("it took %d commits, want one", n)
	}
	want := map[int64]string{1: "", 2: "k=0", 3: "k=3", 4: "k=4", 5: "", 6: "k=6", 7: "k=6 other=7", 8: "k=6", 9: "k=9"}
	check := func() {
		t.Helper()
		for rev := int64(1); rev <= 9; rev++ {
			res, err := l.replica.Reader.At(l.replica.Revision()).RangeAt(t.Context(),
				&mvcc.RangeRequest{KeyRange: all(), Revision: rev})
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
			read := l.replica.Reader.At(rev)
			for range 2 {
				if n, err := read.Count(t.Context(), all().Span()); err != nil || n != res.Count {
					t.Errorf("revision %d counts %d, %v, has %d", rev, n, err, res.Count)
				}
			}
		}
	}
	check()
	// One more change, so that the version before is not the row value before.
	runTogether(t, l, write.NewTxnCommand(put("k", "10")))
	check()
}

func TestPagedListCountsAllKeys(t *testing.T) {
	leading := idle(t)
	for i := range 10 {
		runTogether(t, leading, write.NewTxnCommand(put(fmt.Sprintf("k%d", i), "v")))
	}
	rev := leading.replica.Revision()
	runTogether(t, leading, write.NewTxnCommand(del("k7")), write.NewTxnCommand(put("k99", "v")))
	key := []byte("k")
	for left := int64(10); left > 0; left -= 3 {
		res, err := leading.replica.Reader.At(leading.replica.Revision()).RangeAt(t.Context(),
			&mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: key, End: []byte("l")}, Revision: rev, Limit: 3})
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
func TestHashKVEqualsEtcd(t *testing.T) {
	leading := idle(t)
	runTogether(t, leading, write.NewTxnCommand(put("a", "1")))
	runTogether(t, leading, write.NewTxnCommand(put("a", "2")))
	runTogether(t, leading, write.NewTxnCommand(del("a")))
	runTogether(t, leading, write.NewTxnCommand(&mvcc.Txn{Then: []mvcc.Op{
		{Put: &mvcc.PutRequest{Key: []byte("b"), Value: []byte("3")}}, {Put: &mvcc.PutRequest{Key: []byte("a"), Value: []byte("4")}},
		{Put: &mvcc.PutRequest{Key: []byte("c"), Value: []byte("5")}},
	}}))
	marshal := func(r *coder.Record) ([]byte, error) {
		if r.Tombstone {
			return proto.Marshal(&mvccpb.KeyValue{Key: r.Key})
		}
		return proto.Marshal(&mvccpb.KeyValue{
			Key: r.Key, Value: r.Value, CreateRevision: r.CreateRevision, ModRevision: r.ModRevision, Version: r.Version,
			Lease: r.Lease,
		})
	}
	sums := map[int64]uint32{4: 1363947557, 5: 4181467771}
	for rev, want := range sums {
		if h, err := leading.replica.Exporter.HashKV(t.Context(), auth.System, rev, marshal); err != nil || h.Hash != want {
			t.Errorf("hash at %d: %+v, %v; want %d", rev, h, err, want)
		}
	}
	runTogether(t, leading, write.NewTxnCommand(put("a", "6")), write.NewTxnCommand(del("c")))
	compaction := write.Func(func(_ context.Context, tx *write.Tx) error {
		return leading.replica.compacted.Move(tx, 6, func() { leading.replica.raiseCompacted(6) })
	})
	if err := runTogether(t, leading, compaction)[0]; err != nil {
		t.Fatal(err)
	}
	compacted := map[int64]uint32{6: 3554762776, 7: 2529338593}
	for rev, want := range compacted {
		if h, err := leading.replica.Exporter.HashKV(t.Context(), auth.System, rev, marshal); err != nil || h.Hash != want ||
			h.CompactRevision != 6 {
			t.Errorf("compacted, hash at %d: %+v, %v; want %d", rev, h, err, want)
		}
	}
	// At revision 8 no key exists.
	runTogether(t, leading, write.NewTxnCommand(
		&mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: all()}}}}))
	runTogether(t, leading, write.NewTxnCommand(put("d", "x")))
	emptied := map[int64]uint32{6: 3554762776, 8: 3940543721, 9: 3255857154}
	for rev, want := range emptied {
		if h, err := leading.replica.Exporter.HashKV(t.Context(), auth.System, rev, marshal); err != nil || h.Hash != want {
			t.Errorf("emptied, hash at %d: %+v, %v; want %d", rev, h, err, want)
		}
	}
}
