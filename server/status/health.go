package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// HealthConfig configures Health. All fields but Members are required.
type HealthConfig struct {
	Node    Node
	Reader  Reader
	Alarms  Alarms
	Probe   Probe
	Log     *slog.Logger
	Timeout time.Duration // bound on a check
	Answer  Answer
	// Members returns why members do not understand each other; nil: there is one only.
	Members func() error
}

// Health serves /health, and /livez and /readyz with their sub-checks.
type Health struct {
	cfg HealthConfig

	success, failures prometheus.Counter
	result            *prometheus.GaugeVec
	results           *prometheus.CounterVec
}

// Answer returns the error that a client may see for an error of the node, and logs what the client may not see.
type Answer func(ctx context.Context, log *slog.Logger, method string, err error) error

// NewHealth returns the checks of a node. r gets their metrics.
func NewHealth(cfg HealthConfig, r prometheus.Registerer) *Health {
	metrics := promauto.With(r)
	return &Health{
		cfg:      cfg,
		success:  counter(r, "etcd_server_health_success", "The total number of successful health checks"),
		failures: counter(r, "etcd_server_health_failures", "The total number of failed health checks"),
		result: metrics.NewGaugeVec(prometheus.GaugeOpts{
			Name: "etcd_server_healthcheck",
			Help: "The result of each kind of healthcheck.",
		}, []string{"type", "name"}),
		results: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_server_healthchecks_total",
			Help: "The total number of each kind of healthcheck.",
		}, []string{"type", "name", "status"}),
	}
}

func (h *Health) register(mux *http.ServeMux) {
	mux.HandleFunc("/health", getOnly(h.health))
	h.registerChecks(mux, "livez", h.serializable())
	h.registerChecks(mux, readiness, h.ready()...)
}

const (
	// readiness is the kind of the checks that say whether the node should get requests.
	readiness        = "readyz"
	serializableRead = "serializable_read"
	linearizableRead = "linearizable_read"
)

func (h *Health) serializable() healthCheck {
	return healthCheck{serializableRead, func(ctx context.Context) error { return h.read(ctx, false) }}
}

func (h *Health) ready() []healthCheck {
	return []healthCheck{
		{"data_corruption", func(context.Context) error { return h.corruption() }},
		h.serializable(),
		{linearizableRead, func(ctx context.Context) error { return h.read(ctx, true) }},
		// Nodes are never learners here; the check exists for probes that ask for it.
		{"non_learner", func(context.Context) error { return nil }},
		// etcd does not have these. They show why reads fail, and find faults that no
		// read shows.
		{"serving", func(context.Context) error { return h.cfg.Node.Stopped() }},
		{"leader", h.leader},
		{"watch_feed", func(context.Context) error { return h.cfg.Node.Fed() }},
		{"database", h.database},
	}
}

// selfCheck is how often a node checks its own readiness, and bounds how long one check may take then.
const selfCheck = 5 * time.Second

// Run checks the node's readiness regularly until ctx ends, so that its metrics are current even if no probe asks. It
// leaves out the reads: they ask the table, and fail when other checks do. It logs nothing: probes and requests do.
func (h *Health) Run(ctx context.Context) {
	checks := slices.DeleteFunc(h.ready(), func(c healthCheck) bool {
		return c.name == serializableRead ||
			c.name == linearizableRead
	})
	for check := true; check; check = retry.Sleep(ctx, selfCheck) == nil {
		bounded, cancel := context.WithTimeout(ctx, selfCheck)
		results := runChecks(bounded, checks)
		cancel()
		if ctx.Err() == nil { // else that is why they failed
			h.record(readiness, checks, results)
		}
	}
}

// health answers with a JSON object. ?exclude=NOSPACE leaves an alarm out, and
// ?serializable=true asks about this node alone.
func (h *Health) health(w http.ResponseWriter, r *http.Request) {
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
		h.cfg.Log.Warn("health check failed", "path", r.URL.Path, "reason", answer.Reason)
		http.Error(w, string(body), http.StatusServiceUnavailable)
		return
	}
	h.success.Inc()
	writeBody(w, body)
}

// unhealthy returns the reason why the node is not healthy, or "".
func (h *Health) unhealthy(r *http.Request) string {
	excluded := r.URL.Query()["exclude"]
	for _, a := range h.cfg.Alarms.All() {
		switch name := pb.AlarmType(a.Type).String(); {
		case slices.Contains(excluded, name):
		case a.Type == quota.AlarmNoSpace, a.Type == quota.AlarmCorrupt:
			return "ALARM " + name
		default:
			return "ALARM UNKNOWN"
		}
	}
	linearizable := r.URL.Query().Get("serializable") != "true"
	if linearizable && h.cfg.Node.Status().NotServing != nil {
		return "RAFT NO LEADER"
	}
	if err := h.read(r.Context(), linearizable); err != nil {
		return "RANGE ERROR:" + err.Error()
	}
	return ""
}

// read reads one key, which need not exist. Every caller may see its error.
func (h *Health) read(ctx context.Context, linearizable bool) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	_, err := h.cfg.Reader.Range(ctx, auth.System, &mvcc.RangeRequest{
		KeyRange: mvcc.KeyRange{Key: []byte("health")},
		KeysOnly: true,
		Limit:    1,
	}, linearizable)
	if err = h.cfg.Answer(ctx, h.cfg.Log, "health", err); err != nil {
		return errors.New(rpctypes.ErrorDesc(err))
	}
	return nil
}

// leader waits up to leaderWait for a leader: all members are equally ready while the leader
// changes, and requests wait too.
func (h *Health) leader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(h.cfg.Timeout, leaderWait))
	defer cancel()
	tick := time.NewTicker(leaderWait / 50)
	defer tick.Stop()
	for h.cfg.Node.Status().Leader == 0 {
		if h.cfg.Node.Stopped() != nil {
			return errNoLeaderKnown
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h.noLeader()
		}
	}
	return nil
}

// leaderWait is about what it takes until another member leads.
const leaderWait = 2 * time.Second

// noLeader returns errNoLeaderKnown, with the reason if another member is of a version that does not fit.
func (h *Health) noLeader() error {
	if h.cfg.Members != nil {
		if err := h.cfg.Members(); err != nil {
			return fmt.Errorf("%w: %w", errNoLeaderKnown, err)
		}
	}
	return errNoLeaderKnown
}

var errNoLeaderKnown = errors.New("no leader is known")

// database writes a row.
func (h *Health) database(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	if err := h.cfg.Answer(ctx, h.cfg.Log, "health", h.cfg.Probe.Writable(ctx)); err != nil {
		return fmt.Errorf("a write failed: %s", rpctypes.ErrorDesc(err))
	}
	return nil
}

func (h *Health) corruption() error {
	for _, a := range h.cfg.Alarms.All() {
		if a.Type == quota.AlarmCorrupt {
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
func (h *Health) registerChecks(mux *http.ServeMux, kind string, checks ...healthCheck) {
	mux.HandleFunc("/"+kind, getOnly(func(w http.ResponseWriter, r *http.Request) {
		excluded := func(c healthCheck) bool { return slices.Contains(r.URL.Query()["exclude"], c.name) }
		h.serveChecks(w, r, kind, slices.DeleteFunc(slices.Clone(checks), excluded))
	}))
	for _, c := range checks {
		mux.HandleFunc("/"+kind+"/"+c.name, getOnly(func(w http.ResponseWriter, r *http.Request) {
			h.serveChecks(w, r, kind, []healthCheck{c})
		}))
	}
}

// runChecks returns the result of each check. They run concurrently, because each may take its whole
// timeout while the database does not answer.
func runChecks(ctx context.Context, checks []healthCheck) []error {
	results := make([]error, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() { results[i] = c.check(ctx) })
	}
	running.Wait()
	return results
}

// record puts the results of checks into the metrics.
func (h *Health) record(kind string, checks []healthCheck, results []error) {
	for i, c := range checks {
		value, status := 1.0, "success"
		if results[i] != nil {
			value, status = 0, "error"
		}
		h.result.WithLabelValues(kind, c.name).Set(value)
		h.results.WithLabelValues(kind, c.name, status).Inc()
	}
}

// serveChecks answers "ok", or 503 with the failed checks; with ?verbose it always lists all
// results.
func (h *Health) serveChecks(w http.ResponseWriter, r *http.Request, kind string, checks []healthCheck) {
	results := runChecks(r.Context(), checks)
	h.record(kind, checks, results)
	var report bytes.Buffer
	failed := false
	for i, c := range checks {
		if err := results[i]; err != nil {
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: %v\n", c.name, err)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.name)
	}
	if failed {
		h.cfg.Log.Warn("health check failed", "path", r.URL.Path, "reason", report.String())
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
