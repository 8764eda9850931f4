package robustness

import (
	"math"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestJudgesFindViolations: the judges accept a correct history, and reject it
// after each single change.
func TestJudgesFindViolations(t *testing.T) {
	s := play(t, harness.Seed(), plan{}) // short: what is wrong takes longer to judge
	require.NoError(t, judge(s).Error())
	for name, tamper := range map[string]func(*testing.T, *seen){
		"an event is lost":           func(t *testing.T, s *seen) { changeWatch(t, s, lose) },
		"an event comes twice":       func(t *testing.T, s *seen) { changeWatch(t, s, repeat) },
		"two answers in wrong order": func(t *testing.T, s *seen) { changeWatch(t, s, swapResponses) },
		"a revision is split":        func(t *testing.T, s *seen) { changeWatch(t, s, split) },
		"progress overtakes":         func(t *testing.T, s *seen) { changeWatch(t, s, overtake) },
		"an event is of nothing":     func(t *testing.T, s *seen) { changeWatch(t, s, invent) },
		"a previous value is wrong":  func(t *testing.T, s *seen) { changeWatch(t, s, wrongPrevious) },
		"a read is stale":            staleRead,
		"two reads change places":    swapReads,
		"a write is acknowledged, and lost": func(t *testing.T, s *seen) {
			at := firstWrite(t, s.persisted)
			s.persisted = slices.Delete(slices.Clone(s.persisted), at, at+1)
		},
		"a write is done twice": func(t *testing.T, s *seen) {
			at := firstWrite(t, s.persisted)
			s.persisted = slices.Insert(slices.Clone(s.persisted), at, s.persisted[at])
		},
		"a write is from nowhere": func(t *testing.T, s *seen) {
			r, i := find(t, s.reports, func(q model.EtcdRequest, a model.MaybeEtcdResponse) bool {
				// A delete may have deleted nothing, and then its loss has no effect.
				return q.Type == model.Txn && a.Error == "" && !a.Txn.Failure && a.Revision > 20 &&
					len(q.Txn.OperationsOnSuccess) > 0 && q.Txn.OperationsOnSuccess[0].Type == model.PutOperation
			})
			s.reports[r].KeyValue = slices.Delete(slices.Clone(s.reports[r].KeyValue), i, i+1)
		},
		"a compare fails that holds": func(t *testing.T, s *seen) {
			changeAnswer(t, s, func(q model.EtcdRequest, a model.MaybeEtcdResponse) bool {
				return q.Type == model.Txn && len(q.Txn.Conditions) > 0 && a.Error == "" && !a.Txn.Failure
			}, func(a *model.MaybeEtcdResponse) {
				failed := *a.Txn
				failed.Failure = true
				a.Txn = &failed
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := s
			changed.reports = slices.Clone(s.reports)
			tamper(t, &changed)
			require.Error(t, judge(changed).Error())
		})
	}
	require.NoError(t, judge(s).Error(), "the history itself was changed")

	require.NoError(t, realTime(s.reports))
	staleRead(t, &s)
	require.ErrorContains(t, realTime(s.reports), "is older than what was known when it began")
}

// changeWatch changes what a watch saw that got two answers in a row with previous
// values.
func changeWatch(t *testing.T, s *seen, change func(answers []model.WatchResponse, at int) []model.WatchResponse) {
	t.Helper()
	withEvents := func(r model.WatchResponse) bool {
		return len(r.Events) > 0 && r.Events[0].PrevValue != nil
	}
	for i, r := range s.reports {
		for j, w := range r.Watch {
			at := slices.IndexFunc(w.Responses, withEvents)
			for at >= 0 && at+1 < len(w.Responses) && !(withEvents(w.Responses[at]) && withEvents(w.Responses[at+1])) {
				at++
			}
			if at < 0 || at+1 == len(w.Responses) {
				continue
			}
			watches := slices.Clone(r.Watch)
			watches[j].Responses = change(slices.Clone(w.Responses), at)
			s.reports[i].Watch = watches
			return
		}
	}
	t.Fatal("no such watch")
}

func lose(answers []model.WatchResponse, at int) []model.WatchResponse {
	return slices.Delete(answers, at, at+1)
}

func repeat(answers []model.WatchResponse, at int) []model.WatchResponse {
	return slices.Insert(answers, at, answers[at])
}

func swapResponses(answers []model.WatchResponse, at int) []model.WatchResponse {
	answers[at], answers[at+1] = answers[at+1], answers[at]
	return answers
}

// split lets the last event of an answer come once more, after it.
func split(answers []model.WatchResponse, at int) []model.WatchResponse {
	second := answers[at]
	second.Events = second.Events[len(second.Events)-1:]
	return slices.Insert(answers, at+1, second)
}

func overtake(answers []model.WatchResponse, at int) []model.WatchResponse {
	progress := model.WatchResponse{IsProgressNotify: true, Revision: answers[at].Events[0].Revision,
		Time: answers[at].Time}
	return slices.Insert(answers, at, progress)
}

func invent(answers []model.WatchResponse, at int) []model.WatchResponse {
	return changeEvent(answers, at, func(e *model.WatchEvent) { e.Value = model.ToValueOrHash("never written") })
}

func wrongPrevious(answers []model.WatchResponse, at int) []model.WatchResponse {
	return changeEvent(answers, at, func(e *model.WatchEvent) {
		previous := *e.PrevValue
		previous.Version++
		e.PrevValue = &previous
	})
}

func changeEvent(answers []model.WatchResponse, at int, change func(*model.WatchEvent)) []model.WatchResponse {
	answers[at].Events = slices.Clone(answers[at].Events)
	change(&answers[at].Events[0])
	return answers
}

// later is more revisions than there are clients: of so many, one was
// acknowledged before the read began.
const later = 3*clientsOfNode + clientsOfAll + 1

// staleRead answers a read with what the same read was answered with long before.
func staleRead(t *testing.T, s *seen) {
	t.Helper()
	isRead := func(q model.EtcdRequest, a model.MaybeEtcdResponse) bool {
		return q.Type == model.Range && q.Range.Revision == 0 && q.Range.End != "" && q.Range.Limit == 0 &&
			!q.Range.KeysOnly &&
			a.Error == "" && len(a.Range.KVs) > 0
	}
	r, i := earliest(t, s.reports, isRead)
	old := s.reports[r].KeyValue[i]
	changeLater(t, s, old, isRead)
}

// changeLater gives old's answer to a later read.
func changeLater(t *testing.T, s *seen, old porcupine.Operation,
	isRead func(model.EtcdRequest, model.MaybeEtcdResponse) bool) {
	t.Helper()
	before := old.Output.(model.MaybeEtcdResponse)
	for i, r := range s.reports {
		for j, op := range r.KeyValue {
			a := op.Output.(model.MaybeEtcdResponse)
			if op.Call > old.Return && isRead(op.Input.(model.EtcdRequest), a) && a.Revision > before.Revision+later {
				ops := slices.Clone(r.KeyValue)
				ops[j].Output = before
				s.reports[i].KeyValue = ops
				return
			}
		}
	}
	t.Fatal("no later read")
}

// swapReads swaps the answers of two reads, one of which ended before the other
// began.
func swapReads(t *testing.T, s *seen) {
	t.Helper()
	isGet := func(q model.EtcdRequest, a model.MaybeEtcdResponse) bool {
		return q.Type == model.Range && q.Range.Revision == 0 && q.Range.End == "" && a.Error == "" && a.Revision > 5
	}
	r, i := earliest(t, s.reports, isGet)
	first := s.reports[r].KeyValue[i]
	for j, other := range s.reports {
		k := slices.IndexFunc(other.KeyValue, func(op porcupine.Operation) bool {
			a := op.Output.(model.MaybeEtcdResponse)
			return op.Call > first.Return && isGet(op.Input.(model.EtcdRequest), a) &&
				a.Revision > first.Output.(model.MaybeEtcdResponse).Revision+later
		})
		if k < 0 || j == r {
			continue
		}
		one, two := slices.Clone(s.reports[r].KeyValue), slices.Clone(other.KeyValue)
		one[i].Output, two[k].Output = two[k].Output, one[i].Output
		s.reports[r].KeyValue, s.reports[j].KeyValue = one, two
		return
	}
	t.Fatal("no two such reads")
}

// firstWrite returns where the first request with a put is.
func firstWrite(t *testing.T, persisted []model.EtcdRequest) int {
	t.Helper()
	at := slices.IndexFunc(persisted, func(r model.EtcdRequest) bool {
		return r.Type == model.Txn && len(r.Txn.Conditions) == 0 && r.Txn.OperationsOnSuccess[0].Type == model.PutOperation
	})
	require.GreaterOrEqual(t, at, 0)
	return at
}

// find returns a request in the reports.
func find(t *testing.T, reports []report.ClientReport,
	is func(model.EtcdRequest, model.MaybeEtcdResponse) bool) (int, int) {
	t.Helper()
	for i, r := range reports {
		for j, op := range r.KeyValue {
			if is(op.Input.(model.EtcdRequest), op.Output.(model.MaybeEtcdResponse)) {
				return i, j
			}
		}
	}
	t.Fatal("no such request")
	return 0, 0
}

// earliest returns the request that was answered first: of all, it has most others after it.
func earliest(t *testing.T, reports []report.ClientReport,
	is func(model.EtcdRequest, model.MaybeEtcdResponse) bool) (client, at int) {
	t.Helper()
	first := int64(math.MaxInt64)
	for i, r := range reports {
		for j, op := range r.KeyValue {
			if op.Return < first && is(op.Input.(model.EtcdRequest), op.Output.(model.MaybeEtcdResponse)) {
				client, at, first = i, j, op.Return
			}
		}
	}
	require.Less(t, first, int64(math.MaxInt64), "there is no such request")
	return client, at
}

func changeAnswer(t *testing.T, s *seen, is func(model.EtcdRequest, model.MaybeEtcdResponse) bool,
	change func(*model.MaybeEtcdResponse)) {
	t.Helper()
	i, j := find(t, s.reports, is)
	ops := slices.Clone(s.reports[i].KeyValue)
	a := ops[j].Output.(model.MaybeEtcdResponse)
	change(&a)
	ops[j].Output = a
	s.reports[i].KeyValue = ops
}
