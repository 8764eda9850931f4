package replica

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Leadership is how a follower finds and asks the leader.
type Leadership interface {
	// Position asks the leader, once it is known, for its newest revision. The leader answers
	// only while it leads, and the question must be sent after the call of Position. Errors
	// of the connection and ErrNotLeader are temporary.
	Position(ctx context.Context) (Update, error)
	// Leader returns the member that leads according to this node, 0 if none.
	Leader() uint64
}

// Update is a message of the leader about its commits.
type Update struct {
	Term            int64
	Revision        int64          // the newest one that Events completes
	CompactRevision int64          // -1 or 0 if nothing was compacted
	AuthVersion     int64          // of users and roles, see coder.AuthSettings
	Events          []*watch.Event // whole revisions, in order; known ones are ignored
	KeepsLock       bool           // the leader just saw in the database that it has the lock
}

// PiggybackRead returns keys to add to a query that is about to be sent, and a callback for their values; it saves a
// separate poll of the rows that the node has to watch. Neither blocks. If the node does not lead, and RefreshState
// would find what the last one found, unchanged is called.
func (r *Replica) PiggybackRead(unchanged func()) (keys [][]byte, found func(rows [][]byte)) {
	if l := r.leading.Load(); l != nil {
		return l.authority.PiggybackRead()
	}
	refreshed, verify := r.refreshed.Load(), r.seen.Verifier()
	if refreshed == nil {
		return nil, nil
	}
	return fence.WatchedKeys(), func(rows [][]byte) {
		// Alarms, users and roles change with the fence row.
		if cur, err := fence.DecodeWatched(rows); err == nil && cur == *refreshed && verify(cur) == nil {
			unchanged()
		}
	}
}
