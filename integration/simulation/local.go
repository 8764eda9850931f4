package simulation

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/replica"
	hub "github.com/sqlbrain/sqlbrain/watch"
)

// observe reads the events of a node from inside its process, where no simulated time is between the publication of an
// event and its receiver: by then readers must see the revision of the event. It returns when ctx ends.
func (m *machine) observe(ctx context.Context, p *process, b *replica.Replica) {
	s := b.Hub.NewStream()
	defer s.Close()
	s.Create(hub.Permitted, hub.CreateRequest{Key: []byte{0}, End: []byte{0}})
	for {
		r, err := s.Next(ctx)
		if err != nil || p.dead() {
			return
		}
		shown := b.Revision()
		for _, e := range r.Events {
			if e.Record.ModRevision > shown {
				m.w.fail("%s publishes an event of revision %d when it shows revision %d", p.name, e.Record.ModRevision, shown)
			}
		}
		m.look()
	}
}

// look checks that the revision that the node shows, and the compact revision that it knows, have not gone back.
func (m *machine) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil {
		return
	}
	shown, compacted := m.node.Replica().Revision(), m.node.Replica().CompactRevision()
	if shown < m.shown || compacted < m.compacted {
		m.w.fail("%s shows revision %d, and knows of a compaction at %d; it was at %d and %d", m.name, shown, compacted,
			m.shown, m.compacted)
	}
	m.shown, m.compacted = shown, compacted
}
