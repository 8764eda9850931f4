package durable

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

// TestRevoked: which request a revision is laid to that deleted the one key of lease 7.
func TestRevoked(t *testing.T) {
	deletion := model.EtcdOperation{Type: model.DeleteOperation, Delete: model.DeleteOptions{Key: "k"}}
	put := model.EtcdOperation{Type: model.PutOperation, Put: model.PutOptions{Key: "other"}}
	txn := func(then, otherwise []model.EtcdOperation) model.EtcdRequest {
		return model.EtcdRequest{Type: model.Txn,
			Txn: &model.TxnRequest{OperationsOnSuccess: then, OperationsOnFailure: otherwise}}
	}
	revoke := model.EtcdRequest{Type: model.LeaseRevoke, LeaseRevoke: &model.LeaseRevokeRequest{LeaseID: 7}}
	none := model.MaybeEtcdResponse{Error: "deadline exceeded"}
	at := func(revision int64) model.MaybeEtcdResponse {
		return model.MaybeEtcdResponse{EtcdResponse: model.EtcdResponse{Revision: revision,
			LeaseRevoke: &model.LeaseRevokeResponse{}}}
	}
	deleted := func(revision, n int64) model.MaybeEtcdResponse {
		return model.MaybeEtcdResponse{EtcdResponse: model.EtcdResponse{
			Revision: revision, Txn: &model.TxnResponse{Results: []model.EtcdOperationResult{{Deleted: n}}},
		}}
	}
	type call struct {
		request  model.EtcdRequest
		response model.MaybeEtcdResponse
	}
	alone, beside := []model.EtcdOperation{deletion}, []model.EtcdOperation{put, deletion}
	for name, tc := range map[string]struct {
		calls []call
		want  int64
	}{
		"nobody asked":                                   {nil, 0},
		"the revocation was answered":                    {[]call{{revoke, at(5)}, {txn(alone, nil), none}}, 7},
		"the delete was answered":                        {[]call{{revoke, none}, {txn(alone, nil), deleted(5, 1)}}, 0},
		"the delete found nothing":                       {[]call{{revoke, none}, {txn(alone, nil), deleted(5, 0)}}, 7},
		"only the revocation was asked":                  {[]call{{revoke, none}}, 7},
		"both unanswered":                                {[]call{{revoke, none}, {txn(alone, nil), none}}, 0},
		"an unanswered delete beside a put":              {[]call{{revoke, none}, {txn(beside, nil), none}}, 7},
		"an unanswered delete in the other branch":       {[]call{{revoke, none}, {txn([]model.EtcdOperation{put}, alone), none}}, 0},
		"the revocation was answered with another place": {[]call{{revoke, at(4)}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var ops []porcupine.Operation
			for _, c := range tc.calls {
				ops = append(ops, porcupine.Operation{Input: c.request, Output: c.response})
			}
			s := newSeen([]report.ClientReport{{KeyValue: ops}})
			if got := s.revoked(5, alone, []int64{7}); got != tc.want {
				t.Errorf("lease %d, want %d", got, tc.want)
			}
		})
	}
}
