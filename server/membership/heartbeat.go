package membership

import (
	"context"
	"errors"
	"slices"
	"time"
)

// heartbeatTimeout bounds one heartbeat against a database that hangs.
const heartbeatTimeout = 5 * time.Second

// Run sends heartbeats, answers challenges and looks at the members until ctx
// ends; it also looks when Refresh asks for it. Trouble with the database ends
// nothing; it is logged when it begins and when it is over. Once the Registry has
// ended, Run goes on looking.
func (r *Registry) Run(ctx context.Context) {
	heartbeats, answers := time.NewTicker(r.cfg.HeartbeatInterval), time.NewTicker(r.cfg.AnswerInterval)
	defer heartbeats.Stop()
	defer answers.Stop()
	out := false
	asked, pause := r.asked, time.NewTimer(0) // asked is nil during the pause
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-heartbeats.C:
		case <-answers.C:
			if !r.challenged(ctx) {
				continue
			}
		case <-asked:
			r.refresh(ctx)
			asked = nil
			pause.Reset(refreshPause)
			continue
		case <-pause.C:
			asked = r.asked
			continue
		}
		err := r.beat(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.metrics.failures.Inc()
		}
		if err != nil && !out {
			r.log.Warn("cannot send heartbeats, trying again", "error", err)
		}
		if err == nil && out {
			r.log.Info("sending heartbeats again")
		}
		out = err != nil
	}
}

// beat looks at the members and sends one heartbeat, unless this process is no
// member any more. A heartbeat of unknown outcome needs no settling: the next one
// looks first.
func (r *Registry) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(heartbeatTimeout, r.cfg.HeartbeatInterval))
	defer cancel()
	err := r.write(ctx, func(own *row) bool {
		own.Heartbeat++
		own.Fingerprint = r.cfg.Certificate.Fingerprint() // it may have changed, or been lost by an older version's write
		return !r.left.Load()
	})
	if errors.Is(err, ErrRemoved) || errors.Is(err, ErrReplaced) {
		return nil // told by Ended
	}
	return err
}

// Advertise tells clients to use these URLs from now on.
func (r *Registry) Advertise(ctx context.Context, clientURLs []string) error {
	clientURLs = slices.Clone(clientURLs)
	return r.write(ctx, func(own *row) bool {
		changed := !slices.Equal(own.ClientURLs, clientURLs)
		own.ClientURLs = clientURLs
		own.Heartbeat++
		return changed
	})
}

// Leave says that this process stops, so that the others see it at once. The
// member stays one. It is called behind Run, and gives the metrics back. It is
// nil if the process is not the member any more.
func (r *Registry) Leave(ctx context.Context) error {
	r.left.Store(true)
	defer r.metrics.close()
	err := r.write(ctx, func(own *row) bool {
		stopped := own.Stopped
		own.Stopped = true
		own.Heartbeat++
		return !stopped
	})
	if errors.Is(err, ErrRemoved) || errors.Is(err, ErrReplaced) {
		return nil
	}
	return err
}

// write changes this member's own row until it has taken effect, or change says
// that there is nothing to change. It looks at the table first, and fails with
// what ended the Registry if it has.
func (r *Registry) write(ctx context.Context, change func(own *row) bool) error {
	for {
		t, _, err := r.look(ctx)
		if err != nil {
			return err
		}
		if err := r.Err(); err != nil {
			return err
		}
		own, _ := t.named(r.cfg.Name)
		next := entry{name: own.name, row: own.row}
		if !change(&next.row) {
			return nil
		}
		next.Challenge = 0
		batch := r.store.BeginBatchWrite()
		batch.CAS(next.key(), next.encode(), own.raw)
		if err := batch.Commit(ctx); err == nil || !raced(err) {
			return err
		}
	}
}
