package durable

import (
	"slices"

	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

// seen is what the clients know of requests that the table does not distinguish.
type seen struct {
	revokes map[int64][]model.MaybeEtcdResponse  // by lease
	deletes map[string][]model.MaybeEtcdResponse // by key
	failed  []int64                              // revisions of compactions without an answer
}

func newSeen(reports []report.ClientReport) *seen {
	s := &seen{revokes: map[int64][]model.MaybeEtcdResponse{}, deletes: map[string][]model.MaybeEtcdResponse{}}
	for _, r := range reports {
		for _, op := range r.KeyValue {
			request, response := op.Input.(model.EtcdRequest), op.Output.(model.MaybeEtcdResponse)
			switch request.Type {
			case model.LeaseRevoke:
				id := request.LeaseRevoke.LeaseID
				s.revokes[id] = append(s.revokes[id], response)
			case model.Txn:
				for _, branch := range [][]model.EtcdOperation{request.Txn.OperationsOnSuccess, request.Txn.OperationsOnFailure} {
					s.noteDeletes(branch, response)
				}
			case model.Compact:
				if response.Error != "" {
					s.failed = append(s.failed, request.Compact.Revision)
				}
			}
		}
	}
	return s
}

// noteDeletes notes the keys that a branch of a transaction deletes, if it does nothing
// else to keys: one that puts as well makes other revisions than a revocation.
func (s *seen) noteDeletes(branch []model.EtcdOperation, response model.MaybeEtcdResponse) {
	if slices.ContainsFunc(branch, func(o model.EtcdOperation) bool { return o.Type == model.PutOperation }) {
		return
	}
	for _, o := range branch {
		if o.Type == model.DeleteOperation {
			s.deletes[o.Delete.Key] = append(s.deletes[o.Delete.Key], response)
		}
	}
}

// revoked returns the lease whose revocation made a revision, 0 if it was
// something else. A revocation deletes all keys of a lease and nothing else, but a
// delete may do the same. Then the revision that a client received decides. If no
// client received it, an unanswered request for the revocation decides.
func (s *seen) revoked(revision int64, ops []model.EtcdOperation, leases []int64) int64 {
	if len(leases) != len(ops) || leases[0] == 0 ||
		slices.ContainsFunc(leases, func(l int64) bool { return l != leases[0] }) {
		return 0
	}
	lease := leases[0]
	told := func(r model.MaybeEtcdResponse) bool { return r.Error == "" && r.Revision == revision }
	unanswered := func(r model.MaybeEtcdResponse) bool { return r.Error != "" }
	deletes := s.deletes[ops[0].Delete.Key]
	switch {
	case slices.ContainsFunc(deletes, func(r model.MaybeEtcdResponse) bool { return told(r) && deleted(r) }):
		return 0
	case slices.ContainsFunc(s.revokes[lease], told):
		return lease
	case slices.ContainsFunc(deletes, unanswered):
		return 0
	case slices.ContainsFunc(s.revokes[lease], unanswered):
		return lease
	}
	return 0 // no client asked for it: linearization will fail
}

// deleted reports whether an answered transaction deleted anything. If not, its
// revision belongs to another request.
func deleted(r model.MaybeEtcdResponse) bool {
	return r.Txn != nil && slices.ContainsFunc(r.Txn.Results,
		func(o model.EtcdOperationResult) bool { return o.Deleted > 0 })
}

// compactions returns the compactions that may have taken effect although the
// client got no answer: those the mark has reached. The validators drop the
// others, and leave open when these did, as they come last.
func (s *seen) compactions(mark int64) (requests []model.EtcdRequest) {
	for _, revision := range s.failed {
		if revision <= mark {
			requests = append(requests, model.EtcdRequest{Type: model.Compact,
				Compact: &model.CompactRequest{Revision: revision}})
		}
	}
	return requests
}
