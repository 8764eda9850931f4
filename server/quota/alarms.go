package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
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

// Node is the node that Alarms belong to.
type Node interface {
	// VerifyLeader returns nil if the node leads and as permits the request.
	VerifyLeader(ctx context.Context, as auth.Permit) error
	// Submit executes change in the write pipeline, if the node leads and as permits it.
	Submit(ctx context.Context, as auth.Permit, change func(auth.Tx) error) error
}

// Alarms holds the raised alarms of the cluster, and answers requests for them. Safe for
// concurrent use.
type Alarms struct {
	store sqlstore.Store
	node  Node
	log   *slog.Logger

	mu      sync.RWMutex
	raised  map[Alarm]bool
	changes int // raised by set and Distrust, so that a Load notices them
	loads   int // that began
	loaded  int // the newest of them that has ended
	// unstored are raised alarms of this node that are not in the table.
	unstored map[Alarm]bool
}

// NewAlarms returns the alarms of a node, which knows none until Load.
func NewAlarms(store sqlstore.Store, node Node, log *slog.Logger) *Alarms {
	return &Alarms{store: store, node: node, log: log, raised: make(map[Alarm]bool), unstored: make(map[Alarm]bool)}
}

// Load reads the alarms from the table. It has no effect if a change was committed, Distrust was called, or a Load that
// began later has ended, while it was reading: the rows that it has read may be older.
func (s *Alarms) Load(ctx context.Context) error {
	s.mu.Lock()
	s.loads++
	before, began := s.changes, s.loads
	s.mu.Unlock()
	stored, err := ReadAlarms(ctx, s.store)
	if err != nil {
		return err
	}
	raised := make(map[Alarm]bool)
	for _, a := range stored {
		raised[a] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == before && began > s.loaded {
		s.raised, s.loaded = raised, began
	}
	return nil
}

// ReadAlarms reads the alarms from store's table, by member and type.
func ReadAlarms(ctx context.Context, store sqlstore.Store) (alarms []Alarm, err error) {
	lo, hi := coder.AlarmBounds()
	for row, err := range store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("reading the alarms: %w", err)
		}
		member, kind, err := coder.DecodeAlarmKey(row.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the alarms: %w", err)
		}
		alarms = append(alarms, Alarm{MemberID: member, Type: kind})
	}
	return alarms, nil
}

// Distrust makes the loads in progress have no effect. A node that begins to lead calls
// it before it loads the alarms once more.
func (s *Alarms) Distrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
}

// List returns the raised alarms that the leader knows. Errors: mvcc.ErrNotLeader,
// mvcc.ErrNotServing, the database's.
func (s *Alarms) List(ctx context.Context, as auth.Permit) ([]Alarm, error) {
	if err := s.node.VerifyLeader(ctx, as); err != nil { // before they are read: else they may be a follower's
		return nil, err
	}
	return s.All(), nil
}

// Raise raises a and returns it.
func (s *Alarms) Raise(ctx context.Context, as auth.Permit, a Alarm) ([]Alarm, error) {
	if err := s.change(ctx, as, a, true); err != nil {
		return nil, err
	}
	return []Alarm{a}, nil
}

// Disarm disarms a and returns it, or returns nothing if it was not raised.
func (s *Alarms) Disarm(ctx context.Context, as auth.Permit, a Alarm) ([]Alarm, error) {
	if err := s.node.VerifyLeader(ctx, as); err != nil || !s.isRaised(a) {
		return nil, err
	}
	if err := s.change(ctx, as, a, false); err != nil {
		return nil, err
	}
	return []Alarm{a}, nil
}

// change raises or disarms the alarm a in the write pipeline.
func (s *Alarms) change(ctx context.Context, as auth.Permit, a Alarm, raised bool) error {
	var value []byte
	if raised {
		value = coder.Empty()
	}
	return s.node.Submit(ctx, as, func(tx auth.Tx) error {
		tx.SetRow(coder.EncodeAlarmKey(a.MemberID, a.Type), value)
		tx.OnCommit(func() {
			s.set(a, raised)
			s.log.Warn("alarm changed", "type", a.Type, "member_id", fmt.Sprintf("%x", a.MemberID), "raised", raised)
		})
		return nil
	})
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

// isRaised reports whether the alarm a is raised in the table.
func (s *Alarms) isRaised(a Alarm) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.raised[a]
}

// All returns the raised alarms that this node knows, by member and type. A follower learns of
// changes within a second, except of those that are not in the table, see Space.
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
