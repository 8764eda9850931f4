package coalesce

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errClosed = errors.New("closed")

func TestCallersShareACallThatBeganAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, release := 0, make(chan struct{})
		s := New(time.Minute, func(context.Context) (int, error) {
			asked++
			<-release
			return asked, nil
		})
		defer s.Close(errClosed)
		call := func(want int) {
			go func() {
				if n, err := s.Get(t.Context()); err != nil || n != want {
					t.Errorf("result of call %d, %v; want %d", n, err, want)
				}
			}()
		}
		call(1)
		synctest.Wait()
		for range 10 {
			call(2) // the first call began before they came
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if asked != 2 {
			t.Errorf("%d calls for 11 callers", asked)
		}
	})
}

func TestCloseEndsTheCallUnderWay(t *testing.T) {
	entered := make(chan struct{})
	s := New(time.Hour, func(ctx context.Context) (int, error) {
		close(entered)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	answered := make(chan error)
	go func() {
		_, err := s.Get(t.Context())
		answered <- err
	}()
	<-entered
	s.Close(errClosed)
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("the call under way: %v", err)
	}
	if _, err := s.Get(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("a caller after Close: %v", err)
	}
}
