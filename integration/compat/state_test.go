package compat

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// revisionsCompared is about how many revisions the state is compared at.
const revisionsCompared = 12

// compareState compares all that both servers keep, starts them anew, and
// compares it again.
func (w *world) compareState() {
	w.compareStored()
	w.close()
	for _, s := range w.p.sides() {
		s.node.Stop()
		s.node.Start()
	}
	// etcd hashes anew after a start what it had hashed at a compaction.
	clear(w.compactions)
	w.compareStored()
	for rev := max(1, w.compacted); rev <= w.revision; rev++ {
		if w.failed() {
			return
		}
		w.ask("Maintenance/HashKV", &pb.HashKVRequest{Revision: rev})
	}
}

func (w *world) compareStored() {
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
	low := max(1, w.compacted)
	step := max(1, (w.revision-low)/revisionsCompared)
	for rev := low - 1; rev <= w.revision+1 && !w.failed(); rev += step {
		all.Revision = rev
		w.ask("KV/Range", all)
	}
	for _, rev := range []int64{0, low - 1, low, w.revision, w.revision + 1} {
		all.Revision = rev
		w.ask("KV/Range", all)
		if !w.compactions[rev] {
			w.ask("Maintenance/HashKV", &pb.HashKVRequest{Revision: rev})
		}
	}
	w.ask("Lease/LeaseLeases", &pb.LeaseLeasesRequest{})
	for _, id := range w.leases {
		w.ask("Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	}
	w.ask("Maintenance/Alarm", &pb.AlarmRequest{})
	w.ask("Maintenance/Status", &pb.StatusRequest{})
	w.compareEvents(low)
}

// compareEvents compares the whole history that watches can still get.
func (w *world) compareEvents(from int64) {
	if w.failed() || w.revision < from || w.revision == 1 {
		return
	}
	// The newest revision may have no event left: a delete that was compacted.
	w.putFence()
	etcd, err := w.p.etcd.events(from, w.revision)
	if err != nil {
		w.differ("events", err.Error())
		return
	}
	subject, err := w.p.subject.events(from, w.revision)
	if err != nil {
		w.differ("events", err.Error())
		return
	}
	for i := range min(len(etcd), len(subject)) {
		w.differ(fmt.Sprintf("event %d from revision %d on", i, from), messageDifference(etcd[i], subject[i]))
	}
	w.rec.add(func(e *engineResults) { e.events += min(len(etcd), len(subject)) })
	if len(etcd) != len(subject) {
		w.differ("events", fmt.Sprintf("etcd has %d, the subject %d", len(etcd), len(subject)))
	}
}
