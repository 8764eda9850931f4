package backup

import (
	"context"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// refusals spaces out attempts after errors that end Ship: an operator may mend their cause.
var refusals = retry.Backoff{Min: 200 * time.Millisecond, Max: time.Minute}

// Keeper ships while its node leads. Close must be called.
type Keeper struct {
	cfg    Config
	terms  chan context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

// NewKeeper returns one that waits for Lead. cfg.Metrics must be set.
func NewKeeper(cfg Config) *Keeper {
	ctx, cancel := context.WithCancel(context.Background())
	k := &Keeper{cfg: cfg, terms: make(chan context.Context), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		for {
			select {
			case term := <-k.terms:
				k.ship(term)
			case <-ctx.Done():
				return
			}
		}
	}()
	return k
}

// Lead makes it ship until ctx ends. It returns at once, or, while the place does not return from a call of the term
// before, at the end of ctx at the latest: the place must not hold up a leader.
func (k *Keeper) Lead(ctx context.Context) {
	select {
	case k.terms <- ctx:
		return
	default:
	}
	k.cfg.Metrics.point.Store(&point{until: time.Now(), term: ctx.Done()}) // it grows while the place hangs
	select {
	case k.terms <- ctx:
	case <-ctx.Done():
	}
}

// ship ships until ctx ends.
func (k *Keeper) ship(ctx context.Context) {
	defer k.cfg.Metrics.point.Store(nil)
	for failures := 1; ; failures++ {
		err := Ship(ctx, k.cfg)
		if ctx.Err() != nil {
			return
		}
		pause := refusals.Pause(failures)
		k.cfg.Log.Error("the backup is not continued, trying again", "to", k.cfg.To.String(), "error", err,
			"pause", pause)
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// Close waits until nothing is written any longer; Lead's ctx must have ended. If the place does not return within the
// time, it gives the goroutine up and reports false.
func (k *Keeper) Close(patience time.Duration) bool {
	k.cancel()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-k.done:
		return true
	case <-timer.C:
		return false
	}
}
