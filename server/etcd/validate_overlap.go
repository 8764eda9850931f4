package etcd

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/btree"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sqlbrain/sqlbrain/coder"
)

// validateOverlap refuses a transaction that could change a key twice: two puts of
// one key, or a put and a delete that covers it, in the operations that one
// branch may execute, those of nested transactions included. Two deletes may
// overlap, and so may the two branches of a transaction, of which only one is
// executed.
//
// As in etcd, a put in a nested transaction may come before a delete in a later
// one. A revision holds one version of a key here, so such a transaction fails
// if both are executed: see mvcc.ErrDuplicateKey. etcd also lets a put alongside
// a delete of every key starting at one pass, which is refused.
//
// The order of the work is n log n in the number of operations at each level:
// it must not be quadratic, since nesting multiplies the operations allowed.
func validateOverlap(r *pb.TxnRequest) error {
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		if len(branch) == 1 && branch[0].GetRequestTxn() == nil {
			continue // the common case: nothing to overlap with
		}
		if _, err := branchWrites(branch); err != nil {
			return err
		}
	}
	return nil
}

// direct is the position of deletes that are not in a nested transaction: they come before
// all nested puts, as etcd checks them.
const direct = -1

// writes is what operations may write: single keys put, and spans deleted, each
// with the position of the operation that does it. A put that is not in a nested transaction
// has a position after all operations, for the same reason as direct.
type writes struct {
	puts    map[string]int
	deletes []deletedSpan
}

// deletedSpan is the keys [lo, hi), or all keys starting at lo.
type deletedSpan struct {
	lo, hi []byte
	toEnd  bool
	op     int
}

func branchWrites(ops []*pb.RequestOp) (writes, error) {
	w := writes{puts: make(map[string]int)}
	for i, op := range ops {
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			if !w.put(string(r.RequestPut.Key), len(ops)) {
				return w, rpctypes.ErrGRPCDuplicateKey
			}
		case *pb.RequestOp_RequestDeleteRange:
			w.deleteRange(r.RequestDeleteRange, direct)
		case *pb.RequestOp_RequestTxn:
			for _, branch := range [][]*pb.RequestOp{r.RequestTxn.Success, r.RequestTxn.Failure} {
				nested, err := branchWrites(branch)
				if err != nil {
					return w, err
				}
				for key := range nested.puts {
					// A key that both branches put was put by the same operation.
					if !w.put(key, i) && w.puts[key] != i {
						return w, rpctypes.ErrGRPCDuplicateKey
					}
				}
				for _, d := range nested.deletes {
					d.op = i
					w.deletes = append(w.deletes, d)
				}
			}
		}
	}
	if w.deletesWhatALaterOnePuts() {
		return w, rpctypes.ErrGRPCDuplicateKey
	}
	return w, nil
}

// put reports whether key had not been put yet.
func (w *writes) put(key string, op int) bool {
	if _, ok := w.puts[key]; ok {
		return false
	}
	w.puts[key] = op
	return true
}

func (w *writes) deleteRange(r *pb.DeleteRangeRequest, op int) {
	d := deletedSpan{lo: r.Key, hi: r.RangeEnd, op: op}
	switch {
	case len(r.RangeEnd) == 0:
		d.hi = append(bytes.Clone(r.Key), 0) // the smallest key after it
	case coder.IsFromKey(r.RangeEnd):
		d.toEnd = true
	case bytes.Compare(r.Key, r.RangeEnd) >= 0:
		return // names no key
	}
	w.deletes = append(w.deletes, d)
}

// deletesWhatALaterOnePuts walks over the bounds of the spans and the keys put in
// key order, and keeps the positions of the spans it is in.
func (w *writes) deletesWhatALaterOnePuts() bool {
	if len(w.deletes) == 0 || len(w.puts) == 0 {
		return false
	}
	type step struct {
		key  string
		kind int // at one key, spans end before others begin, and both before puts
		op   int
	}
	const ends, begins, puts = 0, 1, 2
	steps := make([]step, 0, 2*len(w.deletes)+len(w.puts))
	for _, d := range w.deletes {
		steps = append(steps, step{string(d.lo), begins, d.op})
		if !d.toEnd {
			steps = append(steps, step{string(d.hi), ends, d.op})
		}
	}
	for key, op := range w.puts {
		steps = append(steps, step{key, puts, op})
	}
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.key, b.key), a.kind-b.kind)
	})
	inside, byOp := btree.NewOrderedG[int](32), make(map[int]int)
	for _, s := range steps {
		switch s.kind {
		case ends:
			if byOp[s.op]--; byOp[s.op] == 0 {
				inside.Delete(s.op)
			}
		case begins:
			byOp[s.op]++
			inside.ReplaceOrInsert(s.op)
		case puts:
			if first, ok := inside.Min(); ok && first < s.op {
				return true
			}
		}
	}
	return false
}
