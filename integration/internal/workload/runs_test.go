package workload

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// What a run wrote is compared with what a later one finds.
func TestWritesBetweenRunsAreFound(t *testing.T) {
	endpoint := startEtcd(t)
	cfg := small("create", endpoint)
	rep, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	objects := rep.model.sorted(cfg.Prefix)
	_, err = harness.ClientOf(t, endpoint).Delete(t.Context(), objects[len(objects)-1].key)
	require.NoError(t, err)
	for _, workload := range []string{"count", "list"} {
		cfg.Workload, cfg.After, cfg.PageSize = workload, rep, 400
		_, err = Run(t.Context(), cfg)
		require.ErrorIs(t, err, ErrVerification, workload)
	}
}

func TestIncompleteListsAreCompared(t *testing.T) {
	r, _, _, _ := testHistory()
	l := listed(r, 16)
	l.items, l.begun = l.items[:2], true
	r.verify.listing(l, r.model.sorted("/r/"))
	require.Zero(t, r.verify.failed.Load(), "%v", r.verify.failures)
	l.items = l.items[1:]
	r.verify.listing(l, r.model.sorted("/r/"))
	require.NotZero(t, r.verify.failed.Load(), "the first key is missing")
}

func TestEachPhaseReportsUsage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	r := testRunner()
	r.cfg.Workload, r.cfg.Prefix, r.cfg.Processes = "get", "/r", []int{os.Getpid()}
	require.NoError(t, r.cfg.check())
	p := r.begin("x", 0)
	for began := time.Now(); ; { // CPU time is told in steps of 10 ms
		for range 1 << 20 {
			hashOf(nil)
		}
		r.end(p)
		rep := p.report()
		if rep.Client.CPUSeconds > 0 {
			require.Len(t, rep.Server, 1)
			// Here the server is this process, read a moment earlier or later.
			require.Positive(t, rep.Client.RSSBytes)
			require.Positive(t, rep.Server[0].RSSBytes)
			require.InDelta(t, rep.Client.CPUSeconds, rep.Server[0].CPUSeconds, 1)
			break
		}
		require.Less(t, time.Since(began), eventually.Deadline)
	}
	r.cfg.Processes = []int{1 << 30}
	require.Error(t, r.cfg.check())
}
