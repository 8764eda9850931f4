package transport

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// claims returns claims of b, and which of them were ended.
func claims(b *budget, n int) (cs []*claim, ended func() []int) {
	var mu sync.Mutex
	var over []int
	for i := range n {
		cs = append(cs, &claim{of: b})
		cs[i].end = func() {
			mu.Lock()
			over = append(over, i)
			mu.Unlock()
			cs[i].close()
		}
	}
	return cs, func() []int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(over)
	}
}

func TestBudgetEndsTheClaimsWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{most: 100, spare: 2 * time.Second}
		cs, ended := claims(b, 3)
		for _, c := range cs {
			c.add(30, false)
		}
		time.Sleep(time.Minute)
		require.Empty(t, ended(), "they fit")
		cs[0].remove(1)
		cs[2].add(40, false)
		time.Sleep(time.Millisecond)
		require.Equal(t, []int{1}, ended(), "no more than needed, and not those that have made progress last")
		cs[0].add(40, false)
		time.Sleep(time.Second)
		require.Equal(t, []int{1, 2}, ended())
		cs[0].add(40, false)
		time.Sleep(time.Second)
		require.Len(t, ended(), 3, "it has made no progress for longer than is spared")
		require.Zero(t, b.Bytes())
	})
}

func TestBudgetSparesClaimsThatMakeProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{most: 100, spare: 2 * time.Second}
		cs, ended := claims(b, 1)
		cs[0].add(1000, false)
		for range 100 {
			time.Sleep(time.Second)
			cs[0].remove(1)
		}
		require.Empty(t, ended())
		time.Sleep(3 * time.Second)
		require.Len(t, ended(), 1)
	})
}

func TestBudgetEndsClaimsAfterTheProgressTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{most: 1000, progressTimeout: time.Minute}
		cs, ended := claims(b, 2)
		cs[0].add(10, true)
		for range 10 {
			time.Sleep(30 * time.Second)
			cs[1].add(1, true)
		}
		require.Equal(t, []int{0}, ended())
		cs[1].clear()
		time.Sleep(time.Hour)
		require.Equal(t, []int{0}, ended(), "nothing is left of the other")
	})
}

func TestLargeClaimsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = 10 * smallClaim
		b := &budget{most: 2 * large, spare: 2 * time.Second, progressTimeout: time.Hour}
		cs, ended := claims(b, 4)
		cs[0].reserve(large, nil)
		cs[1].reserve(large, nil)
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			cs[1].add(0, true)
		}()
		cs[2].reserve(large, nil)
		require.Equal(t, 2*time.Second, time.Since(began), "the first one has made no progress for so long")
		require.Equal(t, []int{0}, ended())
		cs[3].reserve(smallClaim, nil)
		require.Equal(t, int64(2*large+smallClaim), b.Bytes(), "a small one does not wait")
		done := make(chan struct{})
		close(done)
		cs[3].reserve(large, done)
		require.Equal(t, int64(2*large+smallClaim), b.Bytes(), "the connection is closed")
		for _, c := range cs {
			c.close()
		}
	})
}

func TestSuccessorHasTheBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{most: 100, spare: time.Second}
		cs, ended := claims(b, 2)
		cs[0].add(80, false)
		cs[0].leave(cs[1])
		require.Equal(t, int64(80), b.Bytes())
		cs[0].remove(30)
		require.Equal(t, int64(50), b.Bytes(), "the successor's are fewer")
		cs[0].add(80, false)
		require.Equal(t, int64(50), b.Bytes(), "it is closed")
		cs[1].close()
		cs[0].remove(50)
		require.Zero(t, b.Bytes())
		require.Empty(t, ended())
	})
}

func TestPaceOfResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		require.LessOrEqual(t, p.count(freeResets), time.Duration(0))
		require.Equal(t, time.Second, p.count(resetsPerSecond))
		time.Sleep(time.Hour)
		require.LessOrEqual(t, p.count(freeResets), time.Duration(0))
		require.Positive(t, p.count(1))
		require.Equal(t, mostPause, p.count(1_000_000), "pings are answered in time")
		require.Equal(t, mostPause, p.count(1))
	})
}

// TestClaimThatWaitsForRoomIsNotTheStalest: the server is what it waits for.
func TestClaimThatWaitsForRoomIsNotTheStalest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{most: 100 << 10, spare: 10 * time.Second}
		var holds, waits claim
		ended := make(chan string, 2)
		holds = claim{of: b, end: func() { ended <- "holds"; holds.close() }}
		waits = claim{of: b, end: func() { ended <- "waits"; waits.close() }}
		waits.add(512, false)
		time.Sleep(time.Second)
		holds.reserve(90<<10, nil)
		waits.reserve(80<<10, nil)
		require.Equal(t, "holds", <-ended)
		require.Empty(t, ended)
		require.EqualValues(t, 512+80<<10, b.Bytes())
	})
}

// TestClaimsThatHardlySendEnd once others wait, and neither those that wait nor those that send enough.
func TestClaimsThatHardlySendEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{most: 3 << 20, spare: 10 * time.Second, progressTimeout: time.Minute}
		cs, ended := claims(b, 3)
		send := func(c *claim, every time.Duration) {
			for range 1000 {
				time.Sleep(every)
				c.add(0, true)
			}
		}
		cs[0].reserve(2<<20, nil)
		go send(cs[0], 9*time.Second)
		time.Sleep(time.Hour)
		require.Empty(t, ended(), "they fit")
		cs[0].clear()
		cs[0].reserve(2<<20, nil)
		time.Sleep(time.Second)
		cs[1].reserve(900<<10, nil)
		go send(cs[1], 900*time.Millisecond)
		time.AfterFunc(12*time.Second, cs[1].close)
		cs[2].add(messageOverhead, false)
		began := time.Now()
		done := make(chan struct{})
		time.AfterFunc(time.Hour, func() { close(done) })
		cs[2].reserve(2<<20, done)
		require.Equal(t, []int{0}, ended())
		require.Less(t, time.Since(began), 42*time.Second)
		cs[2].close()
		time.Sleep(3 * time.Hour) // until both have sent all
	})
}

func TestClaimThatGivesUpNeedsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{most: 1 << 20, spare: 2 * time.Second}
		cs, ended := claims(b, 2)
		cs[0].reserve(1<<20, nil)
		done := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(done) })
		cs[1].reserve(1<<20, done)
		time.Sleep(time.Hour)
		require.Empty(t, ended())
	})
}
