package robustness

import (
	"context"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// kind is a kind of fault: how it begins and, if healing the network is not all,
// how it ends. For the target database, node is -1.
type kind struct {
	begin func(*round, int)
	end   func(*round, int)
}

var kinds map[string]kind

func init() {
	peers := func(f harness.NetworkFault) kind {
		return kind{begin: func(r *round, node int) { r.c.Network().Peers(node, f) }}
	}
	ofDatabase := func(f harness.NetworkFault) kind {
		return kind{begin: func(r *round, node int) { r.c.Network().Database(node, f) }}
	}
	kinds = map[string]kind{
		"kill": {
			begin: func(r *round, node int) {
				if node < 0 {
					r.c.Database().Kill()
					return
				}
				r.c.Kill(node)
			},
			end: func(r *round, node int) {
				if node < 0 {
					r.c.Database().Start()
					return
				}
				r.c.StartWithoutWaiting(node)
			},
		},
		"stop": {
			begin: func(r *round, node int) { r.c.Stop(node) },
			end:   func(r *round, node int) { r.c.StartWithoutWaiting(node) },
		},
		"pause": {
			begin: func(r *round, node int) {
				if node < 0 {
					r.c.Database().Pause()
					return
				}
				r.c.Node(node).Process().Pause(r.t)
			},
			end: func(r *round, node int) {
				if node < 0 {
					r.c.Database().Resume()
					return
				}
				r.c.Node(node).Process().Resume(r.t)
			},
		},
		"move":          {begin: (*round).moveLeader},
		"cut-peers":     peers((*harness.Proxy).Refuse),
		"swallow-peers": peers((*harness.Proxy).Swallow),
		"delay-peers":   peers(harness.Delay(80 * time.Millisecond)),
		"swallow-from": {begin: func(r *round, node int) {
			r.c.Network().From(node, (*harness.Proxy).Swallow)
		}},
		"cut-database":     ofDatabase((*harness.Proxy).Refuse),
		"swallow-database": ofDatabase((*harness.Proxy).Swallow),
		"delay-database":   ofDatabase(harness.Delay(80 * time.Millisecond)),
		// Commits under way are carried out or not, and the node has to find out.
		"reset-database": {begin: func(r *round, node int) {
			for range 10 {
				r.c.Network().Database(node, (*harness.Proxy).Cut)
				r.pass(30 * time.Millisecond)
			}
		}},
		// A follower has to find out by itself what happens, again and again.
		"reset-peers": {begin: func(r *round, node int) {
			for range 20 {
				r.c.Network().Peers(node, (*harness.Proxy).Cut)
				r.pass(100 * time.Millisecond)
			}
		}},
		"isolate": {begin: func(r *round, node int) { r.c.Network().Isolate(node, (*harness.Proxy).Swallow) }},
	}
}

// run carries the step out, and returns when the cluster serves again; or false
// when it does not. That is a separate error, and the judges still check the history.
func (r *round) run(s step) bool {
	r.t.Helper()
	nodes := make([][]int, len(s.faults))
	lead := r.c.Leader()
	for i, f := range s.faults {
		switch f.target {
		case leader:
			nodes[i] = []int{lead}
		case follower:
			nodes[i] = []int{(lead + 1 + r.rnd.IntN(r.c.Size()-1)) % r.c.Size()}
		case database:
			nodes[i] = []int{-1}
		case everyone:
			for n := range r.c.Size() {
				nodes[i] = append(nodes[i], n)
			}
		}
	}
	for i, f := range s.faults {
		for _, n := range nodes[i] {
			r.faults++
			kinds[f.kind].begin(r, n)
		}
	}
	r.pass(s.hold)
	if network := r.c.Network(); network != nil {
		network.Heal()
	}
	for i, f := range s.faults {
		for _, n := range nodes[i] {
			if end := kinds[f.kind].end; end != nil {
				end(r, n)
			}
		}
	}
	return r.serves()
}

// fullSpeed is for how long clients go on at full speed while a node does not
// serve: the judges could not cope with what they do in a minute.
const fullSpeed = 5 * time.Second

// serves waits until every node serves.
func (r *round) serves() bool {
	usual := r.limiter.Limit()
	slow := time.AfterFunc(fullSpeed, func() { r.limiter.SetLimit(slowRate) })
	defer func() {
		slow.Stop()
		r.limiter.SetLimit(usual)
	}()
	for n := range r.c.Size() {
		if err := r.c.Node(n).Ready(); err != nil {
			r.t.Errorf("node%d: %v", n, err)
			return false
		}
	}
	return true
}

// moveLeader hands the leadership to another node. It may fail, like any client's
// request.
func (r *round) moveLeader(node int) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	_ = r.c.MoveLeader(ctx, node)
}

// pass lets traffic run for d, because no event exists to wait for.
func (r *round) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.t.Context().Done():
	}
}
