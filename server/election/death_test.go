package election

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAReportOfDeathLetsTheLockBeTakenAtOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	first := g.next()
	b := g.join(store, "b")
	b.sees("a")
	a.store.leave() // renewed since b looked, or not
	b.reportDead("a")
	second := g.next()
	require.Equal(t, "b", second.member)
	require.False(t, second.handedOver)
	b.sees("", "b")
	first.live(t)
	a.store.come()
	first.ends(t)
}

func TestARenewalVoidsAReportOfDeath(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	term := g.next()
	b := g.join(store, "b")
	b.sees("a")
	// What b reads after the report is renewed before b can replace it.
	b.store.onCommit(func(_ context.Context, commit func() error) error {
		for before := readRow(t, store).sequence; readRow(t, store).sequence == before; {
			a.logs.await(t, "Successfully renewed lease", len(a.logs.find("Successfully renewed lease"))+1)
		}
		return commit()
	})
	b.reportDead("a")
	b.sees("", "a")
	requireStays(t, g, b, term)
}

// requireStays holds that b does not take the lock in its next attempts.
func requireStays(t *testing.T, g *group, b *member, term *term) {
	t.Helper()
	b.store.onCommit(nil)
	reads := b.store.reads()
	for range 3 {
		b.Retry()
		wait(t, reads, "an attempt")
	}
	g.none()
	term.live(t)
	require.Equal(t, term.member, b.Holder())
}

func TestAReportOfDeathIsAboutOneProcess(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	g.next()
	b := g.join(store, "b")
	b.sees("a")
	a.store.leave()
	b.store.leave() // does not see the restart
	g.join(store, "a")
	term := g.next()
	b.reportDead("a")
	b.store.come()
	requireStays(t, g, b, term)
	for _, other := range []string{"", "b", "nobody"} {
		b.reportDead(other)
		requireStays(t, g, b, term)
	}
	// Once the new process's record was seen, reports are about that.
	b.reportDead("a")
	require.Equal(t, "b", g.next().member)
}

func TestAReportOfDeathBeforeAnythingWasSeen(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	g.next()
	a.store.leave()
	b := g.join(store, "b", func(c *Config) { c.Store.(*faultyStore).leave() })
	b.logs.await(t, "Error retrieving lease lock", 1)
	b.reportDead("a")
	b.store.come()
	require.Equal(t, "b", g.next().member)
}

// TestASuspicionTakesNoLock: not before it is confirmed, and not if the holder has
// renewed its record since.
func TestASuspicionTakesNoLock(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	term := g.next()
	b := g.join(store, "b")
	b.sees("a")
	require.False(t, b.ReportDead("a"), "nobody suspected it")

	b.Suspect("a")
	requireStays(t, g, b, term)
	for before := readRow(t, store).sequence; readRow(t, store).sequence == before; {
		time.Sleep(time.Millisecond)
	}
	requireStays(t, g, b, term)
	require.False(t, b.ReportDead("a"), "it renewed its lock")

	a.store.leave()
	a.logs.await(t, "cannot be read or written", 1) // no renewal is under way any longer
	b.Suspect("a")
	requireStays(t, g, b, term)
	require.True(t, b.ReportDead("a"))
	require.Equal(t, "b", g.next().member)
	require.False(t, b.ReportDead("a"), "b leads")
}
