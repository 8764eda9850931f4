package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestStoppedNodeReportsCauseAndWritesNothing(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	if err := errors.Join(b.Stopped(), b.Fed()); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the cause")
	b.StopServing(cause)
	for name, err := range map[string]error{"Stopped": b.Stopped(), "Fed": b.Fed(),
		"Writable": b.Probe.Writable(t.Context())} {
		if !errors.Is(err, mvcc.ErrNotServing) || !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := store.Get(t.Context(), coder.ProbeKey()); err == nil {
		t.Errorf("it wrote %x", v)
	}
}

func TestFollowerIsFedByHeartbeatsAndTheLog(t *testing.T) {
	b := openFollower(t, newStore(t), testConfig(t))
	for name, hear := range map[string]func() error{
		"a heartbeat":  func() error { return b.Apply(Update{Revision: b.Revision()}) },
		"the log":      func() error { return b.CatchUp(t.Context()) },
		"that it lags": func() error { _ = b.Apply(Update{Revision: b.Revision() + 5}); return nil },
	} {
		b.fed.Store(int64(time.Since(processStart) - feedSilence - time.Second))
		if b.Fed() == nil {
			t.Fatalf("%s: fed without anything", name)
		}
		heard := func() error {
			if err := hear(); err != nil {
				t.Fatal(err)
			}
			return b.Fed()
		}
		if name == "that it lags" {
			if heard() == nil {
				t.Errorf("%s: fed", name)
			}
			continue
		}
		eventually.Nil(t, eventually.Deadline, func(context.Context) error { return heard() }) // it counts for seconds only
	}
}

// A node that has led knows the newest commit until its leadership ends, and has as long as a follower to hear of the
// next.
func TestNodeThatHasLedIsFed(t *testing.T) {
	for _, deposed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := openFollower(t, newStore(t), exclusive(t, func(c *Config) { c.Leadership = &atLeader{} }))
			stop, ended := new(atLeader).lead(t, b)
			time.Sleep(2 * feedSilence)
			if deposed {
				_ = b.leading.Load().End(fence.ErrDeposed)
			} else {
				stop()
			}
			if err := <-ended; (err != nil) != deposed {
				t.Fatal(err)
			}
			if err := b.Fed(); err != nil {
				t.Errorf("deposed %v: %v", deposed, err)
			}
			time.Sleep(2 * feedSilence)
			if b.Fed() == nil {
				t.Errorf("deposed %v: fed without anything", deposed)
			}
		})
	}
}
