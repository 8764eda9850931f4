package backend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// alarmSet holds the raised alarms, which are kept in the table.
type alarmSet struct {
	mu     sync.RWMutex
	raised map[Alarm]bool
	// changes tells a load that what it read is old: the leader, which knows better,
	// changed something meanwhile, or began to lead.
	changes int
}

// load reads the alarms from the table.
func (s *alarmSet) load(ctx context.Context, store sqlstore.Store) error {
	s.mu.RLock()
	before := s.changes
	s.mu.RUnlock()
	raised := make(map[Alarm]bool)
	lo, hi := coder.AlarmBounds()
	it := store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, KeysOnly: true})
	defer func() { _ = it.Close() }()
	for it.Next() {
		member, kind, err := coder.DecodeAlarmKey(it.Key())
		if err != nil {
			return fmt.Errorf("reading the alarms: %w", err)
		}
		raised[Alarm{MemberID: member, Type: kind}] = true
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("reading the alarms: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == before {
		s.raised = raised
	}
	return nil
}

// distrust voids the loads that are under way.
func (s *alarmSet) distrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
}

func (s *alarmSet) has(kind int32) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for a := range s.raised {
		if a.Type == kind {
			return true
		}
	}
	return false
}

// checkWrite returns the error that alarms give a write; puts says that it may
// take space.
func (s *alarmSet) checkWrite(puts bool) error {
	if s.has(AlarmCorrupt) {
		return ErrCorrupt
	}
	if puts && s.has(AlarmNoSpace) {
		return ErrNoSpace
	}
	return nil
}

func (s *alarmSet) set(a Alarm, raised bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	if raised {
		s.raised[a] = true
	} else {
		delete(s.raised, a)
	}
}

// ListAlarms returns the raised alarms, as the leader knows them.
func (b *Backend) ListAlarms(ctx context.Context) ([]Alarm, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return nil, err
	}
	all := b.Alarms()
	return all, b.publicError(ctx, l.confirm(ctx))
}

// Alarms returns the raised alarms that this node knows of; a follower learns of
// changes within a second.
func (b *Backend) Alarms() []Alarm {
	b.alarms.mu.RLock()
	defer b.alarms.mu.RUnlock()
	all := make([]Alarm, 0, len(b.alarms.raised))
	for a := range b.alarms.raised {
		all = append(all, a)
	}
	slices.SortFunc(all, func(x, y Alarm) int {
		return cmp.Or(cmp.Compare(x.MemberID, y.MemberID), cmp.Compare(x.Type, y.Type))
	})
	return all
}

// RaiseAlarm raises a and returns it.
func (b *Backend) RaiseAlarm(ctx context.Context, a Alarm) ([]Alarm, error) {
	if err := b.setAlarm(ctx, a, true); err != nil {
		return nil, err
	}
	return []Alarm{a}, nil
}

// DisarmAlarm takes a back and returns it, or nothing if it was not raised.
func (b *Backend) DisarmAlarm(ctx context.Context, a Alarm) ([]Alarm, error) {
	l, err := b.lead()
	if err != nil {
		return nil, err
	}
	b.alarms.mu.RLock()
	raised := b.alarms.raised[a]
	b.alarms.mu.RUnlock()
	if !raised {
		if err := l.confirm(ctx); err != nil {
			return nil, err
		}
		return nil, nil
	}
	if err := b.setAlarm(ctx, a, false); err != nil {
		return nil, err
	}
	return []Alarm{a}, nil
}

func (b *Backend) setAlarm(ctx context.Context, a Alarm, raised bool) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return err
	}
	return l.submit(ctx, &alarmCommand{l: l, alarm: a, raised: raised})
}

type alarmCommand struct {
	l      *leader
	alarm  Alarm
	raised bool
}

func (c *alarmCommand) touches() (keys, fresh [][]byte) { return nil, nil }
func (c *alarmCommand) size() int                       { return 0 }

func (c *alarmCommand) evaluate(_ context.Context, st *stage) error {
	var value []byte
	if c.raised {
		value = coder.Empty()
	}
	st.setMeta(coder.EncodeAlarmKey(c.alarm.MemberID, c.alarm.Type), value)
	st.committed(func() {
		c.l.alarms.set(c.alarm, c.raised)
		c.l.log.Warn("alarm changed", "type", c.alarm.Type, "member_id", fmt.Sprintf("%x", c.alarm.MemberID), "raised", c.raised)
	})
	return nil
}
