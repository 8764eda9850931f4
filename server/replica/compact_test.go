package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestLeaderCompactsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, newStore(t), func(c *Config) {
			c.AutoCompaction = compact.Auto{Mode: compact.ByRevision, Revisions: 10}
		})
		for range 30 {
			mustTxn(t, b, put("k", "v"))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if rev, want := b.CompactRevision(), b.Revision()-10; rev != want {
			t.Errorf("compacted to %d, want %d", rev, want)
		}
	})
}

// TestNodeThatStoppedServingDoesNotCompact, though its leadership has not ended yet.
func TestNodeThatStoppedServingDoesNotCompact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, newStore(t), func(c *Config) {
			c.AutoCompaction = compact.Auto{Mode: compact.ByRevision, Revisions: 1}
		})
		for range 10 {
			mustTxn(t, b, put("k", "v"))
		}
		_ = b.StopServing(errors.New("made up"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if rev := b.CompactRevision(); rev != -1 {
			t.Errorf("compacted to %d", rev)
		}
	})
}

func TestCorruptAlarmRefusesWritesAndCompactions(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustTxn(t, b, put("k", "v"))
	if _, err := b.Alarms.Raise(t.Context(), auth.System, quota.Alarm{MemberID: 1, Type: quota.AlarmCorrupt}); err != nil {
		t.Fatal(err)
	}
	mustRange(t, b, &mvcc.RangeRequest{KeyRange: all()})
	_, written := b.Txn(t.Context(), auth.System, put("k", "w"), true)
	_, compacted := b.Compact(t.Context(), auth.System, 1, false)
	for _, err := range []error{written, compacted} {
		if !errors.Is(err, quota.ErrCorrupt) {
			t.Error(err)
		}
	}
}

// TestAbandonedCompactionSharesNoMemory with its caller, which has returned before the sequencer runs it. The race
// detector finds it.
func TestAbandonedCompactionSharesNoMemory(t *testing.T) {
	b := open(t, newStore(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	permit := auth.NewPermit(func(context.Context, auth.View) error {
		cancel()
		time.Sleep(10 * time.Millisecond) // a channel would order the accesses of the two
		return nil
	})
	if rev, err := b.Compact(ctx, permit, 1, false); !errors.Is(err, context.Canceled) || rev != 0 {
		t.Errorf("%d, %v", rev, err)
	}
}

// undeletable is a store whose rows cannot be removed.
type undeletable struct{ sqlstore.Store }

func (u undeletable) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(u.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if b.Removes() {
			return fmt.Errorf("%w: made up", sqlstore.ErrUnavailable)
		}
		return b.BatchWrite.Commit(ctx)
	})
}

// TestRemoverContinuesAfterFailures of package compact has what comes then.
func TestPhysicalCompactionIsBounded(t *testing.T) {
	b := open(t, undeletable{newStore(t)}, func(c *Config) { c.compactDeadline = 10 * time.Millisecond })
	for i := range 4 {
		mustTxn(t, b, put("k", fmt.Sprint(i)))
	}
	if _, err := b.Compact(t.Context(), auth.System, 4, true); !errors.Is(err, mvcc.ErrTimeout) {
		t.Errorf("%v, want ErrTimeout", err)
	}
	if b.CompactRevision() != 4 {
		t.Errorf("compact revision %d", b.CompactRevision())
	}
}
