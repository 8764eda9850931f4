package console

import (
	"net/http"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// keyBody is everything about a key at the current revision.
type keyBody struct {
	Revision int64      `json:"revision"`
	Key      []byte     `json:"key"`
	Found    bool       `json:"found"`
	Meta     *metaBody  `json:"meta,omitempty"`
	Lease    *leaseBody `json:"lease,omitempty"`
	Value    *view      `json:"value,omitempty"`
	MayWrite bool       `json:"may_write"`
}

type metaBody struct {
	CreateRevision int64 `json:"create_revision"`
	ModRevision    int64 `json:"mod_revision"`
	Version        int64 `json:"version"`
}

type leaseBody struct {
	ID         string `json:"id"`
	TTL        int64  `json:"ttl"` // seconds left, -1: it has ended
	GrantedTTL int64  `json:"granted_ttl"`
}

// key shows ?key=, base64 (URL); with ?managed=1 what Kubernetes manages in objects is
// shown too.
func (h *Handler) key(_ http.ResponseWriter, r *http.Request) (any, error) {
	key, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	ctx := caller(r)
	res, err := h.kv.Range(ctx, &pb.RangeRequest{Key: key})
	if err != nil {
		return nil, err
	}
	who, err := h.whoLooks(r)
	if err != nil {
		return nil, err
	}
	out := &keyBody{Revision: res.Header.Revision, Key: key, MayWrite: who.allowsWrite(key)}
	if len(res.Kvs) == 0 {
		return out, nil
	}
	kv := res.Kvs[0]
	out.Found = true
	out.Meta = &metaBody{kv.CreateRevision, kv.ModRevision, kv.Version}
	out.Value = h.viewer(r, key).view(kv.Value)
	if kv.Lease != 0 {
		left, err := h.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: kv.Lease})
		if err != nil {
			return nil, err
		}
		out.Lease = &leaseBody{leaseName(kv.Lease), left.TTL, left.GrantedTTL}
	}
	return out, nil
}

func (h *Handler) viewer(r *http.Request, key []byte) viewer {
	return viewer{key: key, managed: r.URL.Query().Get("managed") == "1", fingerprint: h.fingerprint}
}
