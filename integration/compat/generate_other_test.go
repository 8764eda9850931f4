package compat

import (
	"math"
	"math/rand/v2"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// stepGrant grants a lease that outlives the history. No two leases have the same
// time, or nearly so, since their order depends on what is left of it.
func stepGrant(w *world, r *rand.Rand) {
	n := r.IntN(12)
	id := []int64{1, 2, 3, 4, 5, 6, 7, 8, -3, -4, 1 << 62, math.MinInt64}[n]
	ttl := one[int64](r, 2*3600, 3*3600, 4*3600, 100_000, 9_000_000_000, 9_000_000_001, 10_000_000_000)
	w.grant(id, ttl-int64(n)*300)
}

func (w *world) grant(id, ttl int64) answer {
	a := w.ask("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: id, TTL: ttl})
	if a.err == nil {
		w.leases = append(w.leases, id)
	}
	return a
}

func stepRevoke(w *world, r *rand.Rand) { w.revoke(w.leaseOrNone(r)) }

func (w *world) revoke(id int64) answer {
	a := w.ask("Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: id})
	if a.err == nil {
		w.leases = slices.DeleteFunc(w.leases, func(l int64) bool { return l == id })
	}
	return a
}

func (w *world) leaseOrNone(r *rand.Rand) int64 {
	if len(w.leases) == 0 || chance(r, 8) {
		return one[int64](r, 0, 999, -1)
	}
	return w.leases[r.IntN(len(w.leases))]
}

func stepLeaseReads(w *world, r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		w.ask("Lease/LeaseLeases", &pb.LeaseLeasesRequest{})
	case 1:
		w.ask("Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: w.leaseOrNone(r)})
	default:
		w.ask("Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: w.leaseOrNone(r), Keys: chance(r, 2)})
	}
}

// stepPassingLease grants a lease too short to keep, or one whose id the server
// chooses, and revokes it at once.
func stepPassingLease(w *world, r *rand.Rand) {
	if chance(r, 2) {
		id := int64(100)
		if w.ask("Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: id, TTL: one[int64](r, math.MinInt64, -1, 0, 1)}).err == nil {
			w.ask("Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: id})
		}
		return
	}
	w.chosenLease(func(id [2]int64) {})
}

// chosenLease grants a lease whose id each server chooses, calls f with the two
// ids, and revokes it.
func (w *world) chosenLease(f func(id [2]int64)) {
	c := call{"Lease/LeaseGrant", &pb.LeaseGrantRequest{TTL: 3600}}
	w.trace = append(w.trace, c.String()+" and LeaseRevoke")
	etcd, subject := w.p.ask(c)
	w.compare(c, etcd, subject)
	if w.failed() || etcd.err != nil {
		return
	}
	id := [2]int64{etcd.only().(*pb.LeaseGrantResponse).ID, subject.only().(*pb.LeaseGrantResponse).ID}
	f(id)
	etcd = w.p.etcd.ask(call{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: id[0]}})
	subject = w.p.subject.ask(call{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: id[1]}})
	w.differ("LeaseRevoke of a lease with a chosen id", difference(call{}, etcd, subject))
	w.learn(etcd)
}

func stepWatch(w *world, r *rand.Rand) {
	q := &pb.WatchCreateRequest{PrevKv: chance(r, 2), ProgressNotify: chance(r, 4), Fragment: chance(r, 4)}
	q.Key, q.RangeEnd = anyRange(r)
	if chance(r, 2) {
		q.Key, q.RangeEnd = []byte(one(r, "", "\x00", "a", "k/")), []byte{0}
	}
	switch n := r.IntN(10); {
	case n < 4:
	case n < 8:
		q.StartRevision = w.pastRevision(r)
	default:
		q.StartRevision = w.anyRevision(r)
	}
	if chance(r, 5) {
		q.WatchId = one[int64](r, 1, 2, 3, 7, -7, math.MinInt64)
	}
	for chance(r, 4) {
		q.Filters = append(q.Filters, pb.WatchCreateRequest_FilterType(r.IntN(2)))
	}
	if chance(r, 40) {
		q.Filters = append(q.Filters, 9)
	}
	w.watch(r.IntN(streamsOpen), q)
}

// watch creates a watch on stream i and returns etcd's answer; nil after a failure.
func (w *world) watch(i int, q *pb.WatchCreateRequest) *pb.WatchResponse {
	s := w.stream(i)
	if s == nil {
		return nil
	}
	w.trace = append(w.trace, call{"Watch/Watch", q}.String()+" on stream "+string(rune('0'+i)))
	a, err := s.create(q, w.revision)
	if err != nil {
		w.differ("creating a watch: "+brief(q), err.Error())
		return nil
	}
	if q.StartRevision > 0 && q.StartRevision <= w.revision {
		w.behind++
	}
	return a
}

// stepCancelWatch and stepProgress settle before and after their request, because
// neither request has to be answered.
func stepCancelWatch(w *world, r *rand.Rand) {
	i, id := r.IntN(streamsOpen), one[int64](r, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, -7, -1, 1000)
	w.cancelWatch(i, id)
}

func (w *world) cancelWatch(i int, id int64) {
	w.settle()
	if s := w.stream(i); s != nil && !w.failed() {
		w.trace = append(w.trace, "cancel a watch on stream "+string(rune('0'+i)))
		if err := s.cancel(id); err != nil {
			w.differ("cancelling a watch", err.Error())
		}
	}
	w.settle()
}

func stepProgress(w *world, r *rand.Rand) { w.progress(r.IntN(streamsOpen)) }

func (w *world) progress(i int) {
	w.settle()
	if s := w.stream(i); s != nil && !w.failed() {
		w.trace = append(w.trace, "request progress on stream "+string(rune('0'+i)))
		if err := s.progress(); err != nil {
			w.differ("requesting progress", err.Error())
		}
	}
	w.settle()
}

func stepCloseStream(w *world, r *rand.Rand) {
	w.settle()
	if i := r.IntN(streamsOpen); w.streams[i] != nil {
		w.trace = append(w.trace, "close stream "+string(rune('0'+i)))
		w.streams[i].close()
		w.streams[i] = nil
	}
}

func stepHashKV(w *world, r *rand.Rand) {
	if rev := w.anyRevision(r); !w.compactions[rev] {
		w.ask("Maintenance/HashKV", &pb.HashKVRequest{Revision: rev})
	}
}

func stepStatus(w *world, _ *rand.Rand) { w.ask("Maintenance/Status", &pb.StatusRequest{}) }

// stepAlarm raises an alarm, sees what is still allowed, and disarms it.
func stepAlarm(w *world, r *rand.Rand) {
	const member = 7
	alarm := func(action pb.AlarmRequest_AlarmAction, kind pb.AlarmType) {
		w.ask("Maintenance/Alarm", &pb.AlarmRequest{Action: action, MemberID: member, Alarm: kind})
	}
	kind := one(r, pb.AlarmType_NOSPACE, pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT)
	alarm(pb.AlarmRequest_ACTIVATE, kind)
	for range 4 {
		one(r, stepPut, stepRange, stepTxn, stepGrant, stepStatus, stepRevoke, stepLeaseReads, func(w *world, r *rand.Rand) {
			alarm(pb.AlarmRequest_GET, pb.AlarmType(r.IntN(3)))
		})(w, r)
	}
	alarm(pb.AlarmRequest_DEACTIVATE, kind)
}
