package tso

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestRevisionsOfAnAbandonedBatchAreHandedOutAgain(t *testing.T) {
	o := New(7)
	a := o.Allocate()
	if got := []int64{a.Peek(), a.Take(), a.Take(), a.Last()}; got[0] != 8 || got[1] != 8 || got[2] != 9 || got[3] != 9 {
		t.Fatalf("allocated %v, want 8 8 9 9", got)
	}
	if o.Visible() != 7 {
		t.Fatalf("allocating moved the visible revision to %d", o.Visible())
	}
	if got := o.Allocate().Take(); got != 8 {
		t.Fatalf("after an abandoned batch the next revision is %d, want 8", got)
	}
}

func TestVisibleRevisionNeverGoesBack(t *testing.T) {
	o := New(5)
	if err := o.Advance(4); err == nil || o.Visible() != 5 {
		t.Fatalf("Advance(4) from 5: err %v, visible %d", err, o.Visible())
	}
}

func TestWaitReturnsOnceTheRevisionIsVisible(t *testing.T) {
	o := New(1)
	var wg sync.WaitGroup
	for rev := int64(1); rev <= 50; rev++ {
		wg.Go(func() {
			if err := o.Wait(t.Context(), rev); err != nil {
				t.Errorf("Wait(%d): %v", rev, err)
			}
			if o.Visible() < rev {
				t.Errorf("Wait(%d) returned at %d", rev, o.Visible())
			}
		})
	}
	for rev := int64(2); rev <= 50; rev++ {
		if err := o.Advance(rev); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := o.Wait(ctx, 51); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait beyond the visible revision: %v, want the context's error", err)
	}
}
