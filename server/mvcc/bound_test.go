package mvcc_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// ends demands that an ended context says so, before and after Done was asked for.
func ends(t *testing.T, ctx context.Context, err, cause error) {
	t.Helper()
	if !errors.Is(ctx.Err(), err) || !errors.Is(context.Cause(ctx), cause) {
		t.Errorf("error %v, cause %v; want %v, %v", ctx.Err(), context.Cause(ctx), err, cause)
	}
	if got := mvcc.PublicError(ctx, errors.New("other")); !errors.Is(got, cause) {
		t.Errorf("public error %v, want %v", got, cause)
	}
	<-ctx.Done()
	if !errors.Is(ctx.Err(), err) || !errors.Is(context.Cause(ctx), cause) {
		t.Errorf("after Done: error %v, cause %v; want %v, %v", ctx.Err(), context.Cause(ctx), err, cause)
	}
}

const limit = 16 * time.Second

func TestTimeoutEndsContextWithItsCause(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(context.Context){
		"unasked": func(context.Context) { time.Sleep(time.Nanosecond) },
		"asked":   func(ctx context.Context) { <-ctx.Done() },
		"child": func(ctx context.Context) {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
		},
		"shared": func(ctx context.Context) {
			ended, expired := mvcc.Ends(ctx)
			select {
			case <-ended:
				t.Error("its parent ended")
			case <-expired:
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := mvcc.NewTimeout(limit).Bound(t.Context())
				defer cancel()
				if d, ok := ctx.Deadline(); !ok || !d.Equal(began.Add(limit)) {
					t.Errorf("deadline %v, %v", d, ok)
				}
				time.Sleep(limit - 1)
				if ctx.Err() != nil || context.Cause(ctx) != nil {
					t.Errorf("too early: %v", ctx.Err())
				}
				wait(ctx)
				if took := time.Since(began); took < limit || took > limit+limit/16 {
					t.Errorf("took %v", took)
				}
				ends(t, ctx, context.DeadlineExceeded, mvcc.ErrTimeout)
			})
		})
	}
}

// TestLongestTimeout: a timeout that stands for none is not reached at once.
func TestLongestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := mvcc.NewTimeout(math.MaxInt64).Bound(t.Context())
		defer cancel()
		time.Sleep(time.Hour)
		_, expired := mvcc.Ends(ctx)
		select {
		case <-expired:
			t.Error("it expired after an hour")
		default:
		}
		if err := ctx.Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestTimeoutOfManyRequests: requests share channels, and none ends early.
func TestTimeoutOfManyRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		timeout := mvcc.NewTimeout(limit)
		for range 300 {
			began := time.Now()
			go func() {
				ctx, cancel := timeout.Bound(context.Background())
				defer cancel()
				_, expired := mvcc.Ends(ctx)
				<-expired
				if took := time.Since(began); took < limit || took > limit+limit/16 {
					t.Errorf("took %v", took)
				}
			}()
			time.Sleep(limit / 100)
		}
		time.Sleep(2 * limit)
	})
}

func TestTimeoutKeepsItsParent(t *testing.T) {
	t.Parallel()
	type key struct{}
	parent, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	timeout := mvcc.NewTimeout(time.Hour)
	unasked, cancel := timeout.Bound(parent)
	defer cancel()
	asked, cancel := timeout.Bound(parent)
	defer cancel()
	asked.Done()
	early, cancel := context.WithTimeout(parent, time.Minute)
	defer cancel()
	bound, cancel := timeout.Bound(early)
	defer cancel()
	want, _ := early.Deadline()
	if got, ok := bound.Deadline(); !ok || !got.Equal(want) {
		t.Errorf("deadline %v, want %v", got, want)
	}
	for _, ctx := range []context.Context{unasked, asked} {
		if ctx.Value(key{}) != "value" || ctx.Err() != nil {
			t.Errorf("value %v, %v", ctx.Value(key{}), ctx.Err())
		}
	}
	why := errors.New("why")
	end(why)
	for _, ctx := range []context.Context{unasked, asked} {
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), why) {
			t.Errorf("%v, cause %v", ctx.Err(), context.Cause(ctx))
		}
	}
	if ended, _ := mvcc.Ends(unasked); ended != parent.Done() {
		t.Error("Ends does not return the parent's channel")
	}
}

// aloof is a context whose children never learn that it has ended. Those of an ordinary one learn
// it a moment later.
type aloof struct{ context.Context }

func (aloof) AfterFunc(func()) (stop func() bool) { return func() bool { return true } }

func TestTimeoutEndsWithItsParentAtOnce(t *testing.T) {
	t.Parallel()
	parent, end := context.WithCancelCause(t.Context())
	ctx, cancel := mvcc.NewTimeout(time.Hour).Bound(aloof{parent})
	defer cancel()
	ctx.Done()
	why := errors.New("why")
	end(why)
	if ended, _ := mvcc.Ends(ctx); ended != parent.Done() {
		t.Error("Ends does not return the parent's channel")
	}
	if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), why) {
		t.Errorf("%v, cause %v", ctx.Err(), context.Cause(ctx))
	}
}

func TestTimeoutIsCancelled(t *testing.T) {
	t.Parallel()
	for _, ask := range []bool{false, true} {
		ctx, cancel := mvcc.NewTimeout(time.Hour).Bound(t.Context())
		if ask {
			ctx.Done()
		}
		cancel()
		ends(t, ctx, context.Canceled, context.Canceled)
	}
}
