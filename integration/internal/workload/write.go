package workload

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// repeat calls attempt until it succeeds, or fails for a reason that does not pass, or RetryFor is over.
// uncertain says that an earlier attempt failed and may have taken effect.
func (r *runner) repeat(ctx context.Context, attempt func(uncertain bool) error) (uncertain bool, err error) {
	until := time.Now().Add(r.cfg.RetryFor)
	for failures := 1; ; failures++ {
		if err = attempt(uncertain); err == nil || !passing(err) {
			return uncertain, err
		}
		uncertain = true
		if ctx.Err() != nil || time.Now().After(until) || pauses.Wait(ctx, failures) != nil {
			return uncertain, err
		}
	}
}

// request sends a request until it succeeds, and records each attempt.
func (w *worker) request(ctx context.Context, op string, f func(ctx context.Context, s *sample) error) error {
	_, err := w.r.repeat(ctx, func(bool) error { return w.measure(ctx, op, f) })
	return err
}

// measure runs one attempt of a request and records it.
func (w *worker) measure(ctx context.Context, op string, f func(ctx context.Context, s *sample) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.r.cfg.RequestTimeout)
	defer cancel()
	start := time.Now()
	if !w.due.IsZero() {
		start, w.due = w.due, time.Time{}
	}
	var s sample
	s.err = f(ctx, &s)
	s.latency = time.Since(start)
	w.p.record(op, s)
	if s.err == nil {
		w.r.alive.Store(time.Now().UnixNano())
	}
	return s.err
}

// txn is kube-apiserver's optimistic transaction: then if the key still has the
// expected revision, else a read of it, if asked for.
func (w *worker) txn(ctx context.Context, op, key string, expected int64, then clientv3.Op,
	elseGet bool) (*clientv3.TxnResponse, error) {
	var resp *clientv3.TxnResponse
	before := w.r.model.revision.Load()
	err := w.measure(ctx, op, func(ctx context.Context, s *sample) (err error) {
		t := w.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", expected)).Then(then)
		if elseGet {
			t = t.Else(clientv3.OpGet(key))
		}
		resp, err = t.Commit()
		s.keys = 1
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.Succeeded {
		before++ // it took its own revision
	}
	w.r.verify.revision(op+" "+key, resp.Header.Revision, before)
	return resp, nil
}

// elseKV returns what the else branch read, nil if it did not run or found nothing.
func elseKV(resp *clientv3.TxnResponse) *mvccpb.KeyValue {
	if resp.Succeeded || len(resp.Responses) != 1 {
		return nil
	}
	if kvs := resp.Responses[0].GetResponseRange().GetKvs(); len(kvs) == 1 {
		return kvs[0]
	}
	return nil
}

// put creates or replaces o, which the caller claimed, and settles the outcome.
// An error means that o is as it was, or that it is lost.
func (w *worker) put(ctx context.Context, o *object) error {
	old, live := o.latest()
	op, next := "create", state{}
	if live {
		op = "update"
		next.create, next.version = old.create, old.version
	}
	value := w.nextValue(o, &next)
	then := clientv3.OpPut(o.key, string(value))

	var resp *clientv3.TxnResponse
	uncertain, err := w.r.repeat(ctx, func(uncertain bool) (err error) {
		// kube-apiserver's create reads nothing when it fails; here a repeated
		// one does, to see whose object there is.
		resp, err = w.txn(ctx, op, o.key, old.mod, then, live || uncertain)
		return err
	})
	if err != nil {
		if uncertain {
			o.lose()
		}
		return err
	}
	next.mod = resp.Header.Revision
	if !resp.Succeeded {
		kv := elseKV(resp)
		if !uncertain || kv == nil || hashOf(kv.Value) != next.hash || kv.ModRevision <= old.mod {
			o.lose()
			w.r.verify.fail("%s %s refused at revision %d: it is of revision %d, expected %d", op, o.key, resp.Header.Revision,
				kv.GetModRevision(), old.mod)
			return fmt.Errorf("%s %s: unexpected conflict", op, o.key)
		}
		next.mod = kv.ModRevision
	}
	if !live {
		next.create = next.mod
	}
	w.r.model.commit(o, version{state: next})
	w.r.verify.answers.Add(1)
	return nil
}

// nextValue returns a value that o never had, notes when it is sent, and makes next the state that has it.
func (w *worker) nextValue(o *object, next *state) []byte {
	o.mu.Lock()
	n := len(o.sendings)
	o.sendings = append(o.sendings, time.Now().UnixNano())
	o.mu.Unlock()
	value := w.r.model.gen.value(o.index, o.kind, n)
	next.hash, next.size = hashOf(value), len(value)
	if !w.r.model.noVersions {
		next.version++
	}
	return value
}

// remove deletes o, which exists and which the caller claimed, and settles the
// outcome as put does.
func (w *worker) remove(ctx context.Context, o *object) error {
	old, _ := o.latest()
	var resp *clientv3.TxnResponse
	uncertain, err := w.r.repeat(ctx, func(bool) (err error) {
		resp, err = w.txn(ctx, "delete", o.key, old.mod, clientv3.OpDelete(o.key), true)
		return err
	})
	if err != nil {
		if uncertain {
			o.lose()
		}
		return err
	}
	rev := resp.Header.Revision
	switch {
	case resp.Succeeded:
		if n := resp.Responses[0].GetResponseDeleteRange().GetDeleted(); n != 1 {
			w.r.verify.fail("delete %s: %d deleted, want 1", o.key, n)
		}
		w.r.verify.answers.Add(1)
	case uncertain && elseKV(resp) == nil:
		// It took effect, and its answer was lost. A watch shows when.
		if rev, err = w.deletedAt(ctx, o.key, old.mod); err != nil {
			o.lose()
			return err
		}
	default:
		o.lose()
		w.r.verify.fail("delete %s refused: it is %v, expected revision %d", o.key, elseKV(resp), old.mod)
		return fmt.Errorf("delete %s: unexpected conflict", o.key)
	}
	w.r.model.commit(o, version{state: state{mod: rev}, deleted: true})
	return nil
}

// deletedAt returns the revision at which key, last written at mod, was deleted.
func (w *worker) deletedAt(ctx context.Context, key string, mod int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, w.r.cfg.RetryFor)
	defer cancel()
	for resp := range w.client.Watch(ctx, key, clientv3.WithRev(mod+1)) {
		if err := resp.Err(); err != nil {
			return 0, fmt.Errorf("watch the deletion of %s: %w", key, err)
		}
		for _, ev := range resp.Events {
			return ev.Kv.ModRevision, nil
		}
	}
	return 0, fmt.Errorf("watch the deletion of %s: %w", key, ctx.Err())
}

// stalePut tries to replace o, which exists and which the caller claimed, on condition that it
// has an outdated revision. The server must refuse that, and answer with the current object.
func (w *worker) stalePut(ctx context.Context, o *object) error {
	now, _ := o.latest()
	_, err := w.r.repeat(ctx, func(bool) error {
		resp, err := w.txn(ctx, "stale update", o.key, now.mod-1, clientv3.OpPut(o.key, valueMagic), true)
		if err != nil {
			return err
		}
		w.r.verify.answers.Add(1)
		if kv := elseKV(resp); resp.Succeeded || kv == nil || w.r.model.stateOf(kv) != now {
			w.r.verify.fail("stale update %s: accepted is %t, answered %v, want %v", o.key, resp.Succeeded, kv, now)
			o.lose()
		}
		return nil
	})
	return err
}

// overwrite replaces o, which exists and which the caller claimed, without a condition. If the
// answer is lost, the state of o is unknown: the put may have taken effect, even more than once.
func (w *worker) overwrite(ctx context.Context, o *object) error {
	old, _ := o.latest()
	next := old
	value := w.nextValue(o, &next)
	var resp *clientv3.PutResponse
	before := w.r.model.revision.Load()
	err := w.measure(ctx, "put", func(ctx context.Context, s *sample) (err error) {
		s.keys = 1
		resp, err = w.client.Put(ctx, o.key, string(value))
		return err
	})
	if err != nil {
		if passing(err) {
			o.lose()
		}
		return err
	}
	next.mod, next.lease = resp.Header.Revision, 0
	w.r.verify.revision("put "+o.key, next.mod, before+1)
	w.r.verify.answers.Add(1)
	w.r.model.commit(o, version{state: next})
	return nil
}
