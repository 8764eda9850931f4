package replica

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
)

func TestLeaderCompactsByItself(t *testing.T) {
	for _, mode := range []string{compact.Periodic, compact.ByRevision} {
		synctest.Test(t, func(t *testing.T) {
			b := open(t, newStore(t), func(c *Config) {
				c.AutoCompaction = compact.Auto{Mode: mode, Retention: time.Minute, Revisions: 10}
			})
			for range 30 {
				mustTxn(t, b, put("k", "v"))
			}
			if rev := b.CompactRevision(); rev != -1 {
				t.Fatalf("%s: compacted to %d at once", mode, rev)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			want := b.Revision()
			if mode == compact.ByRevision {
				want -= 10
			}
			if rev := b.CompactRevision(); rev != want {
				t.Errorf("%s: compacted to %d, want %d", mode, rev, want)
			}
		})
	}
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
