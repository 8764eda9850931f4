package mvcc

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

// records returns a to d: mod revisions fall, versions are equal in pairs.
func records() (out []*coder.Record) {
	for i, key := range "abcd" {
		out = append(out, &coder.Record{
			Key: []byte(string(key)), Value: []byte{byte('z' - i)}, ModRevision: int64(10 - i), CreateRevision: int64(i + 1),
			Version: int64(i / 2), Lease: 7,
		})
	}
	return out
}

// What a range leaves out is not kept in memory with its answer.
func TestFinishKeepsOnlyWhatItReturns(t *testing.T) {
	for name, q := range map[string]RangeRequest{
		"limit": {Limit: 1, SortOrder: SortDescend}, "filter": {MinCreateRevision: 4},
	} {
		res := RangeResult{}
		q.Finish(&res, records())
		if len(res.Records) != 1 || cap(res.Records) > 2 {
			t.Errorf("%s: %d records, %d kept", name, len(res.Records), cap(res.Records))
		}
	}
}

func TestStripLeavesTheRecordsOfOthersAlone(t *testing.T) {
	for sortBy, lease := range map[SortTarget]int64{SortByKey: 0, SortByValue: 7} {
		shared := records()
		stripped := append([]*coder.Record(nil), shared...)
		(&RangeRequest{KeysOnly: true, SortBy: sortBy}).Strip(stripped)
		if r := stripped[0]; r.Value != nil || r.Lease != lease || r.ModRevision != 10 {
			t.Errorf("%+v", r)
		}
		if r := shared[0]; r.Value == nil || r.Lease != 7 {
			t.Errorf("the record of others: %+v", r)
		}
	}
}

func TestPaged(t *testing.T) {
	several := KeyRange{Key: []byte("a"), End: []byte("b")}
	for name, c := range map[string]struct {
		q    RangeRequest
		want bool
	}{
		"one key":       {RangeRequest{KeyRange: KeyRange{Key: []byte("a")}}, true},
		"a count":       {RangeRequest{KeyRange: several, CountOnly: true}, true},
		"a page":        {RangeRequest{KeyRange: several, Limit: PageRows}, true},
		"a long page":   {RangeRequest{KeyRange: several, Limit: PageRows + 1}, false},
		"a sorted page": {RangeRequest{KeyRange: several, Limit: 1, SortBy: SortByMod}, false},
		"filtered":      {RangeRequest{KeyRange: several, Limit: 1, MinModRevision: 1}, false},
		"all":           {RangeRequest{KeyRange: several}, false},
	} {
		if got := c.q.Paged(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
