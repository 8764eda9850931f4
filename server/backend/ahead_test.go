package backend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

func rangeOf(from, end string) KeyRange { return KeyRange{Key: []byte(from), End: []byte(end)} }

func TestRangesOfAWriteAreNotReadOnTheSequencer(t *testing.T) {
	l, s := idleOn(t)
	for i := range 300 {
		runTogether(t, l, newTxnCommand(put(fmt.Sprintf("k%03d", i), "v")))
	}
	old := l.Revision()
	runTogether(t, l, newTxnCommand(put("k000", "w")))
	kr := rangeOf("k", "l")
	c := preparedTxn(t, l, &Txn{
		Compares: []Compare{{KeyRange: kr, Target: CompareVersion, Result: CompareGreater}},
		Then: []Op{
			{Range: &RangeRequest{KeyRange: kr, SortBy: SortByMod, SortOrder: SortDescend}},
			{Range: &RangeRequest{KeyRange: kr, Revision: old}},
			{Delete: &DeleteRequest{KeyRange: kr, PrevKV: true}},
			{Range: &RangeRequest{KeyRange: kr}},
		},
	})
	runTogether(t, l, newTxnCommand(put("k001", "new")), newTxnCommand(del("k002")), newTxnCommand(put("k999", "created")))
	runTogether(t, l, newTxnCommand(put("k001", "newer")), newTxnCommand(put("l", "outside")))
	before := l.Revision()
	require.NoError(t, s.run(l, c))
	res := c.result
	require.True(t, res.Succeeded)
	require.EqualValues(t, 300, res.Results[0].Range.Count)
	require.Equal(t, "k001", string(res.Results[0].Range.Records[0].Key))
	require.EqualValues(t, 300, res.Results[1].Range.Count)
	require.Equal(t, "v", string(res.Results[1].Range.Records[0].Value))
	deleted := res.Results[2].Delete
	require.EqualValues(t, 300, deleted.Deleted)
	require.Equal(t, "newer", string(deleted.Prev[1].Value))
	require.Equal(t, "created", string(deleted.Prev[299].Value))
	require.Zero(t, res.Results[3].Range.Count)
	require.Equal(t, before+1, l.Revision())
	left := mustRange(t, l.Backend, &RangeRequest{KeyRange: all()})
	require.EqualValues(t, 1, left.Count)
}

// TestPreparedRangesAreTheNewestState compares what a prepared range shows with what
// the table holds, after random changes in between, some of them in the same batch.
func TestPreparedRangesAreTheNewestState(t *testing.T) {
	l, _ := idleOn(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	change := func() *txnCommand {
		key := fmt.Sprintf("k%02d", rnd.IntN(40))
		if rnd.IntN(3) == 0 {
			return newTxnCommand(del(key))
		}
		return newTxnCommand(put(key, fmt.Sprint(rnd.Int())))
	}
	for range 50 {
		for range 20 {
			runTogether(t, l, change())
		}
		kr := rangeOf(fmt.Sprintf("k%02d", rnd.IntN(20)), fmt.Sprintf("k%02d", 20+rnd.IntN(20)))
		whole, count := &RangeRequest{KeyRange: kr}, &RangeRequest{KeyRange: kr, CountOnly: true}
		page := &RangeRequest{KeyRange: kr, Limit: 5}
		reads := []Op{{Range: whole}, {Range: count}, {Range: page}}
		putting := preparedTxn(t, l, &Txn{Then: append([]Op{{Put: &PutRequest{Key: []byte("k19"), Value: []byte("own")}}}, reads...)})
		deleting := preparedTxn(t, l, &Txn{Then: append([]Op{{Delete: &DeleteRequest{KeyRange: kr, PrevKV: true}}}, reads...)})
		for range rnd.IntN(10) {
			runTogether(t, l, change())
		}
		// Without preparation, and so from the table.
		look := newTxnCommand(&Txn{Then: []Op{{Put: &PutRequest{Key: []byte("other")}}, {Range: whole}}})
		for i, err := range runTogether(t, l, change(), change(), putting, look, deleting) {
			require.NoError(t, err, "command %d", i)
		}
		want := look.result.Results[1].Range
		got := putting.result.Results
		require.Equal(t, describeRecords(want.Records), describeRecords(got[1].Range.Records))
		require.Equal(t, want.Count, got[2].Range.Count)
		require.Equal(t, want.Count, got[3].Range.Count)
		require.Equal(t, want.Count > 5, got[3].Range.More)
		require.Equal(t, describeRecords(want.Records[:min(5, want.Count)]), describeRecords(got[3].Range.Records))
		got = deleting.result.Results
		require.Equal(t, describeRecords(want.Records), describeRecords(got[0].Delete.Prev))
		require.Equal(t, want.Count, got[0].Delete.Deleted)
		for _, r := range got[1:] {
			require.Zero(t, r.Range.Count)
			require.Empty(t, r.Range.Records)
		}
	}
}

func describeRecords(records []*coder.Record) (out []string) {
	for _, r := range records {
		out = append(out, fmt.Sprintf("%s=%s %d %d %d", r.Key, r.Value, r.CreateRevision, r.ModRevision, r.Version))
	}
	return out
}

// TestARangeDeleteBeyondTheLimitIsRefusedAtOnce: before its keys are read.
func TestARangeDeleteBeyondTheLimitIsRefusedAtOnce(t *testing.T) {
	s := &listLog{Store: newStore(t)}
	const keys, most = 5 * scanPage, 2 * scanPage
	b := open(t, s, func(c *Config) { c.maxTxnKeys, c.RecordCache = most, -1 })
	attach(t, b, "k/", keys, 0)
	s.rows.Store(0)
	_, err := b.Txn(t.Context(), &Txn{Then: []Op{{Delete: &DeleteRequest{KeyRange: rangeOf("k/", "k0")}}}}, true)
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = b.Txn(t.Context(), &Txn{
		Then: []Op{{Put: &PutRequest{Key: []byte("x")}}},
		Else: []Op{{Txn: &Txn{Compares: []Compare{{KeyRange: rangeOf("k/", "k0"), Target: CompareVersion}}}}},
	}, true)
	require.ErrorIs(t, err, ErrTooLarge)
	require.LessOrEqual(t, s.rows.Load(), int64(2*(scanPage+scanPage)), "rows were read for requests that were refused")
	require.EqualValues(t, keys, mustRange(t, b, &RangeRequest{KeyRange: all(), CountOnly: true}).Count)
	res := mustTxn(t, b, &Txn{Then: []Op{{Delete: &DeleteRequest{KeyRange: rangeOf("k/", "k/001500")}}}})
	require.EqualValues(t, 1500, res.Results[0].Delete.Deleted)
	// Tombstones do not count.
	for _, end := range []string{"k/003000", "k/003500"} {
		mustTxn(t, b, &Txn{Then: []Op{{Delete: &DeleteRequest{KeyRange: rangeOf("k/", end)}}}})
	}
	res = mustTxn(t, b, &Txn{Then: []Op{{Delete: &DeleteRequest{KeyRange: rangeOf("k/", "k0")}}}})
	require.EqualValues(t, 1500, res.Results[0].Delete.Deleted)
	require.Zero(t, len(b.leading.Load().aheads.active))
	require.True(t, b.leading.Load().txnRoom.TryAcquire(most), "room was not given back")
}

// TestALargeCommandIsCommittedAlone: those before it need not wait for its commit.
func TestALargeCommandIsCommittedAlone(t *testing.T) {
	l := idle(t)
	large := &Txn{}
	for i := range aloneKeys + 1 {
		large.Then = append(large.Then, put(fmt.Sprintf("k%06d", i), "v").Then...)
	}
	runTogether(t, l, newTxnCommand(large))
	c := preparedTxn(t, l, &Txn{Then: []Op{{Delete: &DeleteRequest{KeyRange: rangeOf("k", "l")}}}})
	sequence := l.seen.Load().Sequence
	first := newTxnCommand(put("a", "1"))
	for _, err := range runTogether(t, l, first, c, newTxnCommand(put("b", "1"))) {
		require.NoError(t, err)
	}
	require.EqualValues(t, aloneKeys+1, c.result.Results[0].Delete.Deleted)
	require.EqualValues(t, 3, l.seen.Load().Sequence-sequence)
}

func TestManyDeletesDoNotEmptyTheIndexCache(t *testing.T) {
	b := open(t, newStore(t), func(c *Config) { c.IndexCache = 100 })
	attach(t, b, "k/", 2*aloneKeys, 0)
	mustTxn(t, b, put("hot", "1"))
	mustTxn(t, b, &Txn{Then: []Op{{Delete: &DeleteRequest{KeyRange: rangeOf("k/", "k0")}}}})
	require.True(t, b.leading.Load().index.knows([]byte("hot")))
}

func TestALeasesVerdictIsReachedOnce(t *testing.T) {
	s := &onlyPrepared{Store: newStore(t), t: t}
	b := open(t, s, nil)
	l := b.leading.Load()
	mustGrant(t, b, 7, 3600)
	attach(t, b, "k/", 50, 7)
	allowed := map[byte]bool{'k': true, 'm': true}
	denied := fmt.Errorf("denied")
	seen := 0
	ctx := WithPermit(t.Context(), func(ctx context.Context, at AuthView) error {
		return at.MayWriteLease(ctx, 7, "me", func(key []byte) error {
			if seen++; allowed[key[0]] {
				return nil
			}
			return denied
		})
	})
	putOne := func(key string) error { _, err := b.Txn(ctx, putLeased(key, 7), true); return err }
	require.NoError(t, putOne("k/new"))
	require.GreaterOrEqual(t, seen, 50)
	seen = 0
	for i := range 10 {
		require.NoError(t, putOne(fmt.Sprintf("m/%d", i)))
	}
	require.LessOrEqual(t, seen, 2*10, "keys were judged again")

	// Another user attaches a key that this one may not write, and detaches it.
	mustTxn(t, b, putLeased("z", 7))
	require.ErrorIs(t, putOne("m"), denied)
	_, err := b.LeaseRevoke(ctx, 7)
	require.ErrorIs(t, err, denied)
	mustTxn(t, b, put("z", "1"))
	require.NoError(t, putOne("m"))

	// Other users and roles, another verdict.
	allowed['k'] = false
	_, err = b.ChangeAuth(t.Context(), setUser("me", "x"))
	require.NoError(t, err)
	require.ErrorIs(t, putOne("m"), denied)
	seen = 0
	require.ErrorIs(t, putOne("m"), denied)
	require.LessOrEqual(t, seen, 2, "a refusal judged all keys again")
	for _, k := range mustRange(t, b, &RangeRequest{KeyRange: rangeOf("k", "l")}).Records {
		mustTxn(t, b, del(string(k.Key)))
	}
	require.NoError(t, putOne("m"))

	// More keys than are noted.
	attach(t, b, "m/many", 2*verdictKeys, 7)
	require.NoError(t, putOne("m"))
	require.LessOrEqual(t, len(l.verdicts.of[7]), 1)
}

func TestPieceSizesFollowTheDatabase(t *testing.T) {
	var p pieceSize
	for range 100 {
		p.learn(p.get(), time.Millisecond)
	}
	require.Equal(t, RevocationKeys, p.get())
	p.learn(p.get(), time.Second)
	require.Equal(t, RevocationKeys/2, p.get())
	p.learn(10, time.Millisecond) // tells nothing
	require.Equal(t, RevocationKeys/2, p.get())
	for range 100 {
		p.learn(p.get(), time.Second)
	}
	require.Equal(t, minPieceKeys, p.get())
}
