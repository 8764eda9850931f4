package replica

import (
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// idle returns a leader whose pipeline does not run, for batches made by hand.
func idle(t *testing.T) *leader {
	t.Helper()
	return idleWith(t, newStore(t), func(c *Config) { c.CountSpanKeys, c.CountChanges = 1, 2 })
}

func idleWith(t *testing.T, store sqlstore.Store, change func(*Config)) *leader {
	t.Helper()
	b, err := prepare(t.Context(), store, exclusive(t, change))
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
