package election

import (
	"bytes"
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// release gives the lock up, to successor if that is not empty. clean says that
// this process led and its Lead returned nil. It tries until ctx ends.
//
// client-go's own release is not used: it goes by the record it saw last, and so
// can release a lock that another took in the meantime.
//
// It returns ErrNotHolder if the row is not this process's any more.
func (l *lock) release(ctx context.Context, successor string, clean bool, lease, pause time.Duration) error {
	var sent *row // a write whose outcome is unknown
	for {
		r, err := l.tryRelease(ctx, successor, clean, lease, sent)
		if err == nil || errors.Is(err, ErrNotHolder) {
			return err
		}
		if r != nil {
			sent = r
		}
		if errors.Is(err, errConflict) && ctx.Err() == nil {
			continue // look again, at once
		}
		if !sleep(ctx, pause) {
			return err
		}
	}
}

func (l *lock) tryRelease(ctx context.Context, successor string, clean bool, lease time.Duration, sent *row) (*row, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	old, err := l.read(ctx)
	switch {
	case err != nil:
		return nil, err
	case old == nil:
		return nil, ErrNotHolder
	case sent != nil && (bytes.Equal(old.raw, sent.raw) || successor != "" && old.HolderIdentity == successor):
		return nil, nil
	case !l.wroteHeld(old):
		return nil, ErrNotHolder
	}
	now := metav1.NewTime(time.Now())
	rec := record{
		LeaderElectionRecord: resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1, // as client-go has it
			AcquireTime:          now,
			RenewTime:            now,
			LeaderTransitions:    old.LeaderTransitions,
		},
		Incarnation: l.incarnation,
		HandedOver:  clean,
	}
	if successor != "" {
		rec.HolderIdentity = successor
		rec.TransferredBy = l.identity
		rec.LeaseDurationSeconds = int(lease / time.Second)
		rec.LeaderTransitions++
	}
	r, err := l.write(ctx, old, rec)
	if errors.Is(err, sqlstore.ErrRowMissing) {
		return nil, nil // it is written, though the table lost a row before
	}
	return r, err
}

// sleep waits for d, or until ctx ends; then it returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
