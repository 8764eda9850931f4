package atwork

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/programs"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) {
	eventually.NoLeaks(harness.Main(enginetest.Main(m)))
}

// large clusters are watched for longer.
const large = 100

func TestClusterAtWork(t *testing.T) {
	programs.NeedsKubernetes(t)
	sz := sizeOf(t)
	var results []result
	for _, name := range storesWanted(t) {
		t.Run(name, func(t *testing.T) {
			s := stores[name](t)
			r := work(t, sz, name, s)
			results = append(results, r)
		})
	}
	if !t.Failed() && len(results) > 0 {
		tell(t, sz, results)
	}
}

// work takes a cluster through all steps and checks it.
func work(t *testing.T, sz size, name string, s store) result {
	t.Helper()
	r := result{Store: name, Description: s.description, Started: time.Now().UTC()}
	t.Logf("%s: %s", s.description, sz)
	p := startPlane(t, sz, s)
	for _, st := range steps {
		r.Steps = append(r.Steps, p.take(t, st))
		t.Log(r.Steps[len(r.Steps)-1])
		if st.peak {
			r.DiskBytes = s.size(t)
			r.Objects = p.compareWithStore(t)
			p.compareWatched(t)
			t.Logf("%d objects are the same in the API server and on every node of the store", r.Objects)
			if sz.nodes >= large {
				p.awaitConsistencyCheck(t)
			}
		}
	}
	require.NoError(t, allNodesReady(p))
	p.nothingLeft(t)
	p.compareWithStore(t)
	p.compareWatched(t)
	r.ConsistencyChecks = p.requireConsistent(t)

	m := metricsOf(t, p.api)
	r.API, r.Requests = m.apiLatencies(t), m.storeLatencies(t)
	r.Peak = take(t, p.programs).peak
	for _, program := range p.programs {
		require.DirExists(t, fmt.Sprintf("/proc/%d", program.pid), "%s has ended", program.role)
	}
	return r
}

// take does one step and measures it.
func (p *plane) take(t *testing.T, st step) stepResult {
	t.Helper()
	revision := p.revision(t)
	before := take(t, p.programs)
	p.starts.drain()
	profiled := p.profile(t, st)
	start := time.Now()

	ctx, cancel := context.WithTimeout(t.Context(), p.size.patience)
	defer cancel()
	require.NoError(t, st.do(ctx, p), "%s", st.name)
	p.await(t, st)

	r := stepResult{Name: st.name, Seconds: time.Since(start).Seconds()}
	after := take(t, p.programs)
	r.Revisions = p.revision(t) - revision
	r.CPU = map[string]float64{}
	ours := time.Duration(0)
	for role, spent := range after.cpu {
		r.CPU[role] = (spent - before.cpu[role]).Seconds()
		ours += spent - before.cpu[role]
	}
	r.Others = (after.machine - before.machine - ours).Seconds()
	r.Resident = after.resident
	took := p.starts.drain()
	slices.Sort(took)
	if n := len(took); n > 0 {
		r.PodsStarted, r.PodStartP50, r.PodStartP99 = n, took[n/2].Seconds(), took[n*99/100].Seconds()
	}
	profiled()
	return r
}

func (p *plane) revision(t *testing.T) int64 {
	t.Helper()
	r, err := p.store.client.Get(t.Context(), "/registry/none")
	require.NoError(t, err)
	return r.Header.Revision
}

// profile takes a CPU profile of the store's leader during a busy step; what it
// returns waits for its end.
func (p *plane) profile(t *testing.T, st step) (wait func()) {
	if os.Getenv(envProfile) != "1" || !st.busy || p.store.leader == nil {
		return func() {}
	}
	return fetchProfile(t, p.store.leader()+"/debug/pprof/profile?seconds=20", reportFile(t, st.name+".pprof"))
}
