package backend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestManyCallersShareOneQuestionAskedAfterTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, release := 0, make(chan struct{})
		s := newShared(time.Minute, func(context.Context) (int, error) {
			asked++
			<-release
			return asked, nil
		})
		defer s.close()
		call := func(want int) {
			go func() {
				if n, err := s.get(t.Context()); err != nil || n != want {
					t.Errorf("question %d answered, %v; want %d", n, err, want)
				}
			}()
		}
		call(1)
		synctest.Wait()
		for range 10 {
			call(2) // the first question was asked before they came
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if asked != 2 {
			t.Errorf("%d questions for 11 callers", asked)
		}
	})
}

func TestClosingEndsTheQuestionUnderWay(t *testing.T) {
	entered := make(chan struct{})
	s := newShared(time.Hour, func(ctx context.Context) (int, error) {
		close(entered)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	answered := make(chan error)
	go func() {
		_, err := s.get(t.Context())
		answered <- err
	}()
	<-entered
	s.close()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("the question under way: %v", err)
	}
	if _, err := s.get(t.Context()); !errors.Is(err, ErrNotServing) {
		t.Errorf("one that came later: %v", err)
	}
}
