package feed

import "errors"

// Errors of calls, in addition to those of package link, of the context and of the
// connection.
var (
	// ErrNotLeader: the called member does not lead, or no longer does.
	ErrNotLeader = errors.New("the peer does not lead")
	// ErrSilent: a feed received nothing from the leader for 1.5 s.
	ErrSilent = errors.New("the peer fell silent")
	// ErrAhead: the feed was to start after revisions that the leader does not have.
	ErrAhead = errors.New("the peer does not have the revisions before the start")
	// ErrMalformed: a feed's messages contradict each other.
	ErrMalformed = errors.New("the peer's feed is out of order")
)
