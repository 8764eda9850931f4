package robustness

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

// realTime is a judge that etcd's validators do not have: once any client was shown a
// revision, by an answer or by a watch, every linearizable request that begins
// later is answered at that revision or a newer one. Of answers alone porcupine
// would say so too, but not which two of them contradict each other.
func realTime(reports []report.ClientReport) error {
	type moment struct {
		at       time.Duration
		begins   bool  // else revision was shown
		revision int64 // of the answer
		what     string
	}
	var all []moment
	for _, r := range reports {
		for _, op := range r.KeyValue {
			request, response := op.Input.(model.EtcdRequest), op.Output.(model.MaybeEtcdResponse)
			if response.Error != "" || request.Type != model.Range && request.Type != model.Txn {
				continue
			}
			what := fmt.Sprintf("client %d, member %x, %s from %s to %s at revision %d", r.ClientID, response.MemberID,
				request.Type,
				time.Duration(op.Call), time.Duration(op.Return), response.Revision)
			all = append(all, moment{time.Duration(op.Call), true, response.Revision, what},
				moment{time.Duration(op.Return), false, response.Revision, what})
		}
		for _, w := range r.Watch {
			for _, response := range w.Responses {
				if len(response.Events) > 0 {
					newest := response.Events[len(response.Events)-1].Revision
					all = append(all, moment{response.Time, false, newest,
						fmt.Sprintf("a watch of client %d at %s with revision %d", r.ClientID, response.Time, newest)})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	var newest moment
	for _, m := range all {
		switch {
		case m.begins && m.revision < newest.revision:
			return fmt.Errorf("real time: %s\n  is older than what was known when it began: %s", m.what, newest.what)
		case !m.begins && m.revision > newest.revision:
			newest = m
		}
	}
	return nil
}
