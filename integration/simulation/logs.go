package simulation

import (
	"errors"
	"log/slog"
	"time"

	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// standBack is for how long a member at least takes the lock no more after it failed to lead.
const standBack = timing.StandBack

// lockUse is what a process logged about the lock.
type lockUse struct {
	grant  int64
	failed time.Time // when leading ended by itself, or failed; zero: never, or another process handed the lock over since
}

// hear judges what a process logs if the database loses no data. It logs an error only if a promise is broken, unless
// that is how a fault of the plan shows.
func (w *world) hear(p *process, r slog.Record) {
	if p.dead() || w.plan.loses() {
		return
	}
	switch r.Message {
	case "holding the lock, leading":
		w.holds(p, attr(r, "grant").Int64())
		return
	case "handed the lock over":
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, use := range w.locks {
			use.failed = time.Time{}
		}
		return
	case "request failed":
		if err, _ := attr(r, "error").Any().(error); errors.Is(err, fence.ErrUnproven) {
			return // a node asked this one to record a loss, and was wrong
		}
	case "the leader's process is gone: it is not heard, and left a challenge unanswered":
		w.mu.Lock()
		defer w.mu.Unlock()
		w.condemned = append(w.condemned, time.Since(w.start))
		return
	case "leading failed, standing back", "leading ended by itself, standing back":
		w.mu.Lock()
		defer w.mu.Unlock()
		w.locks[p].failed = time.Now()
		return
	}
	if r.Level >= slog.LevelError {
		w.fail("%s logs an error: %s", p.name, r.Message)
	}
}

// holds judges that a process leads under a grant of the lock: once, and not soon after it failed to.
func (w *world) holds(p *process, grant int64) {
	w.mu.Lock()
	before := w.locks[p]
	w.locks[p] = &lockUse{grant: grant}
	w.mu.Unlock()
	switch {
	case before == nil:
	case before.grant == grant:
		w.fail("%s leads again under grant %d of the lock", p.name, grant)
	case !before.failed.IsZero() && time.Since(before.failed) < standBack:
		w.fail("%s holds the lock %v after it failed to lead", p.name, time.Since(before.failed))
	}
}

func attr(r slog.Record, key string) (v slog.Value) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			v = a.Value
		}
		return true
	})
	return v
}
