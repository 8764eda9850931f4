package robustness

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

// resolve determines the outcome of each unanswered request from the log: the
// revision it made. A request that made none is dropped. The judges would reach the
// same result by trying every place in the order for each of them, but that takes
// too long when failovers leave dozens.
//
// Puts are recognised by their values. Of requests that only delete, the log has
// no more than the effect, and the earliest request that fits is taken: as no
// end is known of either, it can stand wherever a later one can.
func resolve(reports []report.ClientReport, persisted []model.EtcdRequest) []report.ClientReport {
	l := readLog(persisted)
	l.claimAnswered(reports)
	revisions := l.claimUnanswered(reports)
	resolved := slices.Clone(reports)
	for i, r := range resolved {
		var ops []porcupine.Operation
		for j, op := range r.KeyValue {
			if !open(op) {
				ops = append(ops, op)
				continue
			}
			if revision, ok := revisions[place{i, j}]; ok {
				op.Output = model.MaybeEtcdResponse{Persisted: true, PersistedRevision: revision}
				op.Return = math.MaxInt64
				ops = append(ops, op)
			}
		}
		resolved[i].KeyValue = ops
	}
	return resolved
}

// place is where a request is in the reports.
type place struct{ report, index int }

// open reports whether a request has no answer and may have had an effect that
// the log shows. Of compactions, the judges find out by themselves.
func open(op porcupine.Operation) bool {
	request := op.Input.(model.EtcdRequest)
	return op.Output.(model.MaybeEtcdResponse).Error != "" && !request.IsRead() && request.Type != model.Compact
}

// effects is what the log holds.
type effects struct {
	puts    map[model.PutOptions]int64 // key and value, to the revision
	deletes []deletion                 // revisions without a put
}

type deletion struct {
	revision int64
	request  model.EtcdRequest
	claimed  bool
}

func readLog(persisted []model.EtcdRequest) *effects {
	var all []porcupine.Operation
	for _, r := range persisted {
		all = append(all, porcupine.Operation{Input: r})
	}
	state := model.DeterministicModel(model.ModelKeys(all)).Init().(model.EtcdState)
	l := &effects{puts: map[model.PutOptions]int64{}}
	for _, r := range persisted {
		before := state.Revision
		var answer model.MaybeEtcdResponse
		state, answer = state.Step(r)
		if state.Revision == before {
			continue
		}
		puts := false
		for _, put := range putsDone(r, answer) {
			l.puts[put] = state.Revision
			puts = true
		}
		if !puts {
			l.deletes = append(l.deletes, deletion{revision: state.Revision, request: r})
		}
	}
	return l
}

// written is what a put is recognised by.
func written(p model.PutOptions) model.PutOptions {
	return model.PutOptions{Key: p.Key, Value: p.Value}
}

// claimAnswered removes the deletions and puts whose client received an answer: Kubernetes repeats a put, with its
// value, that was not answered.
func (l *effects) claimAnswered(reports []report.ClientReport) {
	at := map[int64]*deletion{}
	for i := range l.deletes {
		at[l.deletes[i].revision] = &l.deletes[i]
	}
	for _, r := range reports {
		for _, op := range r.KeyValue {
			request, response := op.Input.(model.EtcdRequest), op.Output.(model.MaybeEtcdResponse)
			if response.Error != "" {
				continue
			}
			for _, put := range putsDone(request, response) {
				if l.puts[put] == response.Revision {
					delete(l.puts, put)
				}
			}
			d := at[response.Revision]
			if d == nil || !same(d.request, request) {
				continue
			}
			// A delete that deleted nothing returns the revision of another request. So
			// does a revocation, but a lease is revoked once.
			if request.Type == model.LeaseRevoke || response.Txn.Results[0].Deleted > 0 {
				d.claimed = true
			}
		}
	}
}

// claimUnanswered returns the revisions of unanswered requests that had one. Of attempts to put the same, the first one
// gets it: a later one may have begun after the revision was known.
func (l *effects) claimUnanswered(reports []report.ClientReport) map[place]int64 {
	type unanswered struct {
		place
		op porcupine.Operation
	}
	var all, rest []unanswered
	for i, r := range reports {
		for j, op := range r.KeyValue {
			if open(op) {
				all = append(all, unanswered{place{i, j}, op})
			}
		}
	}
	slices.SortFunc(all, func(a, b unanswered) int { return cmp.Compare(a.op.Call, b.op.Call) })
	revisions := map[place]int64{}
	for _, u := range all {
		if revision, ok := l.claimPut(u.op.Input.(model.EtcdRequest)); ok {
			revisions[u.place] = revision
			continue
		}
		rest = append(rest, u)
	}
	for _, d := range l.deletes {
		if d.claimed {
			continue
		}
		i := slices.IndexFunc(rest, func(u unanswered) bool { return same(u.op.Input.(model.EtcdRequest), d.request) })
		if i >= 0 {
			revisions[rest[i].place] = d.revision
			rest = slices.Delete(rest, i, i+1)
		}
	}
	return revisions
}

func (l *effects) claimPut(request model.EtcdRequest) (int64, bool) {
	for _, put := range putsOf(request) {
		revision, ok := l.puts[put]
		delete(l.puts, put)
		return revision, ok
	}
	return 0, false
}

// putsOf returns the puts of a request's branches.
func putsOf(request model.EtcdRequest) []model.PutOptions {
	if request.Type != model.Txn {
		return nil
	}
	return putsAmong(request.Txn.AllOperations())
}

// putsDone returns the puts of the branch that an answered request took.
func putsDone(request model.EtcdRequest, answer model.MaybeEtcdResponse) []model.PutOptions {
	switch {
	case request.Type != model.Txn:
		return nil
	case answer.Txn.Failure:
		return putsAmong(request.Txn.OperationsOnFailure)
	}
	return putsAmong(request.Txn.OperationsOnSuccess)
}

func putsAmong(ops []model.EtcdOperation) (puts []model.PutOptions) {
	for _, op := range ops {
		if op.Type == model.PutOperation {
			puts = append(puts, written(op.Put))
		}
	}
	return puts
}

// same reports whether two requests delete the same.
func same(a, b model.EtcdRequest) bool {
	switch {
	case a.Type != b.Type:
		return false
	case a.Type == model.LeaseRevoke:
		return a.LeaseRevoke.LeaseID == b.LeaseRevoke.LeaseID
	case a.Type == model.Txn:
		return slices.EqualFunc(a.Txn.OperationsOnSuccess, b.Txn.OperationsOnSuccess, func(a, b model.EtcdOperation) bool {
			return a.Type == b.Type && a.Delete == b.Delete
		})
	}
	return false
}

// TestRepeatedPutIsResolvedOnce: the log has one revision for all attempts. It is the answered one's, or else the first
// one's.
func TestRepeatedPutIsResolvedOnce(t *testing.T) {
	put := model.EtcdRequest{Type: model.Txn, Txn: &model.TxnRequest{OperationsOnSuccess: []model.EtcdOperation{
		{Type: model.PutOperation, Put: model.PutOptions{Key: "k", Value: model.ToValueOrHash("1")}}}}}
	attempt := func(call int64, r model.MaybeEtcdResponse) porcupine.Operation {
		return porcupine.Operation{Input: put, Call: call, Output: r}
	}
	unanswered := model.MaybeEtcdResponse{Error: "unavailable"}
	first, second := attempt(1, unanswered), attempt(2, unanswered)
	answer := func(failure bool) model.MaybeEtcdResponse {
		return model.MaybeEtcdResponse{EtcdResponse: model.EtcdResponse{Revision: 2,
			Txn: &model.TxnResponse{Failure: failure, Results: make([]model.EtcdOperationResult, 1)}}}
	}
	for _, c := range []struct {
		name     string
		attempts []porcupine.Operation
		kept     []int64 // the calls of attempts
		made     int64   // the call of the unanswered one that made the revision
	}{
		{"one", []porcupine.Operation{first}, []int64{1}, 1},
		{"none answered", []porcupine.Operation{second, first}, []int64{1}, 1},
		{"the second answered", []porcupine.Operation{first, attempt(2, answer(false))}, []int64{2}, 0},
		{"the second found the first", []porcupine.Operation{first, attempt(2, answer(true))}, []int64{1, 2}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var kept []int64
			for _, op := range resolve([]report.ClientReport{{KeyValue: c.attempts}}, []model.EtcdRequest{put})[0].KeyValue {
				kept = append(kept, op.Call)
				require.Equal(t, op.Call == c.made, op.Output.(model.MaybeEtcdResponse).Persisted)
			}
			require.Equal(t, c.kept, kept)
		})
	}
}
