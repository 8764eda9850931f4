package console

import (
	"bytes"
	"io"
	"net/http"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// errReadOnly: the console refuses writes while authentication is off.
var errReadOnly = failure{http.StatusForbidden,
	"the console is read-only while authentication is off; --console-write changes that"}

// errChanged: another client changed the key first.
var errChanged = failure{http.StatusConflict, "the key has changed since it was loaded: load it again"}

// mayWrite refuses writes that no role is asked about.
func (h *Handler) mayWrite(r *http.Request) error {
	if h.cfg.Write {
		return nil
	}
	st, err := h.auth.AuthStatus(from(r), &pb.AuthStatusRequest{})
	if err == nil && !st.Enabled {
		err = errReadOnly
	}
	return err
}

// writes is an endpoint that changes something.
func (h *Handler) writes(act endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		// The body comes first: the client could hold it back until authentication is off.
		body, _ := io.ReadAll(r.Body) // act gets the error
		if err := h.mayWrite(r); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), r.Body))
		return act(w, r)
	}
}

// writtenBody says when a change was made.
type writtenBody struct {
	Revision int64 `json:"revision"`
}

// put writes a key that still is at mod_revision; 0 is a key that does not exist. It
// keeps its lease.
func (h *Handler) put(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Key         []byte `json:"key"`
		Value       []byte `json:"value"`
		ModRevision int64  `json:"mod_revision"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	op := putOf(in.Key, in.Value)
	op.GetRequestPut().IgnoreLease = in.ModRevision != 0
	return h.change(r, in.Key, in.ModRevision, op)
}

// putOf puts a key that exists, and keeps its lease.
func putOf(key, value []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: value,
		IgnoreLease: true}}}
}

// delete deletes a key that still is at mod_revision.
func (h *Handler) delete(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Key         []byte `json:"key"`
		ModRevision int64  `json:"mod_revision"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	return h.change(r, in.Key, in.ModRevision, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: in.Key},
	}})
}

// restore gives a key that still is at mod_revision, 0 if it does not exist, the value that it had at revision. The
// browser need not see that value. A key that exists keeps its lease.
func (h *Handler) restore(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Key         []byte `json:"key"`
		Revision    int64  `json:"revision"`
		ModRevision int64  `json:"mod_revision"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Revision <= 0 {
		return nil, badRequest("the revision to restore is missing")
	}
	res, err := h.kv.Range(caller(r), &pb.RangeRequest{Key: in.Key, Revision: in.Revision})
	switch {
	case err != nil:
		return nil, err
	case len(res.Kvs) == 0:
		return nil, failure{http.StatusNotFound, "the key did not exist at that revision"}
	}
	op := putOf(in.Key, res.Kvs[0].Value)
	op.GetRequestPut().IgnoreLease = in.ModRevision != 0
	return h.change(r, in.Key, in.ModRevision, op)
}

// change does op if the key still is at a revision.
func (h *Handler) change(r *http.Request, key []byte, modRevision int64, op *pb.RequestOp) (*writtenBody, error) {
	res, err := h.kv.Txn(caller(r), &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: key, Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: modRevision},
		}},
		Success: []*pb.RequestOp{op},
	})
	if err != nil {
		return nil, err
	}
	if !res.Succeeded {
		return nil, errChanged
	}
	return &writtenBody{res.Header.Revision}, nil
}
