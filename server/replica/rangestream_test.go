package replica

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// TestSortedStreamEqualsRange: a target without an order sorts ascending, however
// many chunks there are.
func TestSortedStreamEqualsRange(t *testing.T) {
	b := open(t, newStore(t), nil)
	for i := range 60 {
		for range 1 + i*7%5 {
			mustTxn(t, b, put(fmt.Sprintf("k%02d", i*37%60), fmt.Sprint(i*11%60)))
		}
	}
	mustTxn(t, b, del("k07"))
	for _, target := range []mvcc.SortTarget{mvcc.SortByKey, mvcc.SortByVersion, mvcc.SortByCreate, mvcc.SortByMod,
		mvcc.SortByValue} {
		for _, q := range []mvcc.RangeRequest{
			{KeyRange: all()}, {KeyRange: all(), Limit: 7}, {KeyRange: all(), Limit: 59}, {KeyRange: all(), Limit: 58},
			{KeyRange: all(), KeysOnly: true},
			{KeyRange: all(), CountOnly: true}, {KeyRange: mvcc.KeyRange{Key: []byte("k3")}},
			{KeyRange: mvcc.KeyRange{Key: []byte("k3"), End: []byte("k4")}},
			{KeyRange: mvcc.KeyRange{Key: []byte("x"), End: []byte("a")}},
		} {
			q.SortBy = target
			want, got, chunks := mustRange(t, b, &q), &mvcc.RangeResult{}, 0
			err := b.Reader.RangeStream(t.Context(), auth.System, &q, true, 400,
				func(chunk *mvcc.RangeResult, last bool) error {
					chunks++
					if records := append(got.Records, chunk.Records...); last {
						*got = *chunk
						got.Records = records
					} else {
						got.Records = records
					}
					return nil
				})
			if err != nil || !proto.Equal(rangeAnswer(got), rangeAnswer(want)) {
				t.Errorf("%+v, %v:\n got %v\nwant %v", q, err, rangeAnswer(got), rangeAnswer(want))
			}
			if len(got.Records) > 20 && chunks < 3 {
				t.Errorf("%+v: %d chunks", q, chunks)
			}
		}
	}
}

// TestSortedStreamIsBounded: nothing is sent of a range that is too large to be sorted.
func TestSortedStreamIsBounded(t *testing.T) {
	b := open(t, newStore(t), func(c *Config) { c.maxSortedStream = 2000 })
	for i := range 20 {
		mustTxn(t, b, put(fmt.Sprintf("k%02d", i), "value"))
	}
	stream := func(q *mvcc.RangeRequest) (sent int, err error) {
		err = b.Reader.RangeStream(t.Context(), auth.System, q, true, 400, func(chunk *mvcc.RangeResult, _ bool) error {
			sent += len(chunk.Records)
			return nil
		})
		return sent, err
	}
	if n, err := stream(&mvcc.RangeRequest{KeyRange: all(), SortBy: mvcc.SortByMod}); !errors.Is(err,
		mvcc.ErrSortTooLarge) || n != 0 {
		t.Errorf("by modification: %d records, %v", n, err)
	}
	// The bound is one for all streams together, while they are sent.
	few := &mvcc.RangeRequest{KeyRange: all(), SortBy: mvcc.SortByMod, Limit: 5}
	err := b.Reader.RangeStream(t.Context(), auth.System, few, true, 400, func(*mvcc.RangeResult, bool) error {
		_, err := stream(few)
		return err
	})
	if !errors.Is(err, mvcc.ErrTooManyRequests) {
		t.Errorf("at the same time: %v", err)
	}
	if n, err := stream(few); err != nil || n != 5 {
		t.Errorf("five by modification: %d records, %v", n, err)
	}
	if n, err := stream(&mvcc.RangeRequest{KeyRange: all()}); err != nil || n != 20 {
		t.Errorf("by key: %d records, %v", n, err)
	}
}
