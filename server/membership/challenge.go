package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// A process must leave at least challenges in a row unanswered before it counts as
	// silent, which are at most challengeInterval apart. Each is a write of its own:
	// while the database takes no writes, no process counts as silent.
	challenges        = 4
	challengeInterval = 250 * time.Millisecond
	// missedAnswers is after how many answer intervals without an answer a process
	// may be replaced.
	missedAnswers = 10
	// challengeTimeout bounds a process's look for a challenge, so that one that
	// hangs leaves time for the next.
	challengeTimeout = 500 * time.Millisecond
)

// silence is for how long the row's process must be silent before another one may
// take its place. A process of an earlier version answers no challenges.
func (r row) silence() time.Duration {
	if r.Answers == 0 {
		return missedHeartbeats * r.interval()
	}
	return missedAnswers * time.Duration(r.Answers) * time.Millisecond
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
// No two clocks are compared. What counts is the time between challenges that the
// database took, and not the time that it needed to take them.
func challenge(ctx context.Context, store sqlstore.Store, e entry, silence time.Duration) (silent bool, seen Running, err error) {
	interval := min(silence/challenges, challengeInterval)
	last := time.Now()
	for unanswered := time.Duration(0); ; {
		began := time.Now()
		raw, err := store.Get(ctx, e.key())
		if errors.Is(err, sqlstore.ErrKeyNotFound) {
			return true, seen, nil
		}
		if err != nil {
			return false, seen, err
		}
		now, err := decodeEntry(e.key(), raw)
		switch {
		case err != nil:
			return false, seen, err
		case now.Incarnation != e.Incarnation || now.Heartbeat != e.Heartbeat && !now.Stopped:
			return false, Running{now.ID, now.name, now.PeerURLs, now.Heartbeat, time.Since(last).Round(time.Millisecond)}, nil
		case now.Stopped || unanswered >= silence:
			return true, seen, nil
		}
		last = began
		now.Challenge = newID()
		batch := store.BeginBatchWrite()
		batch.CAS(now.key(), now.encode(), now.raw)
		if err := batch.Commit(ctx); raced(err) {
			continue
		} else if err != nil {
			return false, seen, err
		}
		unanswered += interval
		if err := sleep(ctx, interval); err != nil {
			return false, seen, err
		}
	}
}

// Silent challenges the member and reports whether its process has ended: it left
// challenges unanswered for silence, or said that it stopped, or is no member any
// more. Errors are the store's and ctx's.
func (r *Registry) Silent(ctx context.Context, id uint64, silence time.Duration) (bool, error) {
	t, _, err := r.look(ctx)
	if err != nil {
		return false, err
	}
	e, ok := t.withID(id)
	if !ok || !e.running() {
		return true, nil
	}
	if e.Answers == 0 {
		silence = max(silence, e.silence())
	}
	silent, _, err := challenge(ctx, r.store, e, silence)
	return silent, err
}

// ListRunning challenges all members, and returns those whose processes run,
// ordered by name. It is for programs that are no member themselves.
func ListRunning(ctx context.Context, store sqlstore.Store) ([]Running, error) {
	t, err := readTable(ctx, store)
	if err != nil {
		return nil, err
	}
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
			silent, seen, err := challenge(ctx, store, e, e.silence())
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

// challenged reports whether Run should send a heartbeat at once: another process
// waits for one, or keeps this member's row by now. It also looks at the members if
// they were changed, so that a removal takes effect on all members at once.
func (r *Registry) challenged(ctx context.Context) bool {
	if r.Err() != nil || r.left.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, challengeTimeout)
	defer cancel()
	key := coder.EncodeMemberKey(r.cfg.Name)
	rows, err := r.store.MultiGet(ctx, [][]byte{key, coder.EncodeMemberKey(changes)})
	if err != nil {
		return false
	}
	own, counted := rows[0], rows[1]
	if own == nil {
		return true
	}
	e, err := decodeEntry(key, own)
	if err != nil || e.Challenge != 0 || e.Incarnation != r.incarnation {
		return true
	}
	if !bytes.Equal(counted, r.counted) {
		if _, _, err := r.look(ctx); err == nil {
			r.counted = counted
		}
	}
	return false
}

// sleep waits for d, or fails with ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
