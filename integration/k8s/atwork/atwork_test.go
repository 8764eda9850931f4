package atwork

import (
	"context"
	"fmt"
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
			results = append(results, work(t, sz, s))
		})
	}
	if !t.Failed() && len(results) > 0 {
		t.Log("\n" + table(sz, results))
	}
}

// work takes a cluster through all steps and checks it.
func work(t *testing.T, sz size, s store) result {
	t.Helper()
	r := result{description: s.description}
	t.Logf("%s: %s", s.description, sz)
	p := startPlane(t, sz, s)
	for _, st := range steps {
		r.steps = append(r.steps, p.take(t, st))
		t.Log(r.steps[len(r.steps)-1])
		if st.peak {
			r.objects = p.compareWithStore(t)
			p.compareWatched(t)
			t.Logf("%d objects are the same in the API server and on every node of the store", r.objects)
			if sz.nodes >= large {
				p.awaitConsistencyCheck(t)
			}
		}
	}
	require.NoError(t, allNodesReady(p))
	p.nothingLeft(t)
	p.compareWithStore(t)
	p.compareWatched(t)
	r.checks = p.requireConsistent(t)

	r.peak = take(t, p.programs).peak
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
	start := time.Now()

	ctx, cancel := context.WithTimeout(t.Context(), p.size.patience)
	defer cancel()
	require.NoError(t, st.do(ctx, p), "%s", st.name)
	p.await(t, st)

	r := stepResult{name: st.name, took: time.Since(start), cpu: map[string]time.Duration{}}
	after := take(t, p.programs)
	r.revisions = p.revision(t) - revision
	r.others = after.machine - before.machine
	for role, spent := range after.cpu {
		r.cpu[role] = spent - before.cpu[role]
		r.others -= r.cpu[role]
	}
	return r
}

func (p *plane) revision(t *testing.T) int64 {
	t.Helper()
	r, err := p.store.client.Get(t.Context(), "/registry/none")
	require.NoError(t, err)
	return r.Header.Revision
}
