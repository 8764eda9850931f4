package workload

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestRunContinuesWithObjectsOfAnEarlierRun(t *testing.T) {
	cfg := small("create", startEtcd(t))
	rep, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	for _, workload := range []string{
		"get", "count", "list", "list-all", "mixed", "watch-latency", "keepalive", "create", "update", "delete",
	} {
		cfg.Workload, cfg.After = workload, rep
		if workload == "delete" {
			cfg.Total = 10_000 // all
		}
		rep, err = Run(t.Context(), cfg)
		require.NoError(t, err, workload)
		loads := slices.ContainsFunc(rep.Phases, func(p PhaseReport) bool { return p.Name == "load" })
		require.Equal(t, workload == "keepalive", loads, workload)
		require.NotZero(t, rep.Verification.Answers, workload)
		require.Zero(t, rep.Verification.Lost)
	}
	cfg.Workload = "get"
	_, err = Run(t.Context(), cfg)
	require.ErrorIs(t, err, ErrNothingSucceeded, "all objects are deleted")
}

// What a run wrote is compared with what a later one finds.
func TestWritesBetweenRunsAreFound(t *testing.T) {
	endpoint := startEtcd(t)
	cfg := small("create", endpoint)
	rep, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	objects := rep.model.sorted(cfg.Prefix)
	_, err = connection(t, endpoint).Delete(t.Context(), objects[len(objects)-1].key)
	require.NoError(t, err)
	for _, workload := range []string{"count", "list"} {
		cfg.Workload, cfg.After, cfg.PageSize = workload, rep, 400
		_, err = Run(t.Context(), cfg)
		require.ErrorIs(t, err, ErrVerification, workload)
	}
}

func TestEachWatcherSeesItsObject(t *testing.T) {
	cfg := small("watch-latency", startEtcd(t))
	cfg.Watchers, cfg.WatchEach = cfg.Keys, true
	rep, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	var updates, events int64
	for _, p := range rep.Phases {
		for _, o := range p.Ops {
			switch o.Name {
			case "update":
				updates = o.Succeeded
			case "event":
				events = o.Succeeded
			}
		}
	}
	require.NotZero(t, updates)
	require.Equal(t, updates, events)
	require.Equal(t, updates, rep.Verification.Events)
}

func TestVersionsAreComparedUnlessTheServerHasNone(t *testing.T) {
	endpoint := startEtcd(t)
	cfg := small("update", endpoint)
	cfg.NoVersions = true
	rep, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Zero(t, rep.Verification.Failed)
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
