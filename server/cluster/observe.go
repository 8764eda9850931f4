package cluster

import (
	"context"
	"time"

	"github.com/sqlbrain/sqlbrain/server/election"
)

// observeInterval is how often a node that does not campaign any more looks who leads.
const observeInterval = 100 * time.Millisecond

// observe takes over from the elector once the node has resigned: what the node is
// asked until it is closed still has to be sent to who leads.
func (n *Node) observe(ctx context.Context) {
	n.campaign.Wait()
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		holder, err := election.ReadHolder(bounded, n.cfg.Store)
		cancel()
		if err == nil {
			n.observed(holder)
		} else if ctx.Err() == nil {
			n.log.Debug("cannot read the lock row", "error", err)
		}
		pause(ctx, observeInterval, nil)
	}
}
