package robustness

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
)

const (
	// longestWatch is longer than a fault, so that watches live through some.
	longestWatch = 6 * time.Second
	// askProgress is how often a watch asks how far it has come.
	askProgress = 150 * time.Millisecond
	// watchesAtOnce are what one client follows on one stream.
	watchesAtOnce = 3
)

// watch starts a client that follows keys from some revision on, old or yet to
// come, for a while, and then does so again: on its own node, or wherever the
// client finds one. The events before a broken connection and after etcd's client
// resumed the watch are judged as one watch.
func (tr *traffic) watch(ctx context.Context, endpoints []string, rnd *rand.Rand) {
	tr.done.Go(func() {
		for ctx.Err() == nil && !tr.stopped() {
			c, err := tr.set.NewClient(endpoints)
			if err != nil {
				return
			}
			tr.follow(ctx, c, rnd)
			_ = c.Close()
		}
	})
}

func (tr *traffic) follow(ctx context.Context, c *client.RecordingClient, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, longestWatch/10+time.Duration(rnd.Int64N(int64(longestWatch))))
	defer cancel()
	ended := make(chan struct{}, watchesAtOnce)
	for range watchesAtOnce {
		key, isPrefix := prefix, true
		if rnd.IntN(3) == 0 {
			key, isPrefix = prefix+string(rune('0'+rnd.IntN(keys))), false
		}
		from := max(1, tr.newest.Load()+50-rnd.Int64N(200))
		answers := c.Watch(ctx, key, from, isPrefix, rnd.IntN(2) == 0, rnd.IntN(2) == 0)
		go func() {
			for range answers { //nolint:revive // the client records them
			}
			ended <- struct{}{}
		}()
	}
	tick := time.NewTicker(askProgress)
	defer tick.Stop()
	stop := tr.stop
	for running := watchesAtOnce; running > 0; {
		select {
		case <-ended:
			running--
		case <-tick.C:
			request, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), askProgress)
			_ = c.RequestProgress(request)
			cancel()
		case <-stop:
			cancel()
			stop = nil
		}
	}
}
