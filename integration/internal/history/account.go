package history

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
)

// Account reads the store's own account of all keys: the revisions starting at one, up
// to the one that is current when it is called. The contents are not checked
// beyond the order that grouping needs; see Verifier.Apply.
func Account(ctx context.Context, c *clientv3.Client, from int64) ([]Revision, error) {
	head, err := c.Get(ctx, "head")
	if err != nil {
		return nil, fmt.Errorf("read the current revision: %w", err)
	}
	current := head.Header.Revision
	if current < from {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var s Stream
	watch := c.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(from), clientv3.WithPrevKV())
	for s.Last() < current {
		r, ok := <-watch
		if !ok {
			return s.Revisions, fmt.Errorf("the watch from %d to %d ended after revision %d: %w", from, current, s.Last(),
				context.Cause(ctx))
		}
		if err := s.Add(r); err != nil {
			return s.Revisions, err
		}
	}
	return s.Revisions, nil
}

// Stream gathers the answers of one watch.
type Stream struct{ Revisions []Revision }

// Last is the newest revision gathered, 0 if there is none.
func (s *Stream) Last() int64 {
	if len(s.Revisions) == 0 {
		return 0
	}
	return s.Revisions[len(s.Revisions)-1].Number
}

// Add gathers one answer. It fails if the watch was cancelled, if a revision
// comes again or is split over two answers, or if revisions go back.
func (s *Stream) Add(r clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	before := s.Last()
	for _, e := range r.Events {
		ev := Event{KV: model.FromProto(e.Kv), Deleted: e.Type == mvccpb.Event_DELETE}
		if e.PrevKv != nil {
			prev := model.FromProto(e.PrevKv)
			ev.Prev = &prev
		}
		number := e.Kv.ModRevision
		switch {
		case number <= before:
			return fmt.Errorf("watch: revision %d in an answer that follows one up to %d", number, before)
		case number < s.Last():
			return fmt.Errorf("watch: revision %d after %d within one answer", number, s.Last())
		case number > s.Last():
			s.Revisions = append(s.Revisions, Revision{Number: number})
		}
		last := &s.Revisions[len(s.Revisions)-1]
		last.Events = append(last.Events, ev)
	}
	return nil
}
