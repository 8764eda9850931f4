package robustness

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	etcdtraffic "go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/sqlbrain/sqlbrain/integration/chaos/robustness/internal/durable"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	protocol "github.com/sqlbrain/sqlbrain/integration/simulation/model"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	usualRounds = 2
	stepsARound = 4
	// calm is traffic before the first fault, between two, and after the last.
	calm = 700 * time.Millisecond
	// Clients, of each node and of all together.
	clientsOfNode, clientsOfAll   = 3, 4
	watchersOfNode, watchersOfAll = 1, 2
	settleTime                    = 5 * time.Minute
	// judgeTime bounds the search for a linearization. As resolve leaves nothing
	// open, it takes seconds; one without an end may as well be one without a result.
	judgeTime = 5 * time.Minute
	// leastRevisions is what a round must have written to prove anything.
	leastRevisions = 50
)

// round is a cluster with an empty history under one plan.
type round struct {
	t    *testing.T
	seed uint64
	rnd  *rand.Rand // of the faults' targets; for the test's goroutine
	c    *harness.Cluster
	// profile is etcd's traffic, in place of tr; nil: none.
	profile *profile
	tr      *traffic
	// limiter bounds the clients' requests.
	limiter *rate.Limiter
	faults  int
	// compactors are the endpoints of the clients that compact.
	compactors []string
	// stuck: at least one node no longer serves, which has been reported. The history is
	// still judged.
	stuck bool
}

// seen is what a round left for the judges.
type seen struct {
	reports   []report.ClientReport
	persisted []model.EtcdRequest
	faults    int
	leaders   uint64 // terms that came after the first one
}

// TestPlans runs the plans that once found something.
func TestPlans(t *testing.T) {
	replay := newReplay(t)
	for _, text := range []string{
		// A follower that loses the leader's feed and reads the table shows commits
		// that the leader, to whom the database is slow, does not know of yet.
		"delay-database@leader+reset-peers@follower/100ms delay-database@leader+reset-peers@follower/100ms",
	} {
		t.Run(text, func(t *testing.T) {
			if harness.TargetIsEtcd() && strings.Contains(text, "-database") {
				t.Skip("about the database under sqlbrain")
			}
			p, err := parsePlan(text)
			require.NoError(t, err)
			judged(t, replay, harness.Seed(), p)
		})
	}
}

// TestLinearizable runs rounds of clients and faults, and has each judged.
func TestLinearizable(t *testing.T) {
	first, limit, replay := harness.Seed(), duration(), newReplay(t)
	start := time.Now()
	for i := uint64(0); ; i++ {
		if limit == 0 && i == usualRounds || limit > 0 && i > 0 && time.Since(start) > limit {
			return
		}
		if !t.Run(strconv.FormatUint(first+i, 10), func(t *testing.T) { judged(t, replay, first+i, nil) }) {
			return
		}
	}
}

// judged runs a round and has it judged. replay may be nil.
func judged(t *testing.T, replay *protocol.Replay, seed uint64, p plan) {
	t.Helper()
	var steps string
	var flags []string
	if replay != nil {
		steps, flags = traced(t)
	}
	s := play(t, seed, p, flags...)
	var err error
	if replay != nil {
		err = validateSteps(t, replay, steps)
	}
	conclude(t, s, false, err)
}

// conclude has a round judged, and fails t if anything was wrong, or already is.
func conclude(t *testing.T, s seen, uniqueRevisions bool, wrong ...error) {
	t.Helper()
	begun := time.Now()
	result := judgeWith(validate.Config{ExpectRevisionUnique: uniqueRevisions}, s)
	t.Logf("judged within %s: %s", time.Since(begun).Round(time.Millisecond), describe(s))
	if err := errors.Join(result.Error(), realTime(s.reports), errors.Join(wrong...)); err != nil {
		durable.Keep(t, result, s.reports, s.persisted)
		t.Fatal(err)
	}
	for _, r := range []validate.Result{result.Assumptions, result.Linearization.Result, result.Watch,
		result.Serializable} {
		require.NotEqual(t, validate.Unknown, r.Status, "a judge was not asked")
	}
}

func judge(s seen) validate.RobustnessResult { return judgeWith(validate.Config{}, s) }

func judgeWith(cfg validate.Config, s seen) validate.RobustnessResult {
	return validate.ValidateAndReturnVisualize(zap.NewNop(), cfg, resolve(s.reports, s.persisted), s.persisted, judgeTime)
}

// product is whose server a round is on: each has every other seed. Empty where the
// environment names a server.
func product(seed uint64) enginetest.Product {
	if enginetest.ServerGiven() {
		return ""
	}
	products := enginetest.Products()
	return products[seed%uint64(len(products))]
}

// play runs clients on a fresh cluster while the plan of the seed, or the one
// given, is carried out, and returns what they saw. flags are for every node.
func play(t *testing.T, seed uint64, p plan, flags ...string) seen {
	t.Helper()
	return playOn(t, harness.ClusterConfig{Product: product(seed), Network: true}, nil, seed, p, flags...)
}

// playOn is play on another cluster, and with etcd's traffic if there is a profile.
func playOn(t *testing.T, cfg harness.ClusterConfig, profile *profile, seed uint64, p plan, flags ...string) seen {
	t.Helper()
	r := &round{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), profile: profile}
	var archive *durable.Archive
	cfg.Extra = append([]string{"--watch-progress-notify-interval", "100ms"}, flags...)
	cfg.Prepare = func(datastore string) { archive = durable.NewArchive(t, datastore) }
	r.c = harness.StartCluster(t, cfg)
	if r.compactors = r.c.Endpoints(); archive != nil {
		r.compactors = []string{archive.Gate(t, r.compactors)}
	}
	if p == nil { // none was given; an empty one has no faults
		p = r.plan()
	}
	t.Logf("on %s; replay: -seed=%d -plan=%q", cfg.Product, seed, p.String())
	before := r.term()
	s := seen{reports: r.drive(p), faults: r.faults}
	if !r.stuck {
		s.leaders = r.term() - before
	}
	for n := range r.c.Size() {
		if r.stuck {
			r.c.Kill(n)
		} else {
			r.c.Stop(n)
		}
	}
	if harness.TargetIsEtcd() {
		var err error
		s.persisted, err = report.PersistedRequests(zap.NewNop(), r.c.DataDirs())
		require.NoError(t, err)
	} else {
		s.persisted = archive.Requests(t, s.reports)
	}
	require.Greater(t, len(s.persisted), leastRevisions, "too little traffic to prove anything")
	return s
}

func (r *round) plan() plan {
	if text := *givenPlan; text != "" {
		p, err := parsePlan(text)
		require.NoError(r.t, err)
		return p
	}
	rnd := rand.New(rand.NewPCG(r.seed, 0))
	return draw(rnd, stepsARound, r.c.Network().HasDatabase(), r.c.Database() != nil)
}

func (r *round) term() uint64 {
	ctx, cancel := context.WithTimeout(r.t.Context(), settleTime)
	defer cancel()
	n := r.c.Node(r.c.Leader())
	s, err := n.Client().Status(ctx, n.Endpoint())
	require.NoError(r.t, err)
	return s.RaftTerm
}

// awaitRevision waits until a client has received a revision.
func (r *round) awaitRevision(revision int64) {
	r.t.Helper()
	eventually.True(r.t, "the watches to see the last revision", func() bool { return r.tr.newest.Load() >= revision })
}

// drive runs traffic and watches, carries the plan out, and returns what the
// clients saw.
func (r *round) drive(p plan) []report.ClientReport {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	all := r.c.Endpoints()
	// Times are relative to this one; its monotonic reading orders operations.
	start := time.Now()
	ids := identity.NewIDProvider()
	clients := client.NewSet(ids, start)
	defer clients.Close()
	watchers := client.NewSet(ids, start)
	defer watchers.Close()
	require.NoError(r.t, etcdtraffic.CheckEmptyDatabaseAtStart(ctx, zap.NewNop(), all, clients))

	// A watch of everything on every node, from the beginning to the end.
	watched := make(chan error, 1)
	newest := make(chan int64, 1)
	go func() {
		watched <- client.CollectClusterWatchEvents(ctx, client.CollectClusterWatchEventsParam{
			Lg: zap.NewNop(), Endpoints: all, MaxRevisionChan: newest, ClientSet: watchers,
		})
	}()

	end := r.startTraffic(ctx, clients)
	r.pass(calm)
	for i, s := range p {
		began := time.Since(start)
		serves := r.run(s)
		r.t.Logf("%6.2fs to %6.2fs  %s", began.Seconds(), time.Since(start).Seconds(), p[i:i+1])
		if r.stuck = !serves; r.stuck {
			break
		}
		r.pass(calm)
	}
	end()
	if r.stuck {
		close(newest)
		cancel()
		<-watched
		return slices.Concat(clients.Reports(), watchers.Reports())
	}

	// The judges need a last operation that succeeds.
	settle, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	last, err := clients.NewClient(all)
	require.NoError(r.t, err)
	var put *clientv3.PutResponse
	tries := 0
	eventually.Nil(r.t, settleTime, func(ctx context.Context) (err error) { // a busy machine may change the leader
		tries++
		put, err = last.Put(ctx, "last", strconv.Itoa(tries))
		return err
	})
	newest <- put.Header.Revision
	close(newest)
	select {
	case err := <-watched:
		require.NoError(r.t, err)
	case <-settle.Done():
		r.t.Fatalf("a watch from the beginning did not reach revision %d within %s", put.Header.Revision, settleTime)
	}
	return slices.Concat(clients.Reports(), watchers.Reports())
}

// startTraffic starts the clients, and waits until they have written something. end ends them.
func (r *round) startTraffic(ctx context.Context, clients *client.ClientSet) (end func()) {
	if r.profile != nil {
		finish := make(chan struct{})
		var running sync.WaitGroup
		r.profile.start(ctx, r, &running, finish, clients)
		return func() { close(finish); running.Wait() }
	}
	all, tr := r.c.Endpoints(), newTraffic(clients)
	r.tr, r.limiter = tr, tr.limiter
	stream := uint64(2)
	next := func() *rand.Rand { stream++; return rand.New(rand.NewPCG(r.seed, stream)) }
	each := func(ofNode, ofAll int, start func(context.Context, []string, *rand.Rand)) {
		for _, endpoint := range all {
			for range ofNode {
				start(ctx, []string{endpoint}, next())
			}
		}
		for range ofAll {
			start(ctx, all, next())
		}
	}
	each(clientsOfNode, clientsOfAll, tr.start)
	each(watchersOfNode, watchersOfAll, tr.watch)
	tr.compact(ctx, r.compactors, next())

	r.awaitRevision(2 * leastRevisions)
	return tr.end
}
