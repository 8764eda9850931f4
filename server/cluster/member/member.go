package member

import (
	"fmt"
	"time"
)

// Member is what is known of one member. Its slices must not be changed.
type Member struct {
	ID         uint64
	Name       string // empty: added, and not started yet
	PeerURLs   []string
	ClientURLs []string
	Version    string // of the product
	Protocol   int
	// Incarnation distinguishes the processes of the member; 0 if none ever
	// sent a heartbeat.
	Incarnation uint64
	// RoundTrip is the time that a statement of the process takes, as it said last.
	RoundTrip time.Duration
	// Alive: its heartbeats arrive, as far as this node could see.
	Alive bool
	// Stopped: its process said that it stops.
	Stopped bool
	// Heartbeat counts the heartbeats of the process; above 0, the process listens.
	Heartbeat uint64
	// Fingerprint is the SHA-256 of the certificate that the process shows to other
	// members, in hexadecimal; empty if it has published none.
	Fingerprint string
}

// String returns the member's name and id.
func (m Member) String() string { return fmt.Sprintf("%q (%x)", m.Name, m.ID) }

// Started reports whether a process ever ran as this member.
func (m Member) Started() bool { return m.Name != "" }
