package robustness

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/robustness/internal/durable"
)

// TestFaultsAreSeen: a history that is right is not after one thing in it was
// changed. So what is read from the table does reach the validators.
func TestFaultsAreSeen(t *testing.T) {
	d := disturbance{name: "Undisturbed", do: func(*world) {}}
	w := startWorld(t, harness.SQLite, d)
	archive := durable.NewArchive(t, w.datastore)
	w.node = harness.StartNodeOn(t, w.through, "--watch-progress-notify-interval", "100ms")
	reports := drive(t, w, traffic.EtcdPut, traffic.KeyValueMedium, d)
	w.node.Stop()
	persisted := archive.Requests(t, reports)
	check := func() error {
		return validate.ValidateAndReturnVisualize(zap.NewNop(), validate.Config{}, reports, persisted, validateTime).Error()
	}
	require.NoError(t, check())

	// The watch from the beginning comes last, and saw everything.
	watch := &reports[len(reports)-1].Watch[0]
	whole := watch.Responses
	at := slices.IndexFunc(whole, func(r model.WatchResponse) bool { return len(r.Events) > 0 })
	require.GreaterOrEqual(t, at, 0)
	for name, change := range map[string]func() []model.WatchResponse{
		"an event is lost":       func() []model.WatchResponse { return slices.Delete(slices.Clone(whole), at, at+1) },
		"an event comes twice":   func() []model.WatchResponse { return slices.Insert(slices.Clone(whole), at, whole[at]) },
		"progress overtakes":     func() []model.WatchResponse { return overtaken(whole, at) },
		"an event is of nothing": func() []model.WatchResponse { return changedValue(whole, at) },
	} {
		watch.Responses = change()
		require.Error(t, check(), name)
	}
	watch.Responses = whole

	all := persisted
	last := slices.IndexFunc(all, func(r model.EtcdRequest) bool { return r.Type == model.Txn })
	persisted = slices.Delete(slices.Clone(all), last, last+1)
	require.Error(t, check(), "a revision is lost")
	persisted = all

	read := someRead(t, reports)
	told := read.response()
	read.set(func(r *model.MaybeEtcdResponse) { r.Revision -= 50 })
	require.Error(t, check(), "an answer that was old when it was asked for")
	read.set(func(r *model.MaybeEtcdResponse) { *r = told })
	require.NoError(t, check())
}

func overtaken(whole []model.WatchResponse, at int) []model.WatchResponse {
	progress := model.WatchResponse{IsProgressNotify: true, Revision: whole[at].Events[0].Revision, Time: whole[at].Time}
	return slices.Insert(slices.Clone(whole), at, progress)
}

func changedValue(whole []model.WatchResponse, at int) []model.WatchResponse {
	changed := slices.Clone(whole)
	changed[at].Events = slices.Clone(changed[at].Events)
	changed[at].Events[0].Value = model.ToValueOrHash("never written")
	return changed
}

// answer is one answer in the reports.
type answer struct {
	report *report.ClientReport
	index  int
}

func (a answer) response() model.MaybeEtcdResponse {
	return a.report.KeyValue[a.index].Output.(model.MaybeEtcdResponse)
}

func (a answer) set(change func(*model.MaybeEtcdResponse)) {
	r := a.response()
	change(&r)
	a.report.KeyValue[a.index].Output = r
}

// someRead returns a linearizable read that came long after the start.
func someRead(t *testing.T, reports []report.ClientReport) answer {
	t.Helper()
	for i := range reports {
		for j, op := range reports[i].KeyValue {
			request, response := op.Input.(model.EtcdRequest), op.Output.(model.MaybeEtcdResponse)
			if request.Type == model.Range && request.Range.Revision == 0 && response.Error == "" && response.Revision > 100 {
				return answer{&reports[i], j}
			}
		}
	}
	t.Fatal("no client read anything")
	return answer{}
}
