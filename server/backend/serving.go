package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// fenceInterval is how often an idle leader looks whether it still is one.
const fenceInterval = time.Second

// stopServing makes the node refuse everything from now on, because of cause,
// and returns the error requests get. The process stays up, so that its health
// checks and logs can say why.
func (b *Backend) stopServing(cause error) error {
	err := fmt.Errorf("%w: %w", ErrNotServing, cause)
	if b.stopped.CompareAndSwap(nil, &err) {
		b.log.Error("this node stops serving", "error", cause)
	}
	return b.notServing()
}

// notServing returns why the node does not serve.
func (b *Backend) notServing() error {
	if err := b.stopped.Load(); err != nil {
		return *err
	}
	return fmt.Errorf("%w: shutting down", ErrNotServing)
}

// servingWrites returns nil while the node may commit.
func (b *Backend) servingWrites() error {
	if err := b.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// servingReads returns nil if the node may answer a read. A deposed leader may
// be behind, so it answers none, serializable ones neither. Alarms keep nobody
// from reading, as in etcd.
func (b *Backend) servingReads(linearizable bool) error { return b.servingWrites() }

// watchFence notices that another process took the leadership, or that the
// database lost data, while nothing is being written.
func (b *Backend) watchFence(ctx context.Context) {
	tick := time.NewTicker(fenceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := b.checkFence(ctx); err != nil {
			_ = b.stopServing(err)
			return
		}
	}
}

// checkFence compares the chain row with what was acknowledged before it is
// read. Not reaching the database is no verdict.
func (b *Backend) checkFence(ctx context.Context) error {
	acked := *b.acked.Load()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	raw, err := b.store.Get(ctx, coder.ChainKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return fmt.Errorf("%w: the chain row is gone", errDataLost)
	}
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("cannot read the chain row", "error", err)
		}
		return nil
	}
	cur, err := coder.DecodeChain(raw)
	if err != nil {
		return fmt.Errorf("%w: %w", errDataLost, err)
	}
	return judgeChain(acked, cur)
}
