package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Without an order, a limit is one on keys: what comes behind it is not looked at,
// whatever the target to sort by is. With an order, everything is sorted first.
func TestLimitWithoutSortOrderLimitsKeysRead(t *testing.T) {
	b := open(t, newStore(t), nil)
	for i := range 5 { // the values fall as the keys rise
		mustTxn(t, b, put(fmt.Sprint("k", i), fmt.Sprint(5-i)))
	}
	for _, tt := range []struct {
		q    mvcc.RangeRequest
		keys string
		more bool
	}{
		{mvcc.RangeRequest{SortBy: mvcc.SortByValue}, "k4 k3 k2 k1 k0", false},
		// The key behind the limit is sorted too, and left out for being last.
		{mvcc.RangeRequest{SortBy: mvcc.SortByValue, Limit: 2}, "k2 k1", true},
		{mvcc.RangeRequest{SortBy: mvcc.SortByMod, Limit: 2}, "k0 k1", true},
		{mvcc.RangeRequest{SortBy: mvcc.SortByValue, Limit: 5}, "k4 k3 k2 k1 k0", false},
		{mvcc.RangeRequest{SortBy: mvcc.SortByValue, SortOrder: mvcc.SortAscend, Limit: 2}, "k4 k3", true},
		{mvcc.RangeRequest{SortBy: mvcc.SortByValue, SortOrder: mvcc.SortDescend, Limit: 2}, "k0 k1", true},
		// With a filter every key is looked at.
		{mvcc.RangeRequest{SortBy: mvcc.SortByValue, MinModRevision: 1, Limit: 2}, "k4 k3", true},
	} {
		tt.q.KeyRange = all()
		res := mustRange(t, b, &tt.q)
		var keys []string
		for _, r := range res.Records {
			keys = append(keys, string(r.Key))
		}
		if got := strings.Join(keys, " "); got != tt.keys || res.More != tt.more || res.Count != 5 {
			t.Errorf("%+v: %s, more %t, count %d; want %s, more %t, count 5", tt.q, got, res.More, res.Count, tt.keys, tt.more)
		}
	}
}
