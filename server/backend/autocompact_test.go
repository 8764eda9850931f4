package backend

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPeriodicCompactionKeepsThePeriod(t *testing.T) {
	for _, retention := range []time.Duration{10 * time.Minute, time.Hour, 5 * time.Hour} {
		t.Run(retention.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, newStore(t), func(c *Config) {
					c.AutoCompactionMode, c.AutoCompactionRetention = AutoCompactPeriodic, retention
				})
				start := time.Now()
				step := min(retention, time.Hour) / 20
				at := map[int64]time.Time{1: start} // when a revision was made
				for time.Since(start) < 3*retention {
					at[mustTxn(t, b, put("k", "v")).Revision] = time.Now()
					time.Sleep(step)
					synctest.Wait()
					rev := b.CompactRevision()
					if since := time.Since(start); rev < 0 {
						if since > retention+2*step {
							t.Fatalf("nothing was compacted after %v", since)
						}
						continue
					}
					age := time.Since(at[rev])
					if longest := retention + min(retention, time.Hour) + 4*step; age < retention-4*step || age > longest {
						t.Fatalf("after %v the compact revision is %v old", time.Since(start), age)
					}
				}
			})
		})
	}
}

func TestRevisionCompactionKeepsTheRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, newStore(t), func(c *Config) {
			c.AutoCompactionMode, c.AutoCompactionRevisions = AutoCompactRevision, 10
		})
		for range 30 {
			mustTxn(t, b, put("k", "v"))
		}
		if rev := b.CompactRevision(); rev != -1 {
			t.Fatalf("compacted to %d at once", rev)
		}
		time.Sleep(revisionInterval + time.Second)
		synctest.Wait()
		if rev := b.CompactRevision(); rev != b.Revision()-10 {
			t.Fatalf("compacted to %d of %d", rev, b.Revision())
		}
	})
}
