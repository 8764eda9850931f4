package read

import (
	"bytes"
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// childrenPage is how many keys are looked at beyond a child that stands for many:
// what follows it is often another such child.
const childrenPage = 8

// ChildrenRequest asks for one level of the keys under a prefix, as a directory
// shows it.
type ChildrenRequest struct {
	// Prefix is where the level begins; an empty one is that of all keys.
	Prefix []byte
	// After is the Next of the page before; empty for the first one.
	After []byte
	// Delimiter ends the name of a child that stands for all keys below it.
	Delimiter byte
	Limit     int // at least 1
}

// Child is a key, or, without a record, what several keys begin with, delimiter
// included.
type Child struct {
	Name   []byte
	Record *coder.Record // without its value
}

// Children answers a ChildrenRequest.
type Children struct {
	Revision int64
	Children []Child
	Next     []byte // where the next page begins; nil: there is none
}

// KeyRange returns all keys under the prefix, which is what a caller needs to be
// permitted to read.
func (r *ChildrenRequest) KeyRange() mvcc.KeyRange {
	if len(r.Prefix) == 0 {
		return mvcc.KeyRange{Key: []byte{0}, End: []byte{0}}
	}
	return mvcc.KeyRange{Key: r.Prefix, End: prefixEnd(r.Prefix)}
}

// prefixEnd returns the range end of the keys that begin with prefix.
func prefixEnd(prefix []byte) []byte { return []byte(clientv3.GetPrefixRangeEnd(string(prefix))) }

// Children lists one level of keys, at the current revision. It passes over the keys
// below a child without reading them. Errors: those of Range.
func (r *Reader) Children(ctx context.Context, as auth.Permit, q *ChildrenRequest) (*Children, error) {
	var out *Children
	err := r.Stable(ctx, as, true, func(ctx context.Context, now *Reading) error {
		out = &Children{Revision: now.rev}
		return (&childWalk{q: q, read: now, out: out}).run(ctx)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// childWalk goes from child to child.
type childWalk struct {
	q    *ChildrenRequest
	read *Reading
	out  *Children
}

func (w *childWalk) run(ctx context.Context) error {
	left := w.q.KeyRange().Span()
	if bytes.Compare(w.q.After, left.Start) > 0 {
		left.Start = w.q.After
	}
	want := int64(w.q.Limit) + 1
	for left.Start != nil && !left.Empty() {
		if len(w.out.Children) == w.q.Limit {
			more, err := w.any(ctx, left)
			if more {
				w.out.Next = left.Start
			}
			return err
		}
		var next []byte
		err := w.read.Scan(ctx, left, false, want, func(records []*coder.Record) bool {
			for _, rec := range records {
				next = w.add(rec)
				last := w.out.Children[len(w.out.Children)-1]
				if last.Record == nil || len(w.out.Children) == w.q.Limit {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		left.Start, want = next, childrenPage
	}
	return nil
}

// add adds the child that rec belongs to, and returns where the next one begins: nil
// after all keys.
func (w *childWalk) add(rec *coder.Record) (next []byte) {
	n := len(w.q.Prefix)
	if i := bytes.IndexByte(rec.Key[n:], w.q.Delimiter); i >= 0 {
		name := rec.Key[:n+i+1]
		w.out.Children = append(w.out.Children, Child{Name: name})
		if next = prefixEnd(name); coder.IsFromKey(next) {
			next = nil
		}
		return next
	}
	w.out.Children = append(w.out.Children, Child{Name: rec.Key, Record: rec})
	return coder.KeyAfter(rec.Key)
}

// any reports whether a key is left.
func (w *childWalk) any(ctx context.Context, span coder.Span) (more bool, err error) {
	err = w.read.Scan(ctx, span, false, 1, func([]*coder.Record) bool {
		more = true
		return false
	})
	return more, err
}
