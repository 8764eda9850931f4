package bench

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
	endpoint := startEtcd(t)
	cfg := small("create", endpoint)
	cfg.Prefix, cfg.Keep = "/kept", true
	_, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	cfg.Adopt = true
	for _, workload := range []string{"put", "get", "count", "list", "list-all", "mixed", "watch-latency", "create", "update", "delete"} {
		cfg.Workload = workload
		rep, err := Run(t.Context(), cfg)
		require.NoError(t, err, workload)
		require.False(t, slices.ContainsFunc(rep.Phases, func(p PhaseReport) bool { return p.Name == "load" }), workload)
		require.NotZero(t, rep.Verification.Answers, workload)
	}
}

func TestOnlyObjectsOfARunAreAdopted(t *testing.T) {
	endpoint := startEtcd(t)
	cfg := small("create", endpoint)
	cfg.Prefix, cfg.Keep = "/kept", true
	_, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	cfg.Workload, cfg.Adopt = "get", true
	for name, spoil := range map[string]func(*Config){
		"seed":  func(c *Config) { c.Seed = 2 },
		"size":  func(c *Config) { c.ValueSize = 64 },
		"empty": func(c *Config) { c.Prefix = "/nothing" },
	} {
		bad := cfg
		spoil(&bad)
		_, err := Run(t.Context(), bad)
		require.ErrorIs(t, err, errStrangeObjects, name)
	}
	_, err = connection(t, endpoint).Put(t.Context(), "/kept/pods/ns-000/mine", "k8s")
	require.NoError(t, err)
	_, err = Run(t.Context(), cfg)
	require.ErrorIs(t, err, errStrangeObjects)
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
	var err error
	r.processes, err = findProcesses([]int{os.Getpid()})
	require.NoError(t, err)
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
		require.Less(t, time.Since(began), eventually.Patience)
	}
	_, err = findProcesses([]int{1 << 30})
	require.Error(t, err)
}
