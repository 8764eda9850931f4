package compact

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// run runs a for the test, and returns the revision it compacted to last, -1 for none.
func run(t *testing.T, a Auto, current *atomic.Int64) (compacted *atomic.Int64) {
	compacted = &atomic.Int64{}
	compacted.Store(-1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx, current.Load, func(_ context.Context, rev int64) bool {
			compacted.Store(rev)
			return true
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return compacted
}

func TestPeriodicKeepsTheRetention(t *testing.T) {
	for _, retention := range []time.Duration{10 * time.Minute, time.Hour, 5 * time.Hour} {
		t.Run(retention.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var current atomic.Int64
				current.Store(1)
				compacted := run(t, Auto{Mode: Periodic, Retention: retention}, &current)
				start := time.Now()
				step := min(retention, time.Hour) / 20
				at := map[int64]time.Time{1: start} // when a revision was made
				for time.Since(start) < 3*retention {
					at[current.Add(1)] = time.Now()
					time.Sleep(step)
					synctest.Wait()
					rev := compacted.Load()
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

// TestShortRetentionsCompact: a retention of which the tenth part is no time at all.
func TestShortRetentionsCompact(t *testing.T) {
	for _, retention := range []time.Duration{1, 9, time.Microsecond, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var current atomic.Int64
			current.Store(5)
			compacted := run(t, Auto{Mode: Periodic, Retention: retention}, &current)
			time.Sleep(time.Second)
			synctest.Wait()
			if rev := compacted.Load(); rev != 5 {
				t.Errorf("the compact revision is %d, want 5 with a retention of %v", rev, retention)
			}
		})
	}
}

func TestPeriodicKeepsRevisionsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Int64
		current.Store(30)
		compacted := run(t, Auto{Mode: Periodic, Retention: time.Minute, Keep: 40}, &current)
		time.Sleep(time.Hour)
		synctest.Wait()
		if rev := compacted.Load(); rev != -1 {
			t.Fatalf("compacted to %d although there are only 30 revisions", rev)
		}
		current.Store(100)
		time.Sleep(time.Hour)
		synctest.Wait()
		if rev := compacted.Load(); rev != 60 {
			t.Fatalf("compacted to %d of 100", rev)
		}
	})
}

func TestByRevisionKeepsRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Int64
		current.Store(30)
		compacted := run(t, Auto{Mode: ByRevision, Revisions: 10}, &current)
		if rev := compacted.Load(); rev != -1 {
			t.Fatalf("compacted to %d at once", rev)
		}
		time.Sleep(revisionInterval + time.Second)
		synctest.Wait()
		if rev := compacted.Load(); rev != 20 {
			t.Fatalf("compacted to %d of 30", rev)
		}
	})
}

func TestOffCompactsNothing(t *testing.T) {
	for _, a := range []Auto{{}, {Mode: Periodic}, {Mode: ByRevision}} {
		a.Run(t.Context(), nil, nil) // returns at once
	}
}
