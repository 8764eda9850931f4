package mvcc

import "github.com/sqlbrain/sqlbrain/coder"

// KeyRange names raw keys as etcd does: an empty End is the single key Key, an
// End of one zero byte is every key at or after Key, anything else is [Key, End).
type KeyRange struct{ Key, End []byte }

// Span returns the keys of a range of several.
func (kr KeyRange) Span() coder.Span {
	if coder.IsFromKey(kr.End) {
		return coder.Span{Start: kr.Key}
	}
	return coder.Span{Start: kr.Key, End: kr.End}
}

// RangeRequest is a validated etcd RangeRequest.
type RangeRequest struct {
	KeyRange
	Revision  int64 // <= 0 is the current revision
	Limit     int64 // <= 0: unlimited
	SortOrder SortOrder
	SortBy    SortTarget
	KeysOnly  bool
	CountOnly bool

	MinModRevision, MaxModRevision       int64 // 0: unbounded
	MinCreateRevision, MaxCreateRevision int64
}

// SortOrder and SortTarget have etcd's values.
type (
	SortOrder  int
	SortTarget int
)

// The orders and targets of etcd's RangeRequest.
const (
	SortNone SortOrder = iota
	SortAscend
	SortDescend
)

const (
	SortByKey SortTarget = iota
	SortByVersion
	SortByCreate
	SortByMod
	SortByValue
)

// RangeResult answers a RangeRequest. Revision is the store's revision when the
// request was evaluated, not the one it asked for.
type RangeResult struct {
	Revision int64
	Records  []*coder.Record // Value is nil with KeysOnly
	Count    int64
	More     bool
}

// PutRequest is a validated etcd PutRequest.
type PutRequest struct {
	Key, Value  []byte
	Lease       int64
	PrevKV      bool
	IgnoreValue bool
	IgnoreLease bool
}

// PutResult answers a PutRequest.
type PutResult struct {
	Revision int64
	Prev     *coder.Record // nil unless asked for and present
}

// DeleteRequest is a validated etcd DeleteRangeRequest.
type DeleteRequest struct {
	KeyRange
	PrevKV bool
}

// DeleteResult answers a DeleteRequest.
type DeleteResult struct {
	Revision int64
	Deleted  int64
	Prev     []*coder.Record // nil unless asked for
}

// Op is one operation of a transaction: exactly one field is set.
type Op struct {
	Range  *RangeRequest
	Put    *PutRequest
	Delete *DeleteRequest
	Txn    *Txn
}

// OpResult answers an Op: the same field is set.
type OpResult struct {
	Range  *RangeResult
	Put    *PutResult
	Delete *DeleteResult
	Txn    *TxnResult
}

// Txn is a validated etcd TxnRequest.
type Txn struct {
	Compares   []Compare
	Then, Else []Op
}

// TxnResult answers a Txn.
type TxnResult struct {
	Revision  int64 // after the transaction
	Succeeded bool
	Results   []OpResult
}

// CompareTarget and CompareResult have etcd's values.
type (
	CompareTarget int
	CompareResult int
)

// The targets and results of etcd's Compare.
const (
	CompareVersion CompareTarget = iota
	CompareCreate
	CompareMod
	CompareValue
	CompareLease
)

const (
	CompareEqual CompareResult = iota
	CompareGreater
	CompareLess
	CompareNotEqual
)

// Compare is one condition of a Txn. With an End it must hold for every key of
// the range.
type Compare struct {
	KeyRange
	Target CompareTarget
	Result CompareResult
	Int    int64  // what version, revisions and lease are compared with
	Value  []byte // what a value is compared with
}
