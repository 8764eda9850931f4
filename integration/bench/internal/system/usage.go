package system

import (
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

// Configure makes cfg a run on the system.
func (r *Running) Configure(cfg *workload.Config) {
	cfg.Endpoints, cfg.Processes = []string{r.endpoint()}, r.Processes()
	cfg.NoVersions = r.System.Product == Kine
	cfg.RequestTimeout, cfg.RetryFor = 20*time.Second, 30*time.Second
}

// Usage is microseconds of CPU for each operation, and bytes of memory at the end.
type Usage struct {
	ClientCPU, ServerCPU, DatabaseCPU float64
	ServerRSS, DatabaseRSS            int64
}

// UsageOf returns what a phase used.
func (r *Running) UsageOf(p *workload.PhaseReport) (u Usage) {
	var n int64
	for _, o := range p.Ops {
		n += o.Succeeded
	}
	each := func(u workload.Usage) float64 { return u.CPUSeconds / float64(max(n, 1)) * 1e6 }
	if p.Client != nil {
		u.ClientCPU = each(*p.Client)
	}
	for _, s := range p.Server {
		if s.ID == r.Database() {
			u.DatabaseCPU, u.DatabaseRSS = each(s), s.RSSBytes
		} else {
			u.ServerCPU, u.ServerRSS = each(s), s.RSSBytes
		}
	}
	return u
}
