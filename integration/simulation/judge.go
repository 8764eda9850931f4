package simulation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

const (
	// leasesEnd is the longest time until all leases have expired that no client renews any longer:
	// what a change of the leader adds to their TTL, and slack.
	leasesEnd = 6 * time.Second
	// catchUpTime is the longest time until a watch that was opened again has all revisions.
	catchUpTime = 10 * time.Second
)

// judge ends the clients' history, and judges it. All faults must be over.
func (cl *clients) judge() {
	w := cl.w
	time.Sleep(leasesEnd + w.plan.Workload.longestTTL())
	for _, node := range nodes {
		cl.readBack(node)
	}
	if newest := cl.recorder.Newest(); !cl.auditor.await(newest, catchUpTime) {
		w.fail("the auditor has come to revision %d, clients to %d", cl.auditor.last(), newest)
	}
	cl.auditor.stop()
	account := cl.auditor.stream.Revisions
	v := history.NewVerifier(cl.recorder, 1)
	for _, wrong := range v.Round(account) {
		w.fail("%s", wrong)
	}
	w.judgeTable(account)
	w.stats.Revisions, w.stats.Unknown, w.stats.Acknowledged = v.Revision(), v.Unknown, cl.recorder.Acked()
	for _, s := range cl.watches {
		cl.fillPrevious(s, account)
		for _, wrong := range v.CheckWatch(s.Range, s.start, s.upTo, s.prevKV, &s.stream, s.wants) {
			w.fail("[%q, %q) from %d: %s", s.Key, s.End, s.start, wrong)
		}
		w.stats.Watches++
		w.stats.Events += len(s.stream.Revisions)
	}
	cl.judgeLeases(account)
}

// judgeOpenWatches checks that each open watch gets all that was written, unless its connection is broken, of which a
// client that only waits does not learn. All faults must be over.
func (cl *clients) judgeOpenWatches() {
	cl.keepWatches.Store(true)
	newest := cl.recorder.Newest()
	if !cl.auditor.await(newest, catchUpTime) {
		return // judge says so
	}
	cl.auditor.mu.Lock()
	account := slices.Clone(cl.auditor.stream.Revisions)
	cl.auditor.mu.Unlock()
	open := func(f *watching) bool {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.followed[f]
	}
	cl.mu.Lock()
	all := slices.Collect(maps.Keys(cl.followed))
	cl.mu.Unlock()
	var judging sync.WaitGroup
	for _, f := range all {
		judging.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			request := &pb.RangeRequest{Key: []byte(prefix), Serializable: true}
			if _, err := pb.NewKVClient(f.conn).Range(ctx, request); err != nil {
				return
			}
			end := time.Now().Add(catchUpTime)
			for late := f.late(account); late != "" && open(f); late = f.late(account) {
				if time.Now().After(end) {
					cl.w.fail("%s: %s, clients to %d", f.c.process.name, late, newest)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	judging.Wait()
}

// readBack reads everything through a node, and checks that no lease is left.
func (cl *clients) readBack(node string) {
	c := cl.newClient("last-"+node, node)
	defer c.disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), recoveryTime)
	defer cancel()
	kvs, err := c.read(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		cl.w.fail("%s does not answer a read: %v", node, err)
	}
	for _, kv := range kvs {
		if kv.Lease != 0 {
			cl.w.fail("%s: the lease of %v has not ended", node, kv)
		}
	}
	answer, err := pb.NewLeaseClient(c.connect()).LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
	if err != nil {
		cl.w.fail("%s does not list leases: %v", node, err)
	}
	for _, l := range answer.GetLeases() {
		cl.w.fail("%s: lease %x has not ended", node, l.ID)
	}
}

// fillPrevious sets the previous versions in a watch's events that were compacted before the
// events were sent, as they may be.
func (cl *clients) fillPrevious(s *watch, account []history.Revision) {
	if !s.prevKV || len(account) == 0 {
		return
	}
	_, compacted := cl.recorder.Compactions()
	for _, r := range s.stream.Revisions {
		i := r.Number - account[0].Number
		if i < 0 || i >= int64(len(account)) {
			continue
		}
		for j, e := range r.Events {
			for _, other := range account[i].Events {
				if e.Prev == nil && other.Key == e.Key && other.Prev != nil && r.Number <= compacted {
					r.Events[j].Prev = other.Prev
				}
			}
		}
	}
}

// judgeLeases checks that no lease ended early, and in plans without failures, that none ended late.
func (cl *clients) judgeLeases(account []history.Revision) {
	lives := make(map[int64][]*lease) // by id
	for _, l := range cl.leases {
		lives[l.id] = append(lives[l.id], l)
	}
	cl.w.stats.Leases = len(cl.leases)
	for _, r := range account {
		for _, e := range r.Events {
			if !e.Deleted || e.Prev == nil {
				continue
			}
			// The life of the lease to which the key was attached.
			var l *lease
			for _, life := range lives[e.Prev.Lease] {
				if e.Prev.ModRevision > life.revision {
					l = life
				}
			}
			if l == nil {
				continue
			}
			at := cl.auditor.seen[r.Number]
			if at < l.end() && strings.HasPrefix(e.Key, "lease/") {
				cl.w.fail("lease %x of %d s, renewed at %v: %s was deleted at %v, revision %d", l.id, l.ttl, l.promised, e.Key, at,
					r.Number)
			}
			slack, orderly := cl.w.plan.handovers(l.last-cl.began, at-cl.began)
			if latest := l.latest() + slack; orderly && at > latest && strings.HasPrefix(e.Key, "lease/") {
				cl.w.fail("lease %x of %d s, renewed at %v the last time, ended at %v: %s was deleted, revision %d", l.id, l.ttl,
					l.last, at, e.Key, r.Number)
			}
		}
	}
}

// handovers returns by how much the changes of the leader in a time may prolong a lease. It returns false if the plan
// has other faults, which may prolong it by more.
func (p Plan) handovers(from, to time.Duration) (slack time.Duration, orderly bool) {
	for _, f := range p.Faults {
		switch {
		case f.Kind != Move && f.Kind != Stop:
			return 0, false
		case f.At+f.For+time.Second > from && f.At < to:
			// A checkpoint rounds up to a second, and no lease ends until the new leader serves.
			slack += 1500*time.Millisecond + timing.LeaseGrace
		}
	}
	return slack + time.Second, true
}
