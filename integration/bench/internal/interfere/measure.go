package interfere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

// Options are the sizes of a run.
type Options struct {
	Clients   int           // half of them put, half of them get
	Keys      int           // of the background work
	Versions  int           // of each of them
	ValueSize int           // bytes
	Quiet     time.Duration // how long clients are measured without background work, and at least with it
	Joins     bool          // nothing but a follower that joins
}

// Full is for figures, Tiny for tests.
var (
	Full = Options{Clients: 16, Keys: 100_000, Versions: 10, ValueSize: 512, Quiet: 5 * time.Second}
	Tiny = Options{Clients: 2, Keys: 256, Versions: 2, ValueSize: 32, Quiet: 100 * time.Millisecond}
)

// requestTimeout bounds a client's request, which clientv3 repeats for as long as a system has no leader.
const requestTimeout = 30 * time.Second

// none is the name of the row without background work.
const none = "none"

// Figure is what clients saw while a work was done. Latencies are in milliseconds.
type Figure struct {
	Work           string
	Seconds        float64 // of the work
	PutP99, PutMax float64
	GetP99, GetMax float64
	PutsPerSecond  float64
	GetsPerSecond  float64
	Failed         error // of the work, or of a client
}

// Run starts a system on fresh data, does each work once, and tells what clients saw.
func Run(ctx context.Context, env *system.Environment, s system.System, o Options, tell func(Figure)) (err error) {
	running, err := env.Start(ctx, s)
	if running != nil {
		defer func() { err = errors.Join(err, running.Close()) }()
	}
	if err != nil {
		return err
	}
	own, err := running.Connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	others, err := running.Connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.Close()) }()

	b := &background{Client: own, Options: o, server: running}
	if err := b.load(ctx); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for _, w := range works {
		if w.joins && !s.Joins() || o.Joins && !w.joins && w.name != none {
			continue
		}
		if w.prepare != nil {
			if err := w.prepare(ctx, b); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
		tell(measure(ctx, others, w, b))
		if running.Ended() != nil {
			return running.Ended()
		}
	}
	return nil
}

// measure does the work, again and again for Quiet if it can be repeated, and measures the clients meanwhile.
func measure(ctx context.Context, others *clientv3.Client, w work, b *background) Figure {
	f := Figure{Work: w.name}
	stop := make(chan struct{})
	puts, gets := make([]latencies, b.Clients/2), make([]latencies, b.Clients/2)
	var clients sync.WaitGroup
	value := string(make([]byte, b.ValueSize))
	for i := range puts {
		key := func(n int) string { return fmt.Sprintf("/others/%d/%d", i, n%100) }
		clients.Go(func() {
			puts[i].repeat(ctx, stop, func(ctx context.Context, n int) error {
				_, err := others.Put(ctx, key(n), value)
				return err
			})
		})
		clients.Go(func() {
			gets[i].repeat(ctx, stop, func(ctx context.Context, n int) error {
				_, err := others.Get(ctx, key(n))
				return err
			})
		})
	}
	start := time.Now()
	for once := false; f.Failed == nil && (!once || w.again && time.Since(start) < b.Quiet); once = true {
		f.Failed = w.do(ctx, b)
	}
	f.Seconds = time.Since(start).Seconds()
	close(stop)
	clients.Wait()
	var err error
	f.PutP99, f.PutMax, f.PutsPerSecond, err = summary(puts, f.Seconds)
	f.Failed = errors.Join(f.Failed, err)
	f.GetP99, f.GetMax, f.GetsPerSecond, err = summary(gets, f.Seconds)
	f.Failed = errors.Join(f.Failed, err)
	return f
}

// latencies are those of one client, in milliseconds.
type latencies struct {
	all    []float64
	failed error
}

// repeat calls f until stop is closed. A request that is under way then counts.
func (l *latencies) repeat(ctx context.Context, stop <-chan struct{}, f func(ctx context.Context, n int) error) {
	for n := 0; l.failed == nil; n++ {
		select {
		case <-stop:
			return
		default:
		}
		start := time.Now()
		request, cancel := context.WithTimeout(ctx, requestTimeout)
		l.failed = f(request, n)
		cancel()
		l.all = append(l.all, float64(time.Since(start).Microseconds())/1000)
	}
}

func summary(clients []latencies, seconds float64) (p99, most, perSecond float64, err error) {
	var all []float64
	for _, l := range clients {
		all = append(all, l.all...)
		err = errors.Join(err, l.failed)
	}
	if len(all) == 0 {
		return 0, 0, 0, err
	}
	return result.Quantile(all, 0.99), slices.Max(all), float64(len(all)) / seconds, err
}
