package console

import (
	"fmt"
	"math"
	"net/http"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	removePreview = 100    // keys that are listed before they are deleted
	maxRemoved    = 10_000 // keys that are deleted at once: all are deleted in one revision
)

// previewBody is what a deletion of all keys that begin with a prefix would delete.
type previewBody struct {
	Revision int64    `json:"revision"`
	Count    int64    `json:"count"`
	Most     int64    `json:"most"` // keys that are deleted at once
	Keys     [][]byte `json:"keys"` // the first ones
	MayWrite bool     `json:"may_write"`
}

var errNoPrefix = badRequest("the prefix is missing: all keys are not deleted at once")

// removal lists what would be deleted of the keys that begin with ?prefix=, base64 (URL).
func (h *Handler) removal(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	prefix := p.bytes("prefix")
	switch {
	case p.err != nil:
		return nil, p.err
	case len(prefix) == 0:
		return nil, errNoPrefix
	}
	res, err := h.kv.Range(caller(r), &pb.RangeRequest{Key: prefix, RangeEnd: prefixEnd(prefix), KeysOnly: true,
		Limit: removePreview})
	if err != nil {
		return nil, err
	}
	who, err := h.whoLooks(r)
	if err != nil {
		return nil, err
	}
	out := &previewBody{Revision: res.Header.Revision, Count: res.Count, Most: maxRemoved,
		Keys: make([][]byte, len(res.Kvs)), MayWrite: who.MayWrite}
	for i, kv := range res.Kvs {
		out.Keys[i] = kv.Key
	}
	return out, nil
}

// removedBody says how many keys were deleted, and when.
type removedBody struct {
	Revision int64 `json:"revision"`
	Deleted  int64 `json:"deleted"`
}

// remove deletes the keys that begin with a prefix, if none of them was created or changed since the revision of
// the preview.
func (h *Handler) remove(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Prefix   []byte `json:"prefix"`
		Revision int64  `json:"revision"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	switch {
	case len(in.Prefix) == 0:
		return nil, errNoPrefix
	case in.Revision < 1 || in.Revision == math.MaxInt64:
		return nil, badRequest("the revision of the preview is missing")
	}
	end := prefixEnd(in.Prefix)
	count, err := h.kv.Range(caller(r), &pb.RangeRequest{Key: in.Prefix, RangeEnd: end, CountOnly: true})
	if err != nil {
		return nil, err
	}
	if count.Count > maxRemoved {
		return nil, failure{http.StatusConflict, fmt.Sprintf(
			"%d keys begin with the prefix, and at most %d are deleted at once", count.Count, maxRemoved)}
	}
	// Keys that are new or changed by now fail the comparison, so no others than those counted are deleted.
	res, err := h.kv.Txn(caller(r), &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: in.Prefix, RangeEnd: end, Target: pb.Compare_MOD, Result: pb.Compare_LESS,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: in.Revision + 1},
		}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: in.Prefix, RangeEnd: end},
		}}},
	})
	if err != nil {
		return nil, err
	}
	if !res.Succeeded {
		return nil, failure{http.StatusConflict, "keys were created or changed since the preview: look again"}
	}
	return removedBody{res.Header.Revision, res.Responses[0].GetResponseDeleteRange().Deleted}, nil
}
