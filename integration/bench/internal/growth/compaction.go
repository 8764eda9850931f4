package growth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

const compactionWait = 10 * time.Minute

// compaction makes garbage and has it removed. It is measured where no other history
// is: the pass would remove that as well. kine compacts by itself.
func (m *measurement) compaction(ctx context.Context) (err error) {
	if m.p.Versions > 1 || m.r.System.Product == system.Kine {
		return nil
	}
	keys := min(garbage, m.p.Keys)
	if _, err := m.load(ctx, keys, 1); err != nil {
		return err
	}
	c, err := system.Connect(m.r.Endpoint(0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	now, err := c.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, compactionWait)
	defer cancel()
	calls, err := m.databaseSeconds(ctx)
	if err != nil {
		return err
	}
	server, database, began := workload.UsageOf(m.r.Server(0)), workload.UsageOf(m.r.Database()), time.Now()
	if _, err := c.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	took := time.Since(began)
	serverCPU := workload.UsageOf(m.r.Server(0)).CPUSeconds - server.CPUSeconds
	databaseCPU := workload.UsageOf(m.r.Database()).CPUSeconds - database.CPUSeconds
	callsAfter, err := m.databaseSeconds(ctx)
	if err != nil {
		return err
	}
	m.p.Compaction = &Compaction{
		Garbage: keys, Seconds: took.Seconds(), ServerCPU: serverCPU, DatabaseCPU: databaseCPU,
		DatabaseSeconds: callsAfter - calls,
	}
	m.tell("compaction of %d versions %.2f s, CPU %.2f + %.2f s, calls of the database %.2f s", keys, took.Seconds(),
		m.p.Compaction.ServerCPU,
		m.p.Compaction.DatabaseCPU, m.p.Compaction.DatabaseSeconds)
	// Check the remaining data.
	_, err = m.run(ctx, "page", 1, func(c *workload.Config) { c.Total = 1 })
	return err
}

// databaseSeconds is how long sqlbrain's calls of its database took so far; 0 of
// others.
func (m *measurement) databaseSeconds(ctx context.Context) (float64, error) {
	if m.r.System.Product != system.Sqlbrain {
		return 0, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.r.Endpoint(0)+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	// A separate connection, closed after the request.
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return 0, err
	}
	const name = "sqlbrain_sql_duration_seconds"
	family := families[name]
	if family == nil {
		return 0, fmt.Errorf("the server has no metric %s", name)
	}
	var total float64
	for _, metric := range family.GetMetric() {
		total += metric.GetHistogram().GetSampleSum()
	}
	return total, nil
}
