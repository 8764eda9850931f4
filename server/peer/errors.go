package peer

import "errors"

// What asking a node can end with, besides the context's errors and those of
// connections, which say nothing about whether the node still runs.
var (
	// ErrNotLeader: the node that was asked does not lead, or no longer does.
	ErrNotLeader = errors.New("the peer does not lead")
	// ErrRefused: the operating system at every address of the member refused the
	// last connection tried: no process listens there.
	ErrRefused = errors.New("no process listens at the peer's addresses")
	// ErrOtherNode: another member, or a member of another cluster, listens at the
	// member's address.
	ErrOtherNode = errors.New("another node listens at the peer's address")
	// ErrNoCertificate: the member has published no certificate, so it cannot be
	// authenticated. It runs an older version.
	ErrNoCertificate = errors.New("the member has published no certificate")
	// ErrSilent: a feed's leader said nothing for Config.Silence.
	ErrSilent = errors.New("the peer fell silent")
	// ErrAhead: the feed was asked to go on from revisions that the leader does not
	// have.
	ErrAhead = errors.New("the peer does not have the revisions before the start")
	// ErrMalformed: a feed's messages contradict each other.
	ErrMalformed = errors.New("the peer's feed is out of order")
)
