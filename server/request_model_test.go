package server

import (
	"bytes"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
)

// modelMinTTL is the TTL in seconds of all leases of a model that are granted for less, so
// that none expires.
const modelMinTTL = 3600

// requestModel is what etcd answers to one client that sends its requests one after the other: it executes one
// request after the other on the model of the key space, and adds what that leaves out: which requests are wrong in
// themselves, compactions, and leases.
type requestModel struct {
	*model.State
	leases map[int64]int64 // TTLs
}

func newRequestModel() *requestModel {
	m := &requestModel{State: model.New(1), leases: make(map[int64]int64)}
	m.LeaseExists = func(id int64) bool { _, ok := m.leases[id]; return ok }
	return m
}

func (m *requestModel) header() *pb.ResponseHeader { return &pb.ResponseHeader{Revision: m.Revision()} }

// commit makes events the next revision, unless there are none.
func (m *requestModel) commit(events []model.Event) {
	if len(events) > 0 {
		m.Apply(model.Revision{Number: m.Revision() + 1, Events: events})
	}
}

// keySpace executes a request on keys.
func (m *requestModel) keySpace(r proto.Message) (proto.Message, error) {
	if err := checkModel(r); err != nil {
		return nil, err
	}
	x := m.Execute(r, m.Revision())
	if x.Err != nil {
		return nil, x.Err
	}
	m.commit(x.Events)
	return x.Answer, nil
}

// checkModel returns what is wrong with a request in itself.
func checkModel(r proto.Message) error {
	switch r := r.(type) {
	case *pb.RangeRequest:
		return checkModelRange(r)
	case *pb.PutRequest:
		return checkModelPut(r)
	case *pb.DeleteRangeRequest:
		if len(r.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	case *pb.TxnRequest:
		if err := checkModelTxn(r); err != nil {
			return err
		}
		if overlaps(r) {
			return rpctypes.ErrGRPCDuplicateKey
		}
	}
	return nil
}

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
			err = checkModel(o.RequestRange)
		case *pb.RequestOp_RequestPut:
			err = checkModel(o.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			err = checkModel(o.RequestDeleteRange)
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
			if d := other.GetRequestDeleteRange(); d != nil && !onlyPuts && rangeOf(d.Key, d.RangeEnd).Contains(string(p.Key)) {
				return true
			}
		}
	}
	return false
}

func rangeOf(key, end []byte) model.Range { return model.Range{Key: string(key), End: string(end)} }

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

// Compact implements KV.
func (m *requestModel) Compact(r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	switch {
	case r.Revision <= m.Compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision > m.Revision():
		return nil, rpctypes.ErrGRPCFutureRev
	}
	m.Compacted = r.Revision
	return &pb.CompactionResponse{Header: m.header()}, nil
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
	return &pb.LeaseGrantResponse{Header: m.header(), ID: r.ID, TTL: ttl}, nil
}

// LeaseRevoke implements Lease.
func (m *requestModel) LeaseRevoke(r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if _, ok := m.leases[r.ID]; !ok {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	m.commit(m.Revoke(r.ID))
	delete(m.leases, r.ID)
	return &pb.LeaseRevokeResponse{Header: m.header()}, nil
}

// LeaseTimeToLive implements Lease, without the remaining time of leases that exist.
func (m *requestModel) LeaseTimeToLive(r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	res := &pb.LeaseTimeToLiveResponse{Header: m.header(), ID: r.ID, TTL: -1}
	if ttl, ok := m.leases[r.ID]; ok {
		res.TTL, res.GrantedTTL = 0, ttl
		if r.Keys {
			for _, key := range m.Attached(r.ID) {
				res.Keys = append(res.Keys, []byte(key))
			}
		}
	}
	return res, nil
}

// watched returns the events that a watch gets that begins at revision from.
func (m *requestModel) watched(r *pb.WatchCreateRequest, from int64) (events []*mvccpb.Event) {
	keys := rangeOf(cmpOr(r.Key, []byte{0}), r.RangeEnd)
	for rev := max(from, m.Base()); rev <= m.Revision(); rev++ {
		for _, e := range m.Events(keys, rev) {
			event := &mvccpb.Event{Kv: e.Proto()}
			unwanted := pb.WatchCreateRequest_NOPUT
			if e.Deleted {
				event.Type, unwanted = mvccpb.Event_DELETE, pb.WatchCreateRequest_NODELETE
			}
			if e.Prev != nil {
				event.PrevKv = e.Prev.Proto()
			}
			if !slices.Contains(r.Filters, unwanted) {
				events = append(events, event)
			}
		}
	}
	return events
}

var errNotModelled = errors.New("the model does not know")

// execute executes any request that the model knows.
func (m *requestModel) execute(r proto.Message) (proto.Message, error) {
	switch r := r.(type) {
	case *pb.RangeRequest, *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest:
		return m.keySpace(r)
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
