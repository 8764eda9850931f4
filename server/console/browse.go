package console

import (
	"context"
	"net/http"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

const (
	// defaultKeyPage and maxKeyPage bound a page of keys.
	defaultKeyPage = 100
	maxKeyPage     = 500
	// detailTime and detailBytes bound what is read to describe the keys of a page.
	detailTime  = 2 * time.Second
	detailBytes = 16 << 20
)

// keysBody is one page of one level of the keys.
type keysBody struct {
	Revision int64       `json:"revision"`
	Keys     []childBody `json:"keys"`
	Next     []byte      `json:"next"` // where the next page begins; empty: there is none
}

type childBody struct {
	Name        []byte `json:"name"`
	Prefix      bool   `json:"prefix,omitempty"` // it stands for the keys that begin so
	ModRevision int64  `json:"mod_revision,omitempty"`
	Version     int64  `json:"version,omitempty"`
	Lease       string `json:"lease,omitempty"`
	// Details, which are absent if they were not asked for or not read in time:
	Bytes *int   `json:"bytes,omitempty"` // of the value
	Kind  string `json:"kind,omitempty"`
	Count int64  `json:"count,omitempty"` // of the keys that begin with a prefix
}

// keys lists one level of keys: ?prefix= and ?after= are base64 (URL), and ?limit= is at
// most maxKeyPage. With ?details=1 it reads the values and counts.
func (h *Handler) keys(w http.ResponseWriter, r *http.Request) (any, error) {
	p := paramsOf(r)
	q := &read.ChildrenRequest{
		Delimiter: '/', Prefix: p.bytes("prefix"), After: p.bytes("after"),
		Limit: int(p.number("limit", defaultKeyPage, 1, maxKeyPage)),
	}
	if p.err != nil {
		return nil, p.err
	}
	res, err := h.cfg.Keys.Children(caller(r), q)
	if err != nil {
		return nil, err
	}
	out := &keysBody{Revision: res.Revision, Next: res.Next, Keys: make([]childBody, len(res.Children))}
	for i, c := range res.Children {
		out.Keys[i] = childBody{Name: c.Name, Prefix: c.Record == nil}
		if c.Record != nil {
			out.Keys[i].ModRevision, out.Keys[i].Version = c.Record.ModRevision, c.Record.Version
			out.Keys[i].Lease = leaseName(c.Record.Lease)
		}
	}
	if !p.on("details") {
		return out, nil
	}
	details := func(_ http.ResponseWriter, r *http.Request) (any, error) { return out, h.describe(r, out.Keys) }
	return h.renders(details)(w, r)
}

// describe reads the values of keys and counts what prefixes stand for, until detailTime or detailBytes are used up.
func (h *Handler) describe(r *http.Request, keys []childBody) error {
	ctx, cancel := context.WithTimeout(caller(r), detailTime)
	defer cancel()
	left := detailBytes
	for i := range keys {
		c := &keys[i]
		q := &pb.RangeRequest{Key: c.Name, Serializable: true} // this node listed the keys
		if c.Prefix {
			q.RangeEnd, q.CountOnly = prefixEnd(c.Name), true
		} else if left <= 0 {
			continue
		}
		res, err := h.kv.Range(ctx, q)
		switch {
		case ctx.Err() != nil && r.Context().Err() == nil:
			return nil
		case err != nil:
			return err
		case c.Prefix:
			c.Count = res.Count
		case len(res.Kvs) > 0:
			value := res.Kvs[0].Value
			left -= len(value)
			c.Bytes, c.Kind = new(len(value)), kindOf(value)
		}
	}
	return nil
}

// prefixEnd returns the range end of the keys that begin with prefix.
func prefixEnd(prefix []byte) []byte { return []byte(clientv3.GetPrefixRangeEnd(string(prefix))) }

// below returns the range of the keys that begin with prefix; an empty one is that of all keys.
func below(prefix []byte) (key, end []byte) {
	if len(prefix) == 0 {
		return []byte{0}, []byte{0}
	}
	return prefix, prefixEnd(prefix)
}
