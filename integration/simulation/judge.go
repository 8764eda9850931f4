package simulation

import (
	"context"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
)

const (
	// leasesEnd is the longest time until all leases have expired that no client renews any longer:
	// their TTL, what a change of the leader adds, and slack.
	leasesEnd = 8 * time.Second
	// catchUpTime is the longest time until a watch that was opened again has all revisions.
	catchUpTime = 10 * time.Second
)

// judge ends the clients' history, and judges it. All faults must be over.
func (cl *clients) judge() {
	w := cl.w
	time.Sleep(leasesEnd)
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
	w.stats.Revisions, w.stats.Unknown, w.stats.Acknowledged = v.Revision(), v.Unknown, cl.recorder.Acked()
	for _, s := range cl.watches {
		cl.fillPrevious(s, account)
		for _, wrong := range v.CheckWatch(s.Range, s.start, s.upTo, s.prevKV, &s.stream) {
			w.fail("[%q, %q) from %d: %s", s.Key, s.End, s.start, wrong)
		}
		w.stats.Watches++
		w.stats.Events += len(s.stream.Revisions)
	}
	cl.judgeLeases(account)
}

// readBack reads everything through a node, and checks that no lease is left.
func (cl *clients) readBack(node string) {
	c := cl.newClient("last-"+node, node)
	defer c.disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), recoveryTime)
	defer cancel()
	kvs, err := c.read(ctx, history.Read{Range: history.Range{Key: "\x00", End: "\x00"}})
	if err != nil {
		cl.w.fail("%s does not answer a read: %v", node, err)
	}
	for _, kv := range kvs {
		if strings.HasPrefix(kv.Key, "lease/") {
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
	for _, r := range s.stream.Revisions {
		i := r.Number - account[0].Number
		if i < 0 || i >= int64(len(account)) {
			continue
		}
		for j, e := range r.Events {
			for _, other := range account[i].Events {
				if e.Prev == nil && other.Key == e.Key && other.Prev != nil && r.Number <= cl.compacted {
					r.Events[j].Prev = other.Prev
				}
			}
		}
	}
}

// judgeLeases checks that no lease ended early.
func (cl *clients) judgeLeases(account []history.Revision) {
	leases := make(map[int64]*lease)
	for _, l := range cl.leases {
		leases[l.id] = l
	}
	cl.w.stats.Leases = len(leases)
	for _, r := range account {
		for _, e := range r.Events {
			if !e.Deleted || e.Prev == nil || leases[e.Prev.Lease] == nil {
				continue
			}
			if l, at := leases[e.Prev.Lease], cl.auditor.seen[r.Number]; at < l.end() {
				cl.w.fail("lease %x of %d s, renewed at %v: %s was deleted at %v, revision %d", l.id, l.ttl, l.promised, e.Key, at, r.Number)
			}
		}
	}
}
