package workload

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// read sends one Range, repeated while it fails for passing reasons.
func (w *worker) read(ctx context.Context, op, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	var resp *clientv3.GetResponse
	var before int64
	err := w.request(ctx, op, func(ctx context.Context, s *sample) (err error) {
		before = w.r.model.revision.Load()
		if resp, err = w.client.Get(ctx, key, opts...); err == nil {
			s.keys = len(resp.Kvs)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	w.r.verify.revision(op+" "+key, resp.Header.Revision, before)
	return resp, nil
}

// get reads o and checks the answer.
func (w *worker) get(ctx context.Context, o *object) error {
	resp, err := w.read(ctx, "get", o.key, clientv3.WithLimit(1))
	if err != nil {
		return err
	}
	r := reading{object: o, rev: resp.Header.Revision, found: len(resp.Kvs) == 1}
	if r.found {
		r.state = w.r.model.stateOf(resp.Kvs[0])
	}
	if int(resp.Count) != len(resp.Kvs) || resp.More {
		w.r.verify.fail("get %s: count %d with %d keys, more %t", o.key, resp.Count, len(resp.Kvs), resp.More)
	}
	if r.found && string(resp.Kvs[0].Key) != o.key {
		w.r.verify.fail("get %s: answered %s", o.key, resp.Kvs[0].Key)
	}
	w.r.verify.reading(r)
	return nil
}

// list reads everything below prefix as kube-apiserver does: page by page, the later ones at the revision of the
// first and from the key after the last, but ends with the phase's time. Pages are checked against each
// other; comparing the whole with the model is up to the caller.
func (w *worker) list(ctx context.Context, prefix string) (*listing, error) {
	const op = "list page"
	l := &listing{prefix: prefix}
	end, from := clientv3.GetPrefixRangeEnd(prefix), prefix
	left := int64(-1)
	for {
		resp, err := w.read(ctx, op, from, clientv3.WithRange(end), clientv3.WithLimit(int64(w.r.cfg.PageSize)),
			clientv3.WithRev(l.rev))
		if err != nil {
			return nil, err
		}
		if l.rev == 0 {
			l.rev = resp.Header.Revision
		}
		if left < 0 {
			l.count, left = resp.Count, resp.Count
		}
		n := int64(len(resp.Kvs))
		if resp.Count != left || resp.More != (n < left) || n != min(left, int64(w.r.cfg.PageSize)) {
			w.r.verify.fail("%s from %q at %d: %d keys, count %d, more %t; want count %d", op, from, l.rev, n, resp.Count,
				resp.More, left)
		}
		if err := w.appendItems(l, resp.Kvs); err != nil {
			return nil, err
		}
		if !resp.More || n == 0 {
			return l, nil
		}
		if !w.p.until.IsZero() && time.Now().After(w.p.until) {
			l.begun = true
			return l, nil
		}
		left -= n
		from = string(resp.Kvs[n-1].Key) + "\x00"
	}
}

// listAll reads everything below prefix in one answer, as kube-apiserver does when
// a client asks for no pages.
func (w *worker) listAll(ctx context.Context, prefix string) (*listing, error) {
	resp, err := w.read(ctx, "list all", prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	l := &listing{prefix: prefix, rev: resp.Header.Revision, count: resp.Count}
	if resp.More || resp.Count != int64(len(resp.Kvs)) {
		w.r.verify.fail("list all %s: %d keys, count %d, more %t", prefix, len(resp.Kvs), resp.Count, resp.More)
	}
	return l, w.appendItems(l, resp.Kvs)
}

// appendItems adds keys of an answer to l, checking their order.
func (w *worker) appendItems(l *listing, kvs []*mvccpb.KeyValue) error {
	var last []byte
	if n := len(l.items); n > 0 {
		last = []byte(l.items[n-1].object.key)
	}
	for _, kv := range kvs {
		if bytes.Compare(kv.Key, last) <= 0 {
			w.r.verify.fail("list %s at %d: %q follows %q", l.prefix, l.rev, kv.Key, last)
		}
		last = kv.Key
		o := w.r.model.find(kv.Key)
		if o == nil {
			w.r.verify.fail("list %s at %d: unknown key %q", l.prefix, l.rev, kv.Key)
			return fmt.Errorf("list %s: unknown key %q", l.prefix, kv.Key)
		}
		l.items = append(l.items, item{object: o, state: w.r.model.stateOf(kv)})
	}
	return nil
}

// countAll counts the keys below prefix, as kube-apiserver does for its metrics.
func (w *worker) countAll(ctx context.Context, prefix string) (*listing, error) {
	resp, err := w.read(ctx, "count", prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, err
	}
	if len(resp.Kvs) > 0 {
		w.r.verify.fail("count %s: answered with %d keys", prefix, len(resp.Kvs))
	}
	return &listing{prefix: prefix, rev: resp.Header.Revision, count: resp.Count}, nil
}
