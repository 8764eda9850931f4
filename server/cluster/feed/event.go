package feed

import (
	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/watch"
)

// eventSize returns the approximate size of an event in a message, in bytes.
func eventSize(e *watch.Event) int {
	const overhead = 64 // revisions, tags and lengths
	return overhead + len(e.Record.Key) + len(e.Record.Value)
}

// message is an event's message with its parts, in one piece of memory.
type message struct {
	event feedpb.Event
	kv    feedpb.Event_KeyValue
}

// toMessages returns events as messages, which share their keys and values.
func toMessages(events []*watch.Event) []*feedpb.Event {
	all := make([]message, len(events))
	messages := make([]*feedpb.Event, len(events))
	for i, e := range events {
		m := &all[i]
		m.kv.Key, m.kv.ModRevision = e.Record.Key, e.Record.ModRevision
		if e.Type == watch.Delete {
			m.event.Type = feedpb.Event_DELETE
		} else {
			m.kv.Value, m.kv.Lease = e.Record.Value, e.Record.Lease
			m.kv.CreateRevision, m.kv.Version = e.Record.CreateRevision, e.Record.Version
		}
		m.event.Kv, m.event.PrevRevision = &m.kv, e.PrevRevision
		messages[i] = &m.event
	}
	return messages
}

// fromMessage returns m as an event. sub is its position among the changes of its
// revision, which a feed has in execution order.
func fromMessage(m *feedpb.Event, sub int32) *watch.Event {
	kv := m.GetKv()
	e := &watch.Event{
		Type:         watch.Put,
		PrevRevision: m.GetPrevRevision(),
		Record:       &coder.Record{Key: kv.GetKey(), ModRevision: kv.GetModRevision(), Sub: sub},
	}
	if m.GetType() == feedpb.Event_DELETE {
		e.Type = watch.Delete
		e.Record.Tombstone = true
		return e
	}
	e.Record.Value = kv.GetValue()
	if e.Record.Value == nil {
		e.Record.Value = []byte{} // nil means that the value was not read
	}
	e.Record.CreateRevision = kv.GetCreateRevision()
	e.Record.Version = kv.GetVersion()
	e.Record.Lease = kv.GetLease()
	return e
}
