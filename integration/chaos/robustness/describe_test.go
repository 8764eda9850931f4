package robustness

import (
	"fmt"

	"go.etcd.io/etcd/tests/v3/robustness/model"
)

// describe returns the number of requests, watches and events of a round.
func describe(s seen) string {
	var requests, unanswered, watches, events int
	var revision int64
	for _, r := range s.reports {
		for _, op := range r.KeyValue {
			response := op.Output.(model.MaybeEtcdResponse)
			requests++
			if response.Error != "" {
				unanswered++
			}
			revision = max(revision, response.Revision)
		}
		for _, w := range r.Watch {
			watches++
			for _, response := range w.Responses {
				events += len(response.Events)
			}
		}
	}
	return fmt.Sprintf("%d requests, %d of them unanswered; %d revisions; %d watches with %d events; %d faults, "+
		"%d new leaders",
		requests, unanswered, revision, watches, events, s.faults, s.leaders)
}
