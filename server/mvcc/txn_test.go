package mvcc

import (
	"testing"
)

func TestWritesAndPutsLookIntoNestedTransactions(t *testing.T) {
	put, del, read := Op{Put: &PutRequest{}}, Op{Delete: &DeleteRequest{}}, Op{Range: &RangeRequest{}}
	nested := func(ops ...Op) Op { return Op{Txn: &Txn{Else: ops}} }
	for name, c := range map[string]struct {
		txn          Txn
		writes, puts bool
	}{
		"nothing":         {Txn{}, false, false},
		"a read":          {Txn{Then: []Op{read}}, false, false},
		"a put":           {Txn{Then: []Op{read, put}}, true, true},
		"a delete":        {Txn{Else: []Op{del}}, true, false},
		"a nested delete": {Txn{Then: []Op{nested(read, del)}}, true, false},
		"a nested put":    {Txn{Else: []Op{nested(nested(put))}}, true, true},
	} {
		if w, p := c.txn.Writes(), c.txn.Puts(); w != c.writes || p != c.puts {
			t.Errorf("%s: writes %v, puts %v", name, w, p)
		}
	}
}

func TestCostIsThatOfTheLargerBranch(t *testing.T) {
	put := func(n int) Op { return Op{Put: &PutRequest{Key: []byte("k"), Value: make([]byte, n)}} }
	txn := Txn{Then: []Op{put(10), {Delete: &DeleteRequest{}}}, Else: []Op{put(1), {Txn: &Txn{Then: []Op{put(2)}}}}}
	if got, want := txn.Cost(), int64(2*256+1+1+1+2); got != want {
		t.Errorf("cost %d, want %d", got, want)
	}
}
