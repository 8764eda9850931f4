package eventually

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPollReturnsAtTheFirstSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, begun := 0, time.Now()
		Nil(t, time.Hour, func(context.Context) error {
			if calls++; calls < 10 {
				return errors.New("not yet")
			}
			return nil
		})
		require.Equal(t, 10, calls)
		require.Less(t, time.Since(begun), 10*lastPause)
		True(t, "at once", func() bool { return true })
	})
}

func TestPollReturnsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := errors.New("last")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, last, Poll(ctx, func(context.Context) error { return last }))
		require.Error(t, ctx.Err())
	})
}

func TestGoroutinesMayTakeAWhileToEnd(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	require.ErrorContains(t, noLeaks(time.Millisecond), "TestGoroutinesMayTakeAWhileToEnd")
	time.AfterFunc(time.Second, func() { close(end) }) // longer than goleak waits
	require.NoError(t, noLeaks(Deadline))
}
