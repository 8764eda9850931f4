package backend

import "github.com/sqlbrain/sqlbrain/coder"

// KeyRange names raw keys as etcd does: an empty End is the single key Key, an
// End of one zero byte is every key from Key on, anything else is [Key, End).
type KeyRange struct{ Key, End []byte }

// bounds returns the keys of a range of several as [start, end), where a nil end is
// behind every key.
func (kr KeyRange) bounds() (start, end []byte) {
	if coder.IsFromKey(kr.End) {
		return kr.Key, nil
	}
	return kr.Key, kr.End
}

// RangeRequest is a validated etcd RangeRequest.
type RangeRequest struct {
	KeyRange
	Revision  int64 // <= 0 is the current revision
	Limit     int64 // <= 0 is no limit
	SortOrder SortOrder
	SortBy    SortTarget
	KeysOnly  bool
	CountOnly bool

	MinModRevision, MaxModRevision       int64 // 0 is no bound
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

// LeaseStatus answers Grant and TimeToLive. Times are in seconds.
type LeaseStatus struct {
	ID         int64
	GrantedTTL int64
	TTL        int64 // remaining; -1 if there is no such lease
	Keys       [][]byte
	Revision   int64 // of the store when the lease was granted; Grant only
}

// Alarm is a raised alarm; Type has etcd's AlarmType values.
type Alarm struct {
	MemberID uint64
	Type     int32
}

// The alarm types.
const (
	AlarmNone    int32 = 0
	AlarmNoSpace int32 = 1
	AlarmCorrupt int32 = 2
)

// Hash answers HashKV.
type Hash struct {
	Hash            uint32
	HashRevision    int64
	CompactRevision int64
	Revision        int64 // current
}

// Status is what Maintenance.Status, health checks and metrics report.
type Status struct {
	Revision        int64
	CompactRevision int64
	Term            int64
	Sequence        int64 // commits so far, the stand-in for raft's index
	DBSize          int64
	DBSizeInUse     int64
	QuotaBytes      int64  // 0 is no quota
	Leader          uint64 // the member that leads as far as the node knows, 0 if none
	Serving         error  // nil while the node serves and knows a leader; else why not
}
