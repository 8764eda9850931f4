package member

import "fmt"

// The versions of what members exchange: member rows, the lock row, and calls between members.
//
//	0: of members that publish none
//	1: members publish these numbers
//
// A version that later ones need for something counts one up, and OldestProtocol follows a
// release later: docs/releasing.md.
const (
	// Protocol is the newest version that this program understands.
	Protocol = 1
	// OldestProtocol is the oldest one that another member must understand.
	OldestProtocol = 0
)

// Protocols are the two numbers of a program.
type Protocols struct{ Newest, Oldest int }

// OwnProtocols returns those of this program.
func OwnProtocols() Protocols { return Protocols{Newest: Protocol, Oldest: OldestProtocol} }

// Check returns nil if a program with p and another one may be members of one cluster. Its error wraps ErrProtocol, and
// names the one to upgrade.
func (p Protocols) Check(other Protocols) error {
	switch {
	case p.Newest < other.Oldest:
		return fmt.Errorf("%w: it needs protocol %d or later, and this program has %d; upgrade this program", ErrProtocol, other.Oldest, p.Newest)
	case other.Newest < p.Oldest:
		return fmt.Errorf("%w: it has protocol %d, and this program needs %d or later; upgrade that member", ErrProtocol, other.Newest, p.Oldest)
	}
	return nil
}

// CheckProtocols returns nil if this process and all members that are alive, as they were last
// seen, understand each other. Its error wraps ErrProtocol, and may be shown to every caller.
func (r *Registry) CheckProtocols() error {
	for _, m := range r.view.last() {
		if !m.Alive || m.ID == r.id || r.silenced[m.Incarnation] && !r.view.changed(m.ID) {
			continue
		}
		if err := r.cfg.protocols.Check(m.Protocols); err != nil {
			return fmt.Errorf("member %s of version %s: %w", m, m.Version, err)
		}
	}
	return nil
}

// noteProtocols logs when CheckProtocols begins to fail, and when it succeeds again.
func (r *Registry) noteProtocols() {
	err := r.CheckProtocols()
	var now string
	if err != nil {
		now = err.Error()
	}
	r.mu.Lock()
	changed := now != r.misunderstood
	r.misunderstood = now
	r.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		r.log.Error("this process and another member do not understand each other; stop one of them", "error", err)
	default:
		r.log.Info("all members understand each other again")
	}
}
