package console

import (
	"bytes"
	"cmp"
	"math"
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

// key shows ?key=, base64 (URL), now or at ?revision=; with ?managed=1 what Kubernetes manages in
// objects is shown too.
func (h *Handler) key(_ http.ResponseWriter, r *http.Request) (any, error) {
	key, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	res, revision, err := h.read(r, key, "revision")
	if err != nil {
		return nil, err
	}
	who, err := h.whoLooks(r)
	if err != nil {
		return nil, err
	}
	out := &keyBody{Revision: res.Header.Revision, Key: key, MayWrite: revision == 0 && who.allowsWrite(key)}
	if len(res.Kvs) == 0 {
		return out, nil
	}
	kv := res.Kvs[0]
	out.Found = true
	out.Meta = &metaBody{kv.CreateRevision, kv.ModRevision, kv.Version}
	out.Value = h.viewer(r, key).view(kv.Value)
	if kv.Lease != 0 {
		left, err := h.lease.LeaseTimeToLive(caller(r), &pb.LeaseTimeToLiveRequest{ID: kv.Lease})
		if err != nil {
			return nil, err
		}
		out.Lease = &leaseBody{leaseName(kv.Lease), left.TTL, left.GrantedTTL}
	}
	return out, nil
}

// revisionOf returns a parameter that is a revision, 0 for the current one.
func revisionOf(r *http.Request, name string) (int64, error) {
	return numberOf(r, name, 0, 0, math.MaxInt64)
}

// valueBody is a value at a revision.
type valueBody struct {
	Revision    int64 `json:"revision"` // that was asked for
	Found       bool  `json:"found"`
	ModRevision int64 `json:"mod_revision,omitempty"`
	Version     int64 `json:"version,omitempty"`
	Bytes       int   `json:"bytes"`
}

// compareBody is what changed in a key between two revisions.
type compareBody struct {
	From valueBody `json:"from"`
	To   valueBody `json:"to"`
	Same bool      `json:"same"` // byte for byte
	Diff *diffBody `json:"diff"`
}

// compare compares ?key=, base64 (URL), at ?from= with ?to=; 0 is the current revision.
func (h *Handler) compare(_ http.ResponseWriter, r *http.Request) (any, error) {
	key, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	var values [2][]byte
	var texts [2]string
	out := &compareBody{}
	for i, name := range []string{"from", "to"} {
		res, revision, err := h.read(r, key, name)
		if err != nil {
			return nil, err
		}
		b := []*valueBody{&out.From, &out.To}[i]
		b.Revision = cmp.Or(revision, res.Header.Revision)
		if len(res.Kvs) > 0 {
			kv := res.Kvs[0]
			values[i], texts[i] = kv.Value, h.viewer(r, key).view(kv.Value).text()
			b.Found, b.ModRevision, b.Version, b.Bytes = true, kv.ModRevision, kv.Version, len(kv.Value)
		}
	}
	out.Same, out.Diff = out.From.Found == out.To.Found && bytes.Equal(values[0], values[1]), diff(texts[0], texts[1])
	return out, nil
}

// raw sends the value of ?key=, base64 (URL), now or at ?revision=, as it is stored, for a file. It does not send
// what the page hides.
func (h *Handler) raw(w http.ResponseWriter, r *http.Request) (any, error) {
	key, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	res, _, err := h.read(r, key, "revision")
	switch {
	case err != nil:
		return nil, err
	case len(res.Kvs) == 0:
		return nil, failure{http.StatusNotFound, "the key does not exist"}
	case h.viewer(r, key).view(res.Kvs[0].Value).Hidden:
		return nil, failure{http.StatusForbidden, secretNote}
	}
	return file(res.Kvs[0].Value), nil
}

// read reads a key at the revision that a parameter names; 0: now.
func (h *Handler) read(r *http.Request, key []byte, name string) (res *pb.RangeResponse, revision int64, err error) {
	if revision, err = revisionOf(r, name); err == nil {
		res, err = h.kv.Range(caller(r), &pb.RangeRequest{Key: key, Revision: revision})
	}
	return res, revision, err
}

func (h *Handler) viewer(r *http.Request, key []byte) viewer {
	return viewer{key: key, managed: r.URL.Query().Get("managed") == "1", fingerprint: h.fingerprint}
}
