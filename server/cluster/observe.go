package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// observeInterval is how often a node that does not campaign any more looks who leads.
const observeInterval = 100 * time.Millisecond

// observe takes over from the elector once the node has resigned: what the node is
// asked until it is closed still has to be sent to who leads.
func (n *Node) observe(ctx context.Context) {
	n.campaign.Wait()
	for ctx.Err() == nil {
		holder, err := n.readHolder(ctx)
		if err == nil {
			n.observed(holder)
		} else if ctx.Err() == nil {
			n.log.Debug("cannot read the lock row", "error", err)
		}
		pause(ctx, observeInterval, nil)
	}
}

// readHolder returns who the lock row names, "" if nobody.
func (n *Node) readHolder(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	raw, err := n.cfg.Store.Get(ctx, coder.LockKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the lock row: %w", err)
	}
	_, text, err := coder.DecodeLock(raw)
	if err != nil {
		return "", fmt.Errorf("reading the lock row: %w", err)
	}
	var record resourcelock.LeaderElectionRecord
	if err := json.Unmarshal(text, &record); err != nil {
		return "", fmt.Errorf("reading the lock row: %w", err)
	}
	return record.HolderIdentity, nil
}
