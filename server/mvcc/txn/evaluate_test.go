package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// state is a State in memory.
type state struct {
	revision, compacted int64
	keys                map[string]*coder.Record
	past                map[int64][]*coder.Record
	leases              map[int64]bool
	policy              int64
	err                 error // of reads
}

// stateOf returns a state at revision 10 whose keys have their own names as values.
func stateOf(keys ...string) *state {
	s := &state{revision: 10, compacted: -1, keys: make(map[string]*coder.Record)}
	for i, k := range keys {
		rev := int64(i) + 2
		s.keys[k] = &coder.Record{Key: []byte(k), Value: []byte(k), CreateRevision: rev, ModRevision: rev, Version: 1}
	}
	return s
}

func (s *state) Revision() int64        { return s.revision }
func (s *state) CompactRevision() int64 { return s.compacted }

func (s *state) Get(_ context.Context, key []byte, _ bool) (*coder.Record, error) {
	return s.keys[string(key)], s.err
}

func (s *state) List(_ context.Context, kr mvcc.KeyRange, _ bool, limit int64) (records []*coder.Record, err error) {
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if coder.Contains(kr.Key, kr.End, []byte(k)) && (limit == 0 || int64(len(records)) < limit) {
			records = append(records, s.keys[k])
		}
	}
	return records, s.err
}

func (s *state) Count(ctx context.Context, kr mvcc.KeyRange) (int64, error) {
	records, err := s.List(ctx, kr, false, 0)
	return int64(len(records)), err
}

func (s *state) RangeAt(_ context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	records := s.past[q.Revision]
	return &mvcc.RangeResult{Records: records, Count: int64(len(records))}, s.err
}

func (s *state) LeaseOpen(id int64) bool           { return s.leases[id] }
func (s *state) PolicyLease([]byte) (int64, error) { return s.policy, nil }

func rangeOf(key, end string) mvcc.KeyRange { return mvcc.KeyRange{Key: []byte(key), End: []byte(end)} }

func put(key, value string) mvcc.Op {
	return mvcc.Op{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte(value)}}
}

func del(key, end string) mvcc.Op {
	return mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: rangeOf(key, end), PrevKV: true}}
}

func read(q mvcc.RangeRequest) mvcc.Op { return mvcc.Op{Range: &q} }

// show returns the keys and values of records.
func show(records []*coder.Record) (out string) {
	for _, r := range records {
		out += fmt.Sprintf("%s=%s ", r.Key, r.Value)
	}
	return out
}

// A transaction whose operations are not valid changes nothing, and its compares see the state before it.
func TestValidationPrecedesChanges(t *testing.T) {
	leased, ignoring := put("b", ""), put("new", "")
	leased.Put.Lease, ignoring.Put.IgnoreValue = 7, true
	for name, c := range map[string]struct {
		op   mvcc.Op
		want error
	}{
		"no lease":    {leased, mvcc.ErrLeaseNotFound},
		"no key":      {ignoring, mvcc.ErrKeyNotFound},
		"future":      {read(mvcc.RangeRequest{KeyRange: rangeOf("a", "z"), Revision: 11}), mvcc.ErrFutureRevision},
		"compacted":   {read(mvcc.RangeRequest{KeyRange: rangeOf("a", "z"), Revision: 4}), mvcc.ErrCompacted},
		"negative":    {read(mvcc.RangeRequest{KeyRange: rangeOf("a", "z"), Revision: -1}), mvcc.ErrCompacted},
		"put and del": {mvcc.Op{Txn: &mvcc.Txn{Then: []mvcc.Op{del("a", "z")}}}, mvcc.ErrDuplicateKey},
	} {
		s := stateOf("a", "b")
		s.compacted = 5
		res, changes, err := Evaluate(t.Context(), s, &mvcc.Txn{Then: []mvcc.Op{put("a", "1"), c.op}})
		require.ErrorIs(t, err, c.want, name)
		require.Nil(t, res, name)
		require.Nil(t, changes, name)
	}
	// The nested compare does not see the put before it.
	nested := &mvcc.Txn{Compares: []mvcc.Compare{{KeyRange: rangeOf("new", ""), Target: mvcc.CompareVersion}},
		Then: []mvcc.Op{put("absent", "")}, Else: []mvcc.Op{put("present", "")}}
	res, changes, err := Evaluate(t.Context(), stateOf(), &mvcc.Txn{Then: []mvcc.Op{put("new", ""), {Txn: nested}}})
	require.NoError(t, err)
	require.True(t, res.Results[1].Txn.Succeeded)
	require.Equal(t, "absent", string(changes[1].Record.Key))
	require.EqualValues(t, 1, changes[1].Record.Sub)
}

// A put may keep the value or the lease of its key, and gets the lease of a policy if it names none.
func TestPutKeepsWhatItDoesNotChange(t *testing.T) {
	s := stateOf("k")
	s.keys["k"].Lease = 7
	s.policy = 9
	write := func(p mvcc.PutRequest) *coder.Record {
		p.Key = []byte("k")
		_, changes, err := Evaluate(t.Context(), s, &mvcc.Txn{Then: []mvcc.Op{{Put: &p}}})
		require.NoError(t, err)
		return changes[0].Record
	}
	require.EqualValues(t, 9, write(mvcc.PutRequest{Value: []byte("v")}).Lease)
	require.EqualValues(t, 7, write(mvcc.PutRequest{Value: []byte("v"), IgnoreLease: true}).Lease)
	require.Equal(t, "k", string(write(mvcc.PutRequest{IgnoreValue: true}).Value))
	gone := mvcc.Op{Put: &mvcc.PutRequest{Key: []byte("k"), IgnoreValue: true}}
	_, _, err := Evaluate(t.Context(), s, &mvcc.Txn{Then: []mvcc.Op{del("k", ""), gone}})
	require.ErrorIs(t, err, mvcc.ErrKeyNotFound)
}

func TestRangesAtOlderRevisions(t *testing.T) {
	s := stateOf("a")
	s.past = map[int64][]*coder.Record{4: {{Key: []byte("old")}}}
	old := read(mvcc.RangeRequest{KeyRange: rangeOf("a", "z"), Revision: 4})
	res, _, err := Evaluate(t.Context(), s, &mvcc.Txn{Then: []mvcc.Op{old, put("a", "1"), old}})
	require.NoError(t, err)
	require.Equal(t, "old= ", show(res.Results[2].Range.Records))
	require.EqualValues(t, 10, res.Results[0].Range.Revision)
	require.EqualValues(t, 11, res.Results[2].Range.Revision)
	// Nothing was compacted: a negative revision is the current one.
	res, _, err = Evaluate(t.Context(), s, &mvcc.Txn{Then: []mvcc.Op{read(mvcc.RangeRequest{KeyRange: rangeOf("a", ""),
		Revision: -1})}})
	require.NoError(t, err)
	require.EqualValues(t, 1, res.Results[0].Range.Count)
}

func TestErrorsOfTheStateEndTheEvaluation(t *testing.T) {
	s := stateOf("a")
	s.err = errors.New("made up")
	for _, op := range []mvcc.Op{put("a", ""), del("a", "z"), read(mvcc.RangeRequest{KeyRange: rangeOf("a", "z")}),
		read(mvcc.RangeRequest{KeyRange: rangeOf("a", "z"), CountOnly: true}),
		read(mvcc.RangeRequest{KeyRange: rangeOf("a", "z"), Revision: 4})} {
		_, changes, err := Evaluate(t.Context(), s, &mvcc.Txn{Then: []mvcc.Op{op}})
		require.ErrorIs(t, err, s.err)
		require.Empty(t, changes)
	}
}

// A range with a limit asks for few records, whatever was changed in it, and gives what a range without a limit begins
// with.
func TestLimitedRangesAskForFewRecords(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	key := func(i int) []byte { return fmt.Appendf(nil, "%03d", i) }
	kr := rangeOf("0", "9")
	for range 500 {
		var base []*coder.Record
		for i := range 200 {
			if rnd.IntN(3) > 0 {
				base = append(base, &coder.Record{Key: key(i), Version: 1})
			}
		}
		var o Overlay
		for range rnd.IntN(60) {
			rec := &coder.Record{Key: key(rnd.IntN(200)), Version: 2, Tombstone: rnd.IntN(2) == 0}
			o.Add(&Change{Record: rec})
		}
		list := func(limit int64) ([]*coder.Record, error) {
			records := base
			if limit > 0 {
				records = base[:min(int64(len(base)), limit)]
			}
			return slices.Clone(records), nil
		}
		all, err := o.List(kr, 0, list)
		require.NoError(t, err)
		for _, limit := range []int{1, 2, 5, 50, 300} {
			got, err := o.List(kr, int64(limit), list)
			require.NoError(t, err)
			require.Equal(t, all[:min(limit, len(all))], got)
		}
	}
	var o Overlay
	for i := range 1000 { // at the end of the range
		o.Add(&Change{Record: &coder.Record{Key: fmt.Appendf(nil, "8/%04d", i)}})
	}
	asked := int64(0)
	got, err := o.List(kr, 2, func(limit int64) ([]*coder.Record, error) {
		asked += limit
		return []*coder.Record{{Key: key(1)}, {Key: key(2)}, {Key: key(3)}}[:limit], nil
	})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.EqualValues(t, 2, asked)
	require.Equal(t, 2, cap(got), "the others are not kept")
}

// Keys may come in any order, and a client chooses it: with each one, only a bounded number of others moves.
func TestOverlayKeepsItsOrder(t *testing.T) {
	var o Overlay
	rnd := rand.New(rand.NewPCG(1, 2))
	want := rnd.Perm(20 * maxChunk)
	for _, order := range [][]int{want[:10*maxChunk], want} { // the first half twice
		for _, i := range order {
			o.Add(&Change{Record: &coder.Record{Key: fmt.Appendf(nil, "%08d", i)}})
		}
	}
	require.Equal(t, len(want), o.Len())
	i := 0
	for c := range o.All() {
		require.Equal(t, fmt.Sprintf("%08d", i), string(c.Record.Key))
		require.Same(t, c, o.Get(c.Record.Key))
		i++
	}
	require.Equal(t, len(want), i)
	require.Nil(t, o.Get([]byte("x")))
	require.Nil(t, o.Get([]byte("")))
	require.Len(t, o.in(rangeOf("00000500", "00012000")), 11_500)
	require.Len(t, o.in(rangeOf("0", "00000001")), 1)
	require.Empty(t, o.in(rangeOf("1", "2")))
	for _, chunk := range o.chunks {
		require.NotEmpty(t, chunk)
		require.LessOrEqual(t, len(chunk), maxChunk)
	}
}

func TestEvaluationEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := Evaluate(ctx, stateOf("a"),
		&mvcc.Txn{Then: []mvcc.Op{read(mvcc.RangeRequest{KeyRange: rangeOf("a", "z")})}})
	require.ErrorIs(t, err, context.Canceled)
}

// The answers of a transaction are in memory together. One range may be as large as one by itself.
func TestAnswersOfATransactionAreBounded(t *testing.T) {
	s := stateOf("a")
	s.keys["a"].Value = make([]byte, mvcc.MaxAnswerBytes/2)
	large := rangeOf("a", "z")
	whole, one, prev := read(mvcc.RangeRequest{KeyRange: large}), del("a", "z"), put("a", "")
	prev.Put.PrevKV = true
	nested := mvcc.Op{Txn: &mvcc.Txn{Then: []mvcc.Op{whole}}}
	for name, ops := range map[string][]mvcc.Op{
		"ranges": {whole, whole}, "nested": {nested, nested}, "delete": {whole, one}, "put": {whole, prev},
	} {
		_, changes, err := Evaluate(t.Context(), s, &mvcc.Txn{Then: ops})
		require.ErrorIs(t, err, mvcc.ErrTooLarge, name)
		require.Empty(t, changes, name)
	}
	count, first := read(mvcc.RangeRequest{KeyRange: large, CountOnly: true}),
		read(mvcc.RangeRequest{KeyRange: large, KeysOnly: true})
	_, _, err := Evaluate(t.Context(), s, &mvcc.Txn{Then: []mvcc.Op{count, first, count, first, whole}})
	require.NoError(t, err)
	s.keys["a"].Value = make([]byte, 2*mvcc.MaxAnswerBytes)
	_, _, err = Evaluate(t.Context(), s, &mvcc.Txn{Then: []mvcc.Op{count, whole}})
	require.NoError(t, err)
}
