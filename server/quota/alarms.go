package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var (
	// ErrNoSpace says that the space quota is exhausted, or that the NOSPACE alarm is raised.
	ErrNoSpace = errors.New("database space exceeded")
	// ErrCorrupt says that the CORRUPT alarm is raised.
	ErrCorrupt = errors.New("corrupt cluster")
)

// Alarm is a raised alarm. Type has etcd's AlarmType values.
type Alarm struct {
	MemberID uint64
	Type     int32
}

// The types of alarms, with etcd's values.
const (
	AlarmNone    int32 = 0
	AlarmNoSpace int32 = 1
	AlarmCorrupt int32 = 2
)

// Alarms holds the raised alarms of the cluster. Safe for concurrent use.
type Alarms struct {
	store sqlstore.Store

	mu      sync.RWMutex
	raised  map[Alarm]bool
	changes int // raised by set and Distrust, so that a Load notices them
	// unstored are raised alarms of this node that are not in the table.
	unstored map[Alarm]bool
}

// NewAlarms returns a set that is empty until Load.
func NewAlarms(store sqlstore.Store) *Alarms {
	return &Alarms{store: store, raised: make(map[Alarm]bool), unstored: make(map[Alarm]bool)}
}

// Load reads the alarms from the table. It has no effect if a change was committed, or
// Distrust was called, while it was reading: the rows that it has read may be older.
func (s *Alarms) Load(ctx context.Context) error {
	s.mu.RLock()
	before := s.changes
	s.mu.RUnlock()
	raised := make(map[Alarm]bool)
	lo, hi := coder.AlarmBounds()
	for row, err := range s.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, KeysOnly: true}) {
		if err != nil {
			return fmt.Errorf("reading the alarms: %w", err)
		}
		member, kind, err := coder.DecodeAlarmKey(row.Key)
		if err != nil {
			return fmt.Errorf("reading the alarms: %w", err)
		}
		raised[Alarm{MemberID: member, Type: kind}] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == before {
		s.raised = raised
	}
	return nil
}

// Distrust makes the loads in progress have no effect. A node that begins to lead calls
// it before it loads the alarms once more.
func (s *Alarms) Distrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
}

// Tx is the transaction of the write pipeline that changes an alarm.
type Tx interface {
	// SetRow writes a row; a nil value removes it.
	SetRow(key, value []byte)
	// OnCommit registers f to be called after the commit.
	OnCommit(f func())
}

// Change raises or disarms the alarm a in tx.
func (s *Alarms) Change(tx Tx, a Alarm, raised bool) {
	var value []byte
	if raised {
		value = coder.Empty()
	}
	tx.SetRow(coder.EncodeAlarmKey(a.MemberID, a.Type), value)
	tx.OnCommit(func() { s.set(a, raised) })
}

// set records a committed change of the alarm a.
func (s *Alarms) set(a Alarm, raised bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	if raised {
		s.raised[a] = true
	} else {
		delete(s.raised, a)
	}
}

// setUnstored raises the alarm a, or ends it, on this node alone.
func (s *Alarms) setUnstored(a Alarm, raised bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if raised {
		s.unstored[a] = true
	} else {
		delete(s.unstored, a)
	}
}

// NoSpace reports whether a NOSPACE alarm is raised for any member.
func (s *Alarms) NoSpace() bool { return s.any(AlarmNoSpace) }

// Raised reports whether the alarm a is raised in the table.
func (s *Alarms) Raised(a Alarm) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.raised[a]
}

// All returns the raised alarms, by member and type.
func (s *Alarms) All() []Alarm { return s.sorted(true) }

// Stored returns the raised alarms that are in the table, by member and type.
func (s *Alarms) Stored() []Alarm { return s.sorted(false) }

func (s *Alarms) sorted(unstored bool) []Alarm {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := maps.Clone(s.raised)
	if unstored {
		maps.Copy(all, s.unstored)
	}
	return slices.SortedFunc(maps.Keys(all), func(x, y Alarm) int {
		return cmp.Or(cmp.Compare(x.MemberID, y.MemberID), cmp.Compare(x.Type, y.Type))
	})
}

// CheckWrite returns the error of a write while alarms are raised, nil if there is none:
// ErrCorrupt, or, if the write may take space, ErrNoSpace.
func (s *Alarms) CheckWrite(takesSpace bool) error {
	switch {
	case s.any(AlarmCorrupt):
		return ErrCorrupt
	case takesSpace && s.NoSpace():
		return ErrNoSpace
	default:
		return nil
	}
}

// any reports whether an alarm of that type is raised for any member.
func (s *Alarms) any(kind int32) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, alarms := range []map[Alarm]bool{s.raised, s.unstored} {
		for a := range alarms {
			if a.Type == kind {
				return true
			}
		}
	}
	return false
}
