package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Running is a member whose process proved that it runs.
type Running struct {
	Member
	// Ago is how long before it was seen the newest heartbeat was sent at most.
	Ago time.Duration
}

// String names the member, where it listens, and its last heartbeat.
func (r Running) String() string {
	at := "no peer URLs"
	if len(r.PeerURLs) > 0 {
		at = strings.Join(r.PeerURLs, ",")
	}
	return fmt.Sprintf("member %s at %s sent heartbeat %d within the last %s", r.Member, at, r.Heartbeat, r.Ago)
}

// challenge asks the process that keeps the member row e to prove that it runs. It returns what was seen last, or nil if
// the process left timing.MissedPolls challenges unanswered, interval after each other. A process that said that it
// stopped, or whose row is gone, is silent. One that took the row over from e's process is not.
//
// Only time after a challenge that the database accepted counts: while it takes no writes, no process can answer. Each
// challenge replaces the one before, also that of another process: the answer is a heartbeat.
func challenge(ctx context.Context, store sqlstore.Store, e entry, interval time.Duration) (seen *Running, err error) {
	last := time.Now()
	for unanswered := 0; ; unanswered++ {
		ended := false
		err := commit(ctx, store, func(batch sqlstore.BatchWrite, _ bool) error {
			began := time.Now()
			raw, err := store.Get(ctx, e.key())
			if errors.Is(err, sqlstore.ErrKeyNotFound) {
				ended = true
				return errDone
			}
			if err != nil {
				return err
			}
			now, err := decodeEntry(e.key(), raw)
			switch {
			case err != nil:
				return err
			case now.Incarnation != e.Incarnation || now.Heartbeat != e.Heartbeat && !now.Stopped:
				seen, ended = &Running{now.Member, time.Since(last).Round(time.Millisecond)}, true
				return errDone
			case now.Stopped || unanswered == timing.MissedPolls:
				ended = true
				return errDone
			}
			last = began
			next := now.Member
			next.Challenge = newID()
			batch.CAS(next.key(), next.encode(), now.raw)
			return nil
		})
		if err != nil || ended {
			return seen, err
		}
		if err := retry.Sleep(ctx, interval); err != nil {
			return nil, err
		}
	}
}

// ListRunning challenges all members, and returns those whose processes run,
// ordered by name. It is for programs that are not members.
func ListRunning(ctx context.Context, store sqlstore.Store) ([]*Running, error) {
	var trips trips
	began := time.Now()
	t, err := readTable(ctx, store)
	if err != nil {
		return nil, err
	}
	trips.observe(time.Since(began))
	running := make([]*Running, len(t.rows))
	var all errgroup.Group
	for i, e := range t.rows {
		if e.running() {
			all.Go(func() (err error) {
				running[i], err = challenge(ctx, store, e, max(timing.Poll, trips.pause(e.roundTrip())))
				return err
			})
		}
	}
	err = all.Wait()
	return slices.DeleteFunc(running, func(r *Running) bool { return r == nil }), err
}
