package replica

import (
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
