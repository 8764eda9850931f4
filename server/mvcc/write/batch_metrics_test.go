package write

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
)

// Three writes that were queued an hour ago, of which two fit a commit.
func TestBatchesAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	l := lead(t, newStore(t), func(cfg *Config) { cfg.Metrics, cfg.Limits.BatchRows = NewMetrics(registry), 4 })
	queued := time.Now().Add(-time.Hour)
	var requests []*request
	for _, key := range []string{"a", "b", "c"} {
		requests = append(requests, &request{cmd: NewTxnCommand(put(key, "1")), as: auth.System, since: queued,
			done: make(chan result, 1)})
	}
	began := time.Now()
	for rest := requests; len(rest) > 0; {
		rest = l.p.runBatch(t.Context(), rest)
	}
	took := time.Since(began).Seconds()
	for _, r := range requests {
		require.NoError(t, (<-r.done).err)
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	measured := map[string]*dto.Histogram{}
	for _, f := range families {
		measured[f.GetName()] = f.Metric[0].GetHistogram()
	}

	changes := measured["sqlbrain_commit_changes"]
	require.EqualValues(t, 2, changes.GetSampleCount())
	require.EqualValues(t, 3, changes.GetSampleSum())
	require.EqualValues(t, 1, changes.Bucket[0].GetCumulativeCount(), "commits of one change")

	commit := measured["sqlbrain_commit_duration_seconds"]
	require.EqualValues(t, 2, commit.GetSampleCount())
	require.Positive(t, commit.GetSampleSum())
	require.LessOrEqual(t, commit.GetSampleSum(), took)

	wait, pipeline := measured["sqlbrain_request_queue_duration_seconds"],
		measured["sqlbrain_request_pipeline_duration_seconds"]
	require.EqualValues(t, 3, wait.GetSampleCount())
	require.EqualValues(t, 3, pipeline.GetSampleCount())
	require.GreaterOrEqual(t, wait.GetSampleSum(), 3*time.Hour.Seconds())
	// Each commit is in the whole time of its writes, and not in their wait. The third waits for the first commit too.
	require.GreaterOrEqual(t, pipeline.GetSampleSum()-wait.GetSampleSum(), commit.GetSampleSum())
}
