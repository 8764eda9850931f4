package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// read sends one Range, repeated while it fails for passing reasons.
func (w *worker) read(ctx context.Context, op, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	var resp *clientv3.GetResponse
	var before int64
	err := w.request(ctx, op, func(ctx context.Context, s *sample) (err error) {
		before = w.r.model.revision.Load()
		s.sent = len(key)
		if resp, err = w.client.Get(ctx, key, opts...); err == nil {
			s.receive(resp.Kvs)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	w.r.verify.revision(op+" "+key, resp.Header.Revision, before)
	return resp, nil
}

// get reads o at rev (0: now) and checks the answer.
func (w *worker) get(ctx context.Context, o *object, rev int64) error {
	op := "get"
	if rev != 0 {
		op = "get at revision"
	}
	resp, err := w.read(ctx, op, o.key, clientv3.WithLimit(1), clientv3.WithRev(rev))
	if err != nil {
		return err
	}
	r := reading{object: o, rev: rev, found: len(resp.Kvs) == 1}
	if rev == 0 {
		r.rev = resp.Header.Revision
	}
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

// list reads everything below prefix at rev (0: now) as kube-apiserver does:
// page by page, the later ones at the revision of the first and from the key
// after the last, but ends with the phase's time. Pages are checked against each
// other; comparing the whole with the model is up to the caller.
func (w *worker) list(ctx context.Context, prefix string, rev int64, opts ...clientv3.OpOption) (*listing, error) {
	op := "list page"
	if rev != 0 {
		op = "list page at revision"
	}
	l := &listing{prefix: prefix, rev: rev, keys: len(opts) > 0}
	end, from := clientv3.GetPrefixRangeEnd(prefix), prefix
	left := int64(-1)
	for {
		resp, err := w.read(ctx, op, from, append(opts, clientv3.WithRange(end), clientv3.WithLimit(int64(w.r.cfg.PageSize)),
			clientv3.WithRev(l.rev))...)
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
		if l.keys && len(kv.Value) > 0 {
			w.r.verify.fail("list %s at %d: keys only, but %q came with a value", l.prefix, l.rev, kv.Key)
		}
		l.items = append(l.items, item{object: o, state: w.r.model.stateOf(kv)})
	}
	return nil
}

// stream reads everything below prefix in one RangeStream, as newer
// kube-apiservers do. It returns nil if the server does not offer that.
func (w *worker) stream(ctx context.Context, prefix string) (*listing, error) {
	var l *listing
	_, err := w.r.repeat(ctx, func(bool) error {
		l = &listing{prefix: prefix}
		return w.measureFor(ctx, w.r.cfg.RetryFor, "list stream", func(ctx context.Context, s *sample) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			chunks, err := w.client.GetStream(ctx, prefix, clientv3.WithPrefix())
			if err != nil {
				return err
			}
			defer func() {
				cancel()
				for range chunks { // else its sender would block
				}
			}()
			for chunk := range chunks {
				if err := chunk.Err(); err != nil {
					return err
				}
				kvs := chunk.RangeResponse.GetKvs()
				s.receive(kvs)
				if err := w.appendItems(l, kvs); err != nil {
					return err
				}
				if h := chunk.RangeResponse.GetHeader(); h != nil {
					l.rev, l.count = h.Revision, chunk.RangeResponse.Count
				}
			}
			return ctx.Err()
		})
	})
	if codeOf(err) == codes.Unimplemented {
		w.r.note("the server has no RangeStream")
		return nil, nil
	}
	return l, err
}

// refused sends a read that must end with want.
func (w *worker) refused(ctx context.Context, want error, key string, opts ...clientv3.OpOption) error {
	return w.fails(ctx, "get "+key, want, func(ctx context.Context) error {
		_, err := w.client.Get(ctx, key, opts...)
		return err
	})
}

// fails sends a request that must end with want. Its own error is that no answer came.
func (w *worker) fails(ctx context.Context, what string, want error, request func(context.Context) error) error {
	err := w.r.unmeasured(ctx, request)
	if err != nil && passing(err) {
		return fmt.Errorf("%s: %w", what, err)
	}
	w.r.verify.answers.Add(1)
	if !errors.Is(err, want) {
		w.r.verify.fail("%s: answered %v, want %v", what, err, want)
	}
	return nil
}

// errCompacted and errFuture are etcd's answers to reads of revisions that are
// compacted, or not reached yet.
var (
	errCompacted = rpctypes.ErrCompacted
	errFuture    = rpctypes.ErrFutureRev
)
