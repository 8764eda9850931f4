package console

import (
	"bytes"
	"cmp"
	"net/http"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
)

// keyBody is everything about a key at the current revision.
type keyBody struct {
	Revision int64      `json:"revision"`
	At       int64      `json:"at,omitempty"` // the revision that was asked for, or that its time stands for
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
	// Time is when ModRevision was committed, empty if that is not known.
	Time string `json:"time,omitempty"`
}

type leaseBody struct {
	ID         string `json:"id"`
	TTL        int64  `json:"ttl"` // seconds left, -1: it has ended
	GrantedTTL int64  `json:"granted_ttl"`
}

// key shows ?key=, base64 (URL), now or at ?revision=, which may be a time; with ?managed=1 what Kubernetes manages in
// objects is shown too.
func (h *Handler) key(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	key, revision := p.needed("key"), h.revisionAt(r, p, "revision")
	res, err := h.read(r, p, key, revision)
	if err != nil {
		return nil, err
	}
	who, err := h.whoLooks(r)
	if err != nil {
		return nil, err
	}
	out := &keyBody{Revision: res.Header.Revision, At: revision, Key: key, MayWrite: who.allowsWrite(key)}
	if len(res.Kvs) == 0 {
		return out, nil
	}
	kv := res.Kvs[0]
	out.Found = true
	changed, err := h.cfg.Keys.CommitOf(caller(r), kv.ModRevision)
	if err != nil {
		return nil, err
	}
	out.Meta = &metaBody{kv.CreateRevision, kv.ModRevision, kv.Version, history.FormatTime(changed.At)}
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

// compare compares ?key=, base64 (URL), at ?from= with ?to=, which may be times; 0 is the current revision.
func (h *Handler) compare(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	key := p.needed("key")
	var values [2][]byte
	views := [2]*view{{}, {}}
	out := &compareBody{}
	for i, name := range []string{"from", "to"} {
		revision := h.revisionAt(r, p, name)
		res, err := h.read(r, p, key, revision)
		if err != nil {
			return nil, err
		}
		b := []*valueBody{&out.From, &out.To}[i]
		b.Revision = cmp.Or(revision, res.Header.Revision)
		if len(res.Kvs) > 0 {
			kv := res.Kvs[0]
			values[i], views[i] = kv.Value, h.viewer(r, key).brief(kv.Value)
			b.Found, b.ModRevision, b.Version, b.Bytes = true, kv.ModRevision, kv.Version, len(kv.Value)
		}
	}
	out.Same, out.Diff = out.From.Found == out.To.Found && bytes.Equal(values[0], values[1]), views[0].diff(views[1])
	return out, nil
}

// raw sends the value of ?key=, base64 (URL), now or at ?revision=, as it is stored, for a file. It does not send
// what the page hides.
func (h *Handler) raw(w http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	key := p.needed("key")
	res, err := h.read(r, p, key, h.revisionAt(r, p, "revision"))
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

// read reads a key at a revision, 0 for the current one, both of them parameters of p.
func (h *Handler) read(r *http.Request, p *params, key []byte, revision int64) (*pb.RangeResponse, error) {
	if p.err != nil {
		return nil, p.err
	}
	return h.kv.Range(caller(r), &pb.RangeRequest{Key: key, Revision: revision})
}

func (h *Handler) viewer(r *http.Request, key []byte) viewer {
	return viewer{key: key, managed: paramsOf(r).on("managed"), fingerprint: h.fingerprint}
}
