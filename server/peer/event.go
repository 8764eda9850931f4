package peer

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/watch"
)

// eventSize is about what an event takes in a message.
func eventSize(e *watch.Event) int {
	const overhead = 64 // revisions, tags and lengths
	return overhead + len(e.Record.Key) + len(e.Record.Value)
}

// toMessages returns events as etcd's messages, which share their bytes.
func toMessages(events []*watch.Event) []*mvccpb.Event {
	if len(events) == 0 {
		return nil
	}
	messages := make([]*mvccpb.Event, len(events))
	for i, e := range events {
		m := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: e.Record.Key, ModRevision: e.Record.ModRevision}}
		if e.Type == watch.Delete {
			m.Type = mvccpb.Event_DELETE
		} else {
			m.Kv.Value = e.Record.Value
			m.Kv.CreateRevision = e.Record.CreateRevision
			m.Kv.Version = e.Record.Version
			m.Kv.Lease = e.Record.Lease
		}
		if e.PrevRevision != 0 {
			m.PrevKv = &mvccpb.KeyValue{ModRevision: e.PrevRevision}
		}
		messages[i] = m
	}
	return messages
}

// fromMessage returns m as an event. sub is its place among the changes of its
// revision: a feed has all of them, in execution order.
func fromMessage(m *mvccpb.Event, sub int32) *watch.Event {
	kv := m.GetKv()
	e := &watch.Event{
		Type:         watch.Put,
		PrevRevision: m.GetPrevKv().GetModRevision(),
		Record:       &coder.Record{Key: kv.GetKey(), ModRevision: kv.GetModRevision(), Sub: sub},
	}
	if m.GetType() == mvccpb.Event_DELETE {
		e.Type = watch.Delete
		e.Record.Tombstone = true
		return e
	}
	e.Record.Value = kv.GetValue()
	if e.Record.Value == nil {
		e.Record.Value = []byte{} // nil is a value that was not read
	}
	e.Record.CreateRevision = kv.GetCreateRevision()
	e.Record.Version = kv.GetVersion()
	e.Record.Lease = kv.GetLease()
	return e
}
