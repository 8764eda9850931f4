package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"

	"github.com/sqlbrain/sqlbrain/server"
	clusternode "github.com/sqlbrain/sqlbrain/server/cluster/node"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
)

// process is one start of a program on a host.
type process struct {
	host, name string
	gone       chan struct{} // closed when it is killed: then it has no effect on anything
	kill       func()        // closes gone, once
}

func newProcess(host, name string) *process {
	p := &process{host: host, name: name, gone: make(chan struct{})}
	p.kill = sync.OnceFunc(func() { close(p.gone) })
	return p
}

func (p *process) dead() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// machine is the host of a node. A supervisor starts the node's process again when it ended.
type machine struct {
	w    *world
	name string
	// rate is how fast the monotonic clock of the machine runs, compared with simulated time;
	// bootRate the clock that counts suspension. The speeds of two of the latter may differ by
	// less than half, see timing.TakeoverWait.
	rate, bootRate float64
	// bootStops: the clock that counts suspension does not, for a test of the judges.
	bootStops bool
	skew      time.Duration // of the clock that commits have their times from

	mu     sync.Mutex
	starts int
	proc   *process
	node   *clusternode.Node // nil while it does not run
	stop   context.CancelFunc
	ended  chan struct{} // closed when the current process has ended, and left nothing
	down   bool          // a fault has stopped the process
	sleeps int           // how many faults suspend the machine
	asleep time.Time     // since when it is suspended
	slept  time.Duration // for how long it was, in all

	shown, compacted int64 // the newest revisions that the process was seen to show, and to know of a compaction at
}

func newMachine(w *world, name string) *machine {
	r := w.rand("machine " + name)
	return &machine{w: w, name: name, rate: 0.95 + 0.1*r.Float64(), bootRate: 0.75 + 0.5*r.Float64(),
		skew: time.Duration(r.Int64N(int64(10 * time.Second)))}
}

// wall returns the time on a clock that is off by skew, and that is put back every second minute.
func (m *machine) wall() time.Time {
	at := time.Now().Add(m.skew)
	if at.Minute()%2 == 1 {
		at = at.Add(-time.Minute)
	}
	return at
}

// sinceBoot returns the time on the clock that counts suspension.
func (m *machine) sinceBoot() time.Duration {
	if m.bootStops {
		return time.Hour + m.monotonic().Sub(m.w.start)
	}
	return time.Hour + time.Duration(float64(time.Since(m.w.start))*m.bootRate)
}

// monotonic returns the time on the clock that stands still in suspension.
func (m *machine) monotonic() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := time.Since(m.w.start) - m.slept
	if m.sleeps > 0 {
		d -= time.Since(m.asleep)
	}
	return m.w.start.Add(time.Duration(float64(d) * m.rate))
}

// suspend adds by to the faults that suspend the machine.
func (m *machine) suspend(by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sleeps == 0 {
		m.asleep = time.Now()
	}
	if m.sleeps += by; m.sleeps == 0 {
		m.slept += time.Since(m.asleep)
	}
}

// occupy reports whether a fault may stop the process, which no other one has stopped. The
// fault has to launch it again.
func (m *machine) occupy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := !m.down
	m.down = true
	return free
}

// launch starts a process. It runs until halt or crash.
func (m *machine) launch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starts++
	m.down = false
	p := newProcess(m.name, fmt.Sprintf("%s.%d", m.name, m.starts))
	m.proc, m.ended = p, make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	ended := m.ended
	m.w.trace(m.name, "process %s starts", p.name)
	go func() {
		defer close(ended)
		defer cancel()
		m.run(ctx, p)
	}()
}

// restartPause is how long the supervisor waits before it starts a process again that could
// not start.
const restartPause = 200 * time.Millisecond

func (m *machine) run(ctx context.Context, p *process) {
	for ctx.Err() == nil {
		err := m.serve(ctx, p)
		m.w.trace(m.name, "process %s ended: %v", p.name, err)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-time.After(restartPause):
		case <-ctx.Done():
		}
	}
}

// serve is what sqlbrain's serve command does, after it has opened the database.
func (m *machine) serve(ctx context.Context, p *process) error {
	logger := slog.New(&traceHandler{w: m.w, p: p})
	client, peer := m.name+clientPort, m.name+peerPort
	cfg := clusternode.DefaultConfig()
	cfg.Store, cfg.Name, cfg.Version = m.w.database.connect(p), m.name, "simulated"
	cfg.PeerURLs, cfg.ClientURLs = []string{"https://" + peer}, []string{"http://" + client}
	cfg.Logger, cfg.Registerer = logger, prometheus.NewRegistry()
	cfg.Dial = func(ctx context.Context, _, address string) (net.Conn, error) {
		return m.w.network.dial(ctx, p, address)
	}
	cfg.Replica.Logger, cfg.Replica.Registerer = logger, prometheus.NewRegistry()
	m.w.plan.Settings.apply(&cfg.Replica)
	cfg.Replica.Watch.ProgressInterval = 700 * time.Millisecond
	cfg.Replica.FenceClock, cfg.Replica.LeaseClock, cfg.Replica.CommitClock = m.sinceBoot, m.monotonic, m.wall
	cfg.Replica.Trace = steptrace.New(m.name, m.w.stepTime, func(s steptrace.Step) {
		if !p.dead() {
			m.w.step(s)
		}
	})
	n, err := clusternode.Join(ctx, cfg)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if p.dead() {
			cancel()
		}
		if err := n.Close(ctx); err != nil && !p.dead() {
			m.w.trace(m.name, "close: %v", err)
		}
	}()
	sc := server.DefaultConfig()
	sc.Logger, sc.Name, sc.BcryptCost = logger, m.name, bcrypt.MinCost
	sc.ListenClientURLs, sc.PeerURLs = cfg.ClientURLs, cfg.PeerURLs
	sc.Listen = func(_, address string) (net.Listener, error) { return m.w.network.listen(p, address) }
	sc.EnableGRPCGateway = false
	sc.Members, sc.PeerCredentials, sc.Mover = n.Members(), n.PeerCredentials(), n
	sc.PeerNode, sc.Router = clusternode.Peer{Node: n}, clusternode.Connection{Node: n}
	s, err := server.New(sc, n.Replica())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	n.Start()
	m.mu.Lock()
	m.node, m.shown, m.compacted = n, 0, -1
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		if m.node == n {
			m.node = nil
		}
		m.mu.Unlock()
	}()
	running, stop := context.WithCancel(context.Background())
	var observing sync.WaitGroup
	observing.Go(func() { m.observe(running, p, n.Replica()) })
	defer observing.Wait()
	defer stop()
	defer context.AfterFunc(ctx, func() {
		if !p.dead() {
			n.Resign()
		}
		stop()
	})()
	return s.Run(running)
}

// apply sets what is not zero; a plan without settings has the defaults.
func (s Settings) apply(cfg *replica.Config) {
	cfg.RecordCache = s.RecordCache
	if s == (Settings{}) {
		cfg.RecordCache = 1 << 20
		return
	}
	cfg.Write.IndexCache, cfg.Write.BatchRequests = s.IndexCache, s.BatchRequests
	cfg.Watch.RingEvents, cfg.Watch.QueueEvents = s.RingEvents, s.QueueEvents
	cfg.CountSpanKeys, cfg.CountChanges = s.SpanKeys, s.CountChanges
}

// running returns the node, nil if it does not run.
func (m *machine) running() *clusternode.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

// halt stops the process in order, and waits for its end.
func (m *machine) halt() {
	m.mu.Lock()
	stop, ended := m.stop, m.ended
	m.mu.Unlock()
	stop()
	<-ended
}

// crash ends the process at once: nothing that it sends arrives any longer. The channel is
// closed when its goroutines have ended.
func (m *machine) crash(silent bool) (ended <-chan struct{}) {
	m.mu.Lock()
	p, stop, ended := m.proc, m.stop, m.ended
	m.mu.Unlock()
	p.kill()
	m.w.network.kill(p, silent)
	m.w.trace(m.name, "process %s is killed", p.name)
	stop()
	return ended
}

// traceHandler is a slog.Handler that writes to the trace.
type traceHandler struct {
	w     *world
	p     *process
	attrs string
}

func (h *traceHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (h *traceHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message + h.attrs
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	h.w.trace(h.p.name, "log %s: %s", r.Level, text)
	h.w.hear(h.p, r)
	return nil
}

func (h *traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := *h
	for _, a := range attrs {
		own.attrs += " " + a.String()
	}
	return &own
}

func (h *traceHandler) WithGroup(string) slog.Handler { return h }
