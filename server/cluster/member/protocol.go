package member

import "fmt"

// Protocol is the version of what members exchange: member rows, the lock row, and calls between members. A change that
// a process of another version would not understand counts it up: docs/releasing.md.
const Protocol = 1

// CheckProtocol returns nil if a process of protocol own and one of protocol other may be members of one cluster. Its
// error wraps ErrProtocol, and names the one to upgrade.
func CheckProtocol(own, other int) error {
	switch {
	case own < other:
		return fmt.Errorf("%w: it has protocol %d, and this program %d; upgrade this program", ErrProtocol, other, own)
	case own > other:
		return fmt.Errorf("%w: it has protocol %d, and this program %d; upgrade that member", ErrProtocol, other, own)
	}
	return nil
}

// CheckProtocols returns nil if all members that are alive, as they were last seen, have this process's protocol. Its
// error wraps ErrProtocol, and may be shown to every caller.
func (r *Registry) CheckProtocols() error {
	for _, m := range r.view.last() {
		if !m.Alive || m.ID == r.id {
			continue
		}
		if err := CheckProtocol(r.cfg.protocol, m.Protocol); err != nil {
			return fmt.Errorf("member %s of version %s: %w", m, m.Version, err)
		}
	}
	return nil
}
