package server

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// modelMinTTL is the TTL in seconds of all leases of a model that are granted for less, so
// that none expires.
const modelMinTTL = 3600

// requestModel is what etcd answers to one client that sends its requests one after the other:
// each of its methods executes one request, and returns the expected answer or error. It
// keeps every version of every key and looks at all of them.
type requestModel struct {
	rev, compacted int64
	versions       map[string][]modelVersion // ascending
	leases         map[int64]int64           // TTLs
	events         []*mvccpb.Event           // with prev_kv
}

// modelVersion is a version of a key; kv is nil if the key was deleted.
type modelVersion struct {
	rev int64
	kv  *mvccpb.KeyValue
}

func newRequestModel() *requestModel {
	return &requestModel{rev: 1, compacted: -1, versions: make(map[string][]modelVersion), leases: make(map[int64]int64)}
}

func inRange(key string, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return key == string(from)
	case len(end) == 1 && end[0] == 0:
		return key >= string(from)
	default:
		return key >= string(from) && key < string(end)
	}
}

func (m *requestModel) get(key string, rev int64) *mvccpb.KeyValue {
	for _, v := range slices.Backward(m.versions[key]) {
		if v.rev <= rev {
			return v.kv
		}
	}
	return nil
}

func (m *requestModel) list(from, end []byte, rev int64) (kvs []*mvccpb.KeyValue) {
	for _, k := range slices.Sorted(maps.Keys(m.versions)) {
		if kv := m.get(k, rev); kv != nil && inRange(k, from, end) {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

// modelTxn is a request that may write, at the revision after the newest.
type modelTxn struct {
	*requestModel
	wrote bool
}

func (x *modelTxn) now() int64 {
	if x.wrote {
		return x.rev + 1
	}
	return x.rev
}

func (x *modelTxn) write(key string, kv *mvccpb.KeyValue) {
	e := &mvccpb.Event{Kv: kv, PrevKv: x.get(key, x.now())}
	if x.wrote = true; kv == nil {
		e.Type, e.Kv = mvccpb.Event_DELETE, &mvccpb.KeyValue{Key: []byte(key), ModRevision: x.rev + 1}
	}
	x.versions[key] = append(x.versions[key], modelVersion{x.rev + 1, kv})
	x.events = append(x.events, e)
}

func (x *modelTxn) commit() *pb.ResponseHeader {
	x.rev = x.now()
	return modelHeader(x.rev)
}

func modelHeader(rev int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: rev} }

func checkModelRange(r *pb.RangeRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.SortOrder < 0 || r.SortOrder > 2, r.SortTarget < 0 || r.SortTarget > 4:
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

func checkModelPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) > 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

// Range implements KV.
func (m *requestModel) Range(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkModelRange(r); err != nil {
		return nil, err
	}
	if r.Revision > m.rev {
		return nil, rpctypes.ErrGRPCFutureRev
	}
	if r.Revision > 0 && r.Revision < m.compacted {
		return nil, rpctypes.ErrGRPCCompacted
	}
	return (&modelTxn{requestModel: m}).rangeOp(r), nil
}

func (x *modelTxn) rangeOp(r *pb.RangeRequest) *pb.RangeResponse {
	rev := x.now()
	if r.Revision > 0 {
		rev = r.Revision
	}
	kvs := x.list(r.Key, r.RangeEnd, rev)
	res := &pb.RangeResponse{Header: modelHeader(x.now()), Count: int64(len(kvs))}
	if r.CountOnly {
		return res
	}
	filtered := r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
	if !filtered && r.SortOrder == pb.RangeRequest_NONE && r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs = kvs[:r.Limit+1] // etcd reads no more keys, whatever it sorts them by
	}
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		return r.MinModRevision != 0 && kv.ModRevision < r.MinModRevision || r.MaxModRevision != 0 &&
			kv.ModRevision > r.MaxModRevision ||
			r.MinCreateRevision != 0 && kv.CreateRevision < r.MinCreateRevision || r.MaxCreateRevision != 0 &&
			kv.CreateRevision > r.MaxCreateRevision
	})
	if r.SortOrder != pb.RangeRequest_NONE || r.SortTarget != pb.RangeRequest_KEY {
		slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int {
			if r.SortOrder == pb.RangeRequest_DESCEND {
				a, b = b, a
			}
			switch r.SortTarget {
			case pb.RangeRequest_VERSION:
				return cmp.Compare(a.Version, b.Version)
			case pb.RangeRequest_CREATE:
				return cmp.Compare(a.CreateRevision, b.CreateRevision)
			case pb.RangeRequest_MOD:
				return cmp.Compare(a.ModRevision, b.ModRevision)
			case pb.RangeRequest_VALUE:
				return bytes.Compare(a.Value, b.Value)
			default:
				return bytes.Compare(a.Key, b.Key)
			}
		})
	}
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, res.More = kvs[:r.Limit], true
	}
	for _, kv := range kvs {
		if r.KeysOnly {
			kv = proto.CloneOf(kv)
			if kv.Value = nil; r.SortTarget != pb.RangeRequest_VALUE {
				kv.Lease = 0
			}
		}
		res.Kvs = append(res.Kvs, kv)
	}
	return res
}

// Put implements KV.
func (m *requestModel) Put(r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkModelPut(r); err != nil {
		return nil, err
	}
	x := &modelTxn{requestModel: m}
	if err := x.checkPut(r); err != nil {
		return nil, err
	}
	res := x.put(r)
	res.Header = x.commit()
	return res, nil
}

// checkPut judges a put on the state before the request.
func (x *modelTxn) checkPut(r *pb.PutRequest) error {
	if _, ok := x.leases[r.Lease]; r.Lease != 0 && !ok {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	if (r.IgnoreValue || r.IgnoreLease) && x.get(string(r.Key), x.rev) == nil {
		return rpctypes.ErrGRPCKeyNotFound
	}
	return nil
}

func (x *modelTxn) put(r *pb.PutRequest) *pb.PutResponse {
	prev := x.get(string(r.Key), x.now())
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: x.rev + 1, ModRevision: x.rev + 1,
		Version: 1}
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
		if r.IgnoreValue {
			kv.Value = prev.Value
		}
		if r.IgnoreLease {
			kv.Lease = prev.Lease
		}
	}
	x.write(string(r.Key), kv)
	res := &pb.PutResponse{Header: modelHeader(x.now())}
	if r.PrevKv {
		res.PrevKv = prev
	}
	return res
}

// DeleteRange implements KV.
func (m *requestModel) DeleteRange(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	x := &modelTxn{requestModel: m}
	res := x.deleteRange(r)
	res.Header = x.commit()
	return res, nil
}

func (x *modelTxn) deleteRange(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	kvs := x.list(r.Key, r.RangeEnd, x.now())
	for _, kv := range kvs {
		x.write(string(kv.Key), nil)
	}
	res := &pb.DeleteRangeResponse{Header: modelHeader(x.now()), Deleted: int64(len(kvs))}
	if r.PrevKv {
		res.PrevKvs = kvs
	}
	return res
}

// Txn implements KV.
func (m *requestModel) Txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkModelTxn(r); err != nil {
		return nil, err
	}
	if overlaps(r) {
		return nil, rpctypes.ErrGRPCDuplicateKey
	}
	x := &modelTxn{requestModel: m}
	decided := make(map[*pb.TxnRequest]bool)
	x.decide(r, decided)
	if err := x.checkChosen(r, decided); err != nil {
		return nil, err
	}
	if deletesItsPut(chosen(r, decided)) {
		return nil, rpctypes.ErrGRPCDuplicateKey
	}
	res := x.execute(r, decided)
	res.Header = x.commit()
	return res, nil
}

func checkModelTxn(r *pb.TxnRequest) error {
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, op := range slices.Concat(r.Success, r.Failure) {
		var err error
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			err = checkModelRange(o.RequestRange)
		case *pb.RequestOp_RequestPut:
			err = checkModelPut(o.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			if len(o.RequestDeleteRange.Key) == 0 {
				err = rpctypes.ErrGRPCEmptyKey
			}
		case *pb.RequestOp_RequestTxn:
			err = checkModelTxn(o.RequestTxn)
		default:
			err = rpctypes.ErrGRPCKeyNotFound
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// overlaps reports whether operations of a branch may write a key twice, see package etcd.
// A nested put may come before a delete in a later nested transaction.
func overlaps(r *pb.TxnRequest) bool {
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for i, op := range branch {
			if t := op.GetRequestTxn(); t != nil && overlaps(t) {
				return true
			}
			for _, other := range branch[:i] {
				nested := op.GetRequestTxn() != nil && other.GetRequestTxn() != nil
				if meet(op, other, false) || meet(other, op, nested) {
					return true
				}
			}
		}
	}
	return false
}

// meet reports whether a may put a key that b may put or, unless onlyPuts, delete.
func meet(a, b *pb.RequestOp, onlyPuts bool) bool {
	for _, put := range leaves(a) {
		p := put.GetRequestPut()
		if p == nil {
			continue
		}
		for _, other := range leaves(b) {
			if o := other.GetRequestPut(); o != nil && bytes.Equal(o.Key, p.Key) {
				return true
			}
			if d := other.GetRequestDeleteRange(); d != nil && !onlyPuts && inRange(string(p.Key), d.Key, d.RangeEnd) {
				return true
			}
		}
	}
	return false
}

// leaves returns the operations that op may execute, without transactions.
func leaves(op *pb.RequestOp) (all []*pb.RequestOp) {
	t := op.GetRequestTxn()
	if t == nil {
		return []*pb.RequestOp{op}
	}
	for _, nested := range slices.Concat(t.Success, t.Failure) {
		all = append(all, leaves(nested)...)
	}
	return all
}

// chosen returns the operations that r executes, without transactions.
func chosen(r *pb.TxnRequest, decided map[*pb.TxnRequest]bool) (all []*pb.RequestOp) {
	for _, op := range branchOf(r, decided[r]) {
		if t := op.GetRequestTxn(); t != nil {
			all = append(all, chosen(t, decided)...)
		} else {
			all = append(all, op)
		}
	}
	return all
}

// deletesItsPut reports whether one of ops deletes what an earlier one puts.
func deletesItsPut(ops []*pb.RequestOp) bool {
	for i, op := range ops {
		d := op.GetRequestDeleteRange()
		if d != nil && slices.ContainsFunc(ops[:i], func(before *pb.RequestOp) bool {
			p := before.GetRequestPut()
			return p != nil && inRange(string(p.Key), d.Key, d.RangeEnd)
		}) {
			return true
		}
	}
	return false
}

func branchOf(r *pb.TxnRequest, succeeded bool) []*pb.RequestOp {
	if succeeded {
		return r.Success
	}
	return r.Failure
}

func (x *modelTxn) decide(r *pb.TxnRequest, decided map[*pb.TxnRequest]bool) {
	decided[r] = !slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool { return !x.holds(c) })
	for _, op := range branchOf(r, decided[r]) {
		if t := op.GetRequestTxn(); t != nil {
			x.decide(t, decided)
		}
	}
}

func (x *modelTxn) holds(c *pb.Compare) bool {
	kvs := x.list(c.Key, c.RangeEnd, x.rev)
	if len(kvs) == 0 {
		if c.Target == pb.Compare_VALUE {
			return false
		}
		kvs = []*mvccpb.KeyValue{{}}
	}
	return !slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		var n int
		switch c.Target {
		case pb.Compare_VERSION:
			n = cmp.Compare(kv.Version, c.GetVersion())
		case pb.Compare_CREATE:
			n = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
		case pb.Compare_MOD:
			n = cmp.Compare(kv.ModRevision, c.GetModRevision())
		case pb.Compare_LEASE:
			n = cmp.Compare(kv.Lease, c.GetLease())
		case pb.Compare_VALUE:
			n = bytes.Compare(kv.Value, c.GetValue())
		}
		switch c.Result {
		case pb.Compare_EQUAL:
			return n != 0
		case pb.Compare_NOT_EQUAL:
			return n == 0
		case pb.Compare_GREATER:
			return n <= 0
		default:
			return n >= 0
		}
	})
}

// checkChosen judges the chosen operations on the state before the transaction.
func (x *modelTxn) checkChosen(r *pb.TxnRequest, decided map[*pb.TxnRequest]bool) error {
	for _, op := range branchOf(r, decided[r]) {
		var err error
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			if rev := o.RequestRange.Revision; rev > x.rev {
				err = rpctypes.ErrGRPCFutureRev
			} else if rev != 0 && rev < x.compacted {
				err = rpctypes.ErrGRPCCompacted
			}
		case *pb.RequestOp_RequestPut:
			err = x.checkPut(o.RequestPut)
		case *pb.RequestOp_RequestTxn:
			err = x.checkChosen(o.RequestTxn, decided)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *modelTxn) execute(r *pb.TxnRequest, decided map[*pb.TxnRequest]bool) *pb.TxnResponse {
	res := &pb.TxnResponse{Succeeded: decided[r]}
	for _, op := range branchOf(r, decided[r]) {
		out := &pb.ResponseOp{}
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: x.rangeOp(o.RequestRange)}
		case *pb.RequestOp_RequestPut:
			out.Response = &pb.ResponseOp_ResponsePut{ResponsePut: x.put(o.RequestPut)}
		case *pb.RequestOp_RequestDeleteRange:
			out.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: x.deleteRange(o.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			nested := x.execute(o.RequestTxn, decided)
			nested.Header = &pb.ResponseHeader{}
			out.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: nested}
		}
		res.Responses = append(res.Responses, out)
	}
	return res
}

// Compact implements KV.
func (m *requestModel) Compact(r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	switch {
	case r.Revision <= m.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision > m.rev:
		return nil, rpctypes.ErrGRPCFutureRev
	}
	m.compacted = r.Revision
	return &pb.CompactionResponse{Header: modelHeader(m.rev)}, nil
}

// LeaseGrant implements Lease. The server chooses an id if r has none.
func (m *requestModel) LeaseGrant(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if r.TTL > 9_000_000_000 {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	if _, ok := m.leases[r.ID]; ok {
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	ttl := max(r.TTL, modelMinTTL)
	if r.ID != 0 {
		m.leases[r.ID] = ttl
	}
	return &pb.LeaseGrantResponse{Header: modelHeader(m.rev), ID: r.ID, TTL: ttl}, nil
}

// LeaseRevoke implements Lease.
func (m *requestModel) LeaseRevoke(r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if _, ok := m.leases[r.ID]; !ok {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	x := &modelTxn{requestModel: m}
	for _, key := range m.attached(r.ID) {
		x.write(string(key), nil)
	}
	delete(m.leases, r.ID)
	return &pb.LeaseRevokeResponse{Header: x.commit()}, nil
}

// attached returns the keys of a lease in order.
func (m *requestModel) attached(id int64) (keys [][]byte) {
	for _, kv := range m.list([]byte{0}, []byte{0}, m.rev) {
		if kv.Lease == id {
			keys = append(keys, kv.Key)
		}
	}
	return keys
}

// LeaseTimeToLive implements Lease, without the remaining time of leases that exist.
func (m *requestModel) LeaseTimeToLive(r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	res := &pb.LeaseTimeToLiveResponse{Header: modelHeader(m.rev), ID: r.ID, TTL: -1}
	if ttl, ok := m.leases[r.ID]; ok {
		res.TTL, res.GrantedTTL = 0, ttl
		if r.Keys {
			res.Keys = m.attached(r.ID)
		}
	}
	return res, nil
}

// watched returns the events that a watch gets that begins at revision from.
func (m *requestModel) watched(r *pb.WatchCreateRequest, from int64) (events []*mvccpb.Event) {
	key := r.Key
	if len(key) == 0 {
		key = []byte{0}
	}
	for _, e := range m.events {
		filtered := slices.ContainsFunc(r.Filters, func(f pb.WatchCreateRequest_FilterType) bool {
			return f == pb.WatchCreateRequest_NOPUT && e.Type == mvccpb.Event_PUT || f == pb.WatchCreateRequest_NODELETE &&
				e.Type == mvccpb.Event_DELETE
		})
		if e.Kv.ModRevision >= from && !filtered && inRange(string(e.Kv.Key), key, r.RangeEnd) {
			events = append(events, e)
		}
	}
	return events
}

var errNotModelled = errors.New("the model does not know")

// execute executes any request that the model knows.
func (m *requestModel) execute(r proto.Message) (proto.Message, error) {
	switch r := r.(type) {
	case *pb.RangeRequest:
		return asMessage(m.Range(r))
	case *pb.PutRequest:
		return asMessage(m.Put(r))
	case *pb.DeleteRangeRequest:
		return asMessage(m.DeleteRange(r))
	case *pb.TxnRequest:
		return asMessage(m.Txn(r))
	case *pb.CompactionRequest:
		return asMessage(m.Compact(r))
	case *pb.LeaseGrantRequest:
		return asMessage(m.LeaseGrant(r))
	case *pb.LeaseRevokeRequest:
		return asMessage(m.LeaseRevoke(r))
	case *pb.LeaseTimeToLiveRequest:
		return asMessage(m.LeaseTimeToLive(r))
	default:
		return nil, errNotModelled
	}
}

// asMessage returns nil, and no typed nil, with an error.
func asMessage[T proto.Message](res T, err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return res, nil
}
