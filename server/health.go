package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sqlbrain/sqlbrain/server/backend"
)

// healthEndpoints serves /health, and /livez and /readyz with their sub-checks.
type healthEndpoints struct {
	node    node
	log     *slog.Logger
	timeout time.Duration // bound on a check

	success, failures prometheus.Counter
	result            *prometheus.GaugeVec
	results           *prometheus.CounterVec
}

func newHealthEndpoints(n node, cfg Config) *healthEndpoints {
	return &healthEndpoints{
		node:     n,
		log:      cfg.Logger,
		timeout:  cfg.RequestTimeout,
		success:  counter("etcd_server_health_success", "The total number of successful health checks"),
		failures: counter("etcd_server_health_failures", "The total number of failed health checks"),
		result: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "etcd_server_healthcheck",
			Help: "The result of each kind of healthcheck.",
		}, []string{"type", "name"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_server_healthchecks_total",
			Help: "The total number of each kind of healthcheck.",
		}, []string{"type", "name", "status"}),
	}
}

func (h *healthEndpoints) collectors() []prometheus.Collector {
	return []prometheus.Collector{h.success, h.failures, h.result, h.results}
}

func (h *healthEndpoints) register(mux *http.ServeMux) {
	mux.HandleFunc("/health", getOnly(h.health))
	serializable := healthCheck{"serializable_read", func(ctx context.Context) error { return h.read(ctx, false) }}
	h.registerChecks(mux, "livez", serializable)
	h.registerChecks(mux, "readyz",
		healthCheck{"data_corruption", func(context.Context) error { return h.corruption() }},
		serializable,
		healthCheck{"linearizable_read", func(ctx context.Context) error { return h.read(ctx, true) }},
		// Nodes are never learners here; the check exists for probes that ask for it.
		healthCheck{"non_learner", func(context.Context) error { return nil }},
		// These etcd does not have. They tell apart why reads fail, and find what no
		// read shows.
		healthCheck{"serving", func(context.Context) error { return h.node.Stopped() }},
		healthCheck{"leader", h.leader},
		healthCheck{"watch_feed", func(context.Context) error { return h.node.Fed() }},
		healthCheck{"database", h.database},
	)
}

// health answers with a JSON object. ?exclude=NOSPACE leaves an alarm out, and
// ?serializable=true asks about this node alone.
func (h *healthEndpoints) health(w http.ResponseWriter, r *http.Request) {
	var answer struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}
	answer.Health = "true"
	if answer.Reason = h.unhealthy(r); answer.Reason != "" {
		answer.Health = "false"
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if answer.Health != "true" {
		h.failures.Inc()
		h.log.Warn("health check failed", "path", r.URL.Path, "reason", answer.Reason)
		http.Error(w, string(body), http.StatusServiceUnavailable)
		return
	}
	h.success.Inc()
	writeBody(w, body)
}

// unhealthy returns the reason why the node is not healthy, or "".
func (h *healthEndpoints) unhealthy(r *http.Request) string {
	excluded := querySet(r, "exclude")
	for _, a := range h.node.Alarms() {
		switch name := pb.AlarmType(a.Type).String(); {
		case excluded[name]:
		case a.Type == backend.AlarmNoSpace, a.Type == backend.AlarmCorrupt:
			return "ALARM " + name
		default:
			return "ALARM UNKNOWN"
		}
	}
	linearizable := r.URL.Query().Get("serializable") != "true"
	if linearizable && h.node.Status().Serving != nil {
		return "RAFT NO LEADER"
	}
	if err := h.read(r.Context(), linearizable); err != nil {
		return "RANGE ERROR:" + err.Error()
	}
	return ""
}

// read reads one key, which need not exist. Its error is fit to be shown.
func (h *healthEndpoints) read(ctx context.Context, linearizable bool) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	_, err := h.node.Range(ctx, &backend.RangeRequest{
		KeyRange: backend.KeyRange{Key: []byte("health")},
		KeysOnly: true,
		Limit:    1,
	}, linearizable)
	if err = answer(ctx, h.log, "health", err); err != nil {
		return errors.New(rpctypes.ErrorDesc(err))
	}
	return nil
}

// leader waits a moment for a leader: a member is no less ready while the leader
// changes than another, and requests wait too.
func (h *healthEndpoints) leader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(h.timeout, leaderPatience))
	defer cancel()
	tick := time.NewTicker(leaderPatience / 50)
	defer tick.Stop()
	for h.node.Status().Leader == 0 {
		if h.node.Stopped() != nil {
			return errNoLeaderKnown
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errNoLeaderKnown
		}
	}
	return nil
}

// leaderPatience is about what it takes until another member leads.
const leaderPatience = 2 * time.Second

var errNoLeaderKnown = errors.New("no leader is known")

// database writes a row.
func (h *healthEndpoints) database(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	if err := answer(ctx, h.log, "health", h.node.Writable(ctx)); err != nil {
		return fmt.Errorf("a write failed: %s", rpctypes.ErrorDesc(err))
	}
	return nil
}

func (h *healthEndpoints) corruption() error {
	for _, a := range h.node.Alarms() {
		if a.Type == backend.AlarmCorrupt {
			return fmt.Errorf("alarm activated: %s", pb.AlarmType_CORRUPT)
		}
	}
	return nil
}

type healthCheck struct {
	name  string
	check func(context.Context) error
}

// registerChecks serves /kind, which runs all checks but those in ?exclude=, and
// /kind/name for each of them.
func (h *healthEndpoints) registerChecks(mux *http.ServeMux, kind string, checks ...healthCheck) {
	mux.HandleFunc("/"+kind, getOnly(func(w http.ResponseWriter, r *http.Request) {
		excluded := querySet(r, "exclude")
		var run []healthCheck
		for _, c := range checks {
			if !excluded[c.name] {
				run = append(run, c)
			}
		}
		h.runChecks(w, r, kind, run)
	}))
	for _, c := range checks {
		mux.HandleFunc("/"+kind+"/"+c.name, getOnly(func(w http.ResponseWriter, r *http.Request) {
			h.runChecks(w, r, kind, []healthCheck{c})
		}))
	}
}

// runChecks answers "ok", or 503 with what failed; with ?verbose all results are
// told in either case. The checks run at the same time: those of a database that does
// not answer take as long as a request may, each.
func (h *healthEndpoints) runChecks(w http.ResponseWriter, r *http.Request, kind string, checks []healthCheck) {
	results := make([]error, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() { results[i] = c.check(r.Context()) })
	}
	running.Wait()
	var report bytes.Buffer
	failed := false
	for i, c := range checks {
		if err := results[i]; err != nil {
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: %v\n", c.name, err)
			h.result.WithLabelValues(kind, c.name).Set(0)
			h.results.WithLabelValues(kind, c.name, "error").Inc()
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.name)
		h.result.WithLabelValues(kind, c.name).Set(1)
		h.results.WithLabelValues(kind, c.name, "success").Inc()
	}
	if failed {
		h.log.Warn("health check failed", "path", r.URL.Path, "reason", report.String())
		http.Error(w, report.String(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !r.URL.Query().Has("verbose") {
		report.Reset()
	}
	report.WriteString("ok\n")
	writeBody(w, report.Bytes())
}

func querySet(r *http.Request, name string) map[string]bool {
	set := make(map[string]bool)
	for _, v := range r.URL.Query()[name] {
		if v != "" {
			set[v] = true
		}
	}
	return set
}
