package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// silence is for how long the row's process must be silent before another one may
// take its place.
func (r row) silence() time.Duration {
	return max(timing.MissedAnswers*min(r.answers(), timing.Answer), timing.MissedLongAnswers*r.answers())
}

// Running is a member whose process proved that it runs.
type Running struct {
	ID       uint64
	Name     string
	PeerURLs []string
	// Heartbeat is the newest one, which was sent at most Ago before it was seen.
	Heartbeat uint64
	Ago       time.Duration
}

// String names the member, where it listens, and its last heartbeat.
func (r Running) String() string {
	at := "no peer URLs"
	if len(r.PeerURLs) > 0 {
		at = strings.Join(r.PeerURLs, ",")
	}
	return fmt.Sprintf("member %q (%x) at %s sent heartbeat %d within the last %s", r.Name, r.ID, at, r.Heartbeat, r.Ago)
}

// challenge asks the process that keeps the row e to prove that it runs, and
// reports whether it was silent for silence. If not, Running is what was seen last.
// A process that said that it stopped, or whose row is gone, is silent. One that
// took the row over from e's process is not.
//
// Clocks of different machines are not compared. silence is measured between challenges
// that the database accepted, without the time that it took to accept them.
//
// A process that answers swaps the row that it has read. A challenge in between makes that fail, and
// the process reads the row again. So challenges are at least pause apart, and the farther the database
// is, the fewer of them fill silence.
func challenge(
	ctx context.Context, store sqlstore.Store, e entry, silence, pause time.Duration,
) (silent bool, seen Running, err error) {
	number := min(max(timing.Challenges, silence/timing.ChallengeInterval), max(1, silence/max(1, pause)))
	interval := max(pause, (silence+number-1)/number)
	// A challenge that is accepted proves that the row was as it was read, so nothing else reads it before the end.
	now, last, read := e, time.Now(), e.Stopped
	counted := e.Challenge // the last one, which is not counted again
	sent := uint64(0)      // the last one of this process
	leave := 0             // for how many pauses it is left to another member to challenge
	for unanswered, failures := time.Duration(0), 0; ; {
		began := time.Now()
		if read {
			raw, err := store.Get(ctx, e.key())
			if errors.Is(err, sqlstore.ErrKeyNotFound) {
				return true, seen, nil
			}
			if err != nil {
				return false, seen, err
			}
			now, err = decodeEntry(e.key(), raw)
			switch {
			case err != nil:
				return false, seen, err
			case now.Incarnation != e.Incarnation || now.Heartbeat != e.Heartbeat && !now.Stopped:
				return false, Running{now.ID, now.name, now.PeerURLs, now.Heartbeat, time.Since(last).Round(time.Millisecond)}, nil
			case now.Stopped || unanswered >= silence:
				return true, seen, nil
			}
			last = began
		}
		// The database may have accepted a challenge since the last one: of another member, or of this
		// process, whose outcome was unknown. That serves as well. After another member's, this process
		// writes none until they have not come for a while: the members would undo each other's, and the
		// swap of the lock after them.
		if uncounted := read && now.Challenge != 0 && now.Challenge != counted; uncounted {
			if now.Challenge != sent {
				leave = timing.Challenges
			}
		} else if leave > 0 {
			leave--
			if err := retry.Sleep(ctx, interval); err != nil {
				return false, seen, err
			}
			continue
		} else {
			sent = newID()
			now.Challenge = sent
			challenged := now.encode()
			batch := store.BeginBatchWrite()
			batch.CAS(now.key(), challenged, now.raw)
			if err := batch.Commit(ctx); err != nil {
				failures++
				if err := again(ctx, err, failures); err != nil {
					return false, seen, err
				}
				read = true
				continue
			}
			now.raw, last = challenged, began
		}
		counted = now.Challenge
		unanswered += interval
		if err := retry.Sleep(ctx, interval); err != nil {
			return false, seen, err
		}
		read = leave > 0 || unanswered >= silence
	}
}

// silent challenges the member and reports whether its process has ended: it left
// challenges unanswered for silence, or said that it stopped, or was
// removed. It returns the row that the process wrote last. Errors are the store's and ctx's.
func (r *Registry) silent(ctx context.Context, id uint64, silence time.Duration) (entry, bool, error) {
	m, known, err := r.Find(ctx, id)
	if err != nil || !known {
		return entry{}, err == nil, err
	}
	read, now := r.view.begin(), time.Now()
	key := coder.EncodeMemberKey(m.Name)
	raw, err := r.store.Get(ctx, key)
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return entry{}, true, nil
	}
	if err != nil {
		return entry{}, false, err
	}
	e, err := decodeEntry(key, raw)
	if err != nil || e.ID != id || !e.running() {
		return e, err == nil, err
	}
	r.view.glanced(&e, read, now)
	silence = max(silence, timing.MissedLongAnswers*r.answersOf(e))
	silent, _, err := challenge(ctx, r.store, e, silence, r.trips.pause())
	return e, silent, err
}

// ListRunning challenges all members, and returns those whose processes run,
// ordered by name. It is for programs that are not members.
func ListRunning(ctx context.Context, store sqlstore.Store) ([]Running, error) {
	var trips trips
	began := time.Now()
	t, err := readTable(ctx, store)
	if err != nil {
		return nil, err
	}
	trips.observe(time.Since(began))
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		running []Running
		errs    []error
	)
	for _, e := range t {
		if !e.running() {
			continue
		}
		all.Go(func() {
			silent, seen, err := challenge(ctx, store, e, e.silence(), trips.pause())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			} else if !silent {
				running = append(running, seen)
			}
		})
	}
	all.Wait()
	slices.SortFunc(running, func(a, b Running) int { return strings.Compare(a.Name, b.Name) })
	return running, errors.Join(errs...)
}
