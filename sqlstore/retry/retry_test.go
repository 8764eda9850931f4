package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPausesDoubleUpToTheMaximumWithJitter(t *testing.T) {
	b := Backoff{Min: 10 * time.Millisecond, Max: 70 * time.Millisecond}
	for i, most := range []time.Duration{10, 20, 40, 70, 70} {
		most *= time.Millisecond
		seen := map[time.Duration]bool{}
		for range 100 {
			d := b.Pause(i + 1)
			require.GreaterOrEqual(t, d, most/2)
			require.Less(t, d, most)
			seen[d] = true
		}
		require.Greater(t, len(seen), 1, "pauses after %d failures are all the same", i+1)
	}
	require.Less(t, b.Pause(1<<30), b.Max)
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: time.Second, Max: time.Minute}
		began := time.Now()
		require.NoError(t, b.Wait(t.Context(), 1))
		require.GreaterOrEqual(t, time.Since(began), b.Min/2)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		require.ErrorIs(t, b.Wait(ctx, 10), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, Sleep(ctx, 0), context.DeadlineExceeded)
		require.NoError(t, Sleep(t.Context(), -1))
	})
}

func TestEveryEndsWithTheContextAndWithItsLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		began, steps := time.Now(), 0
		for range Every(ctx, time.Second) {
			steps++
			require.Equal(t, time.Duration(steps)*time.Second, time.Since(began))
		}
		require.Equal(t, 3, steps)
		require.Equal(t, 3500*time.Millisecond, time.Since(began))
		for range Every(t.Context(), time.Second) {
			break
		}
		require.Equal(t, 4500*time.Millisecond, time.Since(began))
	})
}
