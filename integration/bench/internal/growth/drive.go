package growth

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

// Series are requests of one kind, sent by so many clients for a while.
type Series struct {
	Clients     int     `json:"clients"`
	Done        int     `json:"done"`
	PerSecond   float64 `json:"per_second"`
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
	ServerCPU   float64 `json:"server_cpu_us"` // microseconds for each request
	DatabaseCPU float64 `json:"database_cpu_us"`
	ServerRSS   int64   `json:"server_rss"` // bytes, at the end
	DatabaseRSS int64   `json:"database_rss"`
}

// step sends one request and checks its answer.
type step func(ctx context.Context, c *clientv3.Client, r *rand.Rand) error

// drive sends requests for a while, at least one for each client, which gets a step of
// its own. The first that fails, or is answered wrongly, ends it.
func drive(ctx context.Context, r *system.Running, connections []*clientv3.Client, clients int, d time.Duration, stepOf func() step) (Series, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var failure error
	before := usage(r)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			do := stepOf()
			var own []time.Duration
			var err error
			for err == nil && (len(own) == 0 || time.Since(began) < d) {
				at := time.Now()
				err = do(ctx, connections[i%len(connections)], random)
				own = append(own, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			if err != nil {
				failure = errors.Join(failure, err)
				cancel()
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(began).Seconds()
	if failure != nil {
		return Series{}, failure
	}
	after := usage(r)
	slices.Sort(took)
	n := float64(len(took))
	return Series{
		Clients: clients, Done: len(took), PerSecond: n / elapsed, P50: ms(took[len(took)/2]), P99: ms(took[len(took)*99/100]),
		ServerCPU: (after.server - before.server) / n * 1e6, DatabaseCPU: (after.database - before.database) / n * 1e6,
		ServerRSS: after.serverRSS, DatabaseRSS: after.databaseRSS,
	}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// used is CPU seconds and bytes of memory.
type used struct {
	server, database       float64
	serverRSS, databaseRSS int64
}

// usage is of the first node and the database; what cannot be read is 0.
func usage(r *system.Running) used {
	var u used
	of := func(id int) (cpu float64, rss int64) {
		p, err := procfs.NewProc(id)
		if err != nil {
			return 0, 0
		}
		stat, err := p.Stat()
		if err != nil {
			return 0, 0
		}
		return stat.CPUTime(), int64(stat.ResidentMemory())
	}
	u.server, u.serverRSS = of(r.Server(0))
	if r.Database() != 0 {
		u.database, u.databaseRSS = of(r.Database())
	}
	return u
}
