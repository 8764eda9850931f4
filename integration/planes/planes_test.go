package planes

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the database is asked what it did
	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// noisyClients write as fast as they can, on one plane.
const noisyClients = 64

// settled is how long it takes until idle planes do no more than they will do.
const settled = 100 * time.Second

var (
	planes = flag.Int("planes", 0, "idle planes, which are then measured; a tenth as many are busy")
	to     = flag.String("page", "", "write what was measured into this file")
)

func TestManyPlanesOnOneServer(t *testing.T) {
	n, wait, window := 4, time.Second, 3*time.Second
	if *planes > 0 || harness.Long() {
		n, wait, window = cmp.Or(*planes, 100), settled, 30*time.Second
	}
	product := enginetest.MySQL
	if _, err := product.Program(); err != nil {
		product = enginetest.MariaDB
	}
	s := product.StartServer(t)
	enginetest.Exec(t, s.URL(), "SET GLOBAL max_connections = 4000")
	start := func(name string) *harness.Node { return harness.StartNodeOn(t, s.NewDatabase(name)) }
	idle := make([]*harness.Node, n)
	for i := range idle {
		idle[i] = start(fmt.Sprintf("idle%d", i))
	}
	busy := make([]*harness.Node, max(2, n/10))
	for i := range busy {
		busy[i] = start(fmt.Sprintf("busy%d", i))
	}
	noisy := start("noisy")
	all := slices.Concat(idle, busy, []*harness.Node{noisy})

	p := page{product: string(product), idle: len(idle), busy: len(busy), window: window}
	time.Sleep(wait)
	p.atRest = measure(t, s, all, func() { time.Sleep(window) })
	var alone, beside []churn
	p.atWork = measure(t, s, all, func() { alone = onEach(t, busy, window) })
	p.withNoise = measure(t, s, all, func() {
		noise := make(chan churn)
		go func() { noise <- run(t, noisy, window+2*time.Second, "--clients", strconv.Itoa(noisyClients)) }()
		beside = onEach(t, busy, window)
		p.noise = <-noise
	})
	lowestPriority(t, noisy)
	var quiet []churn
	p.withLowNoise = measure(t, s, all, func() {
		noise := make(chan churn)
		go func() {
			noise <- runAs(t, []string{"nice", "-n", "19"}, noisy, window+2*time.Second, "--clients", strconv.Itoa(noisyClients))
		}()
		quiet = onEach(t, busy, window)
		p.lowNoise = <-noise
	})
	p.alone, p.beside, p.besideLow = alone, beside, quiet
	t.Log("\n" + p.String())
	for _, c := range slices.Concat(alone, beside, quiet, []churn{p.noise, p.lowNoise}) {
		require.NoError(t, c.err)
		require.Zero(t, c.Verification.Failed, "%v", c.Verification.Failures)
		require.Positive(t, c.Events)
	}
	for _, c := range alone { // noise may take the machine's processors
		require.Zero(t, c.Failed, "writes failed: %v", c.Errors)
	}
	require.NotZero(t, p.atRest.connections)
	if *to != "" {
		require.NoError(t, os.WriteFile(*to, []byte(p.String()), 0o644))
	}
}

// lowestPriority gives the node's process what the others of this machine leave of the processors.
func lowestPriority(t *testing.T, n *harness.Node) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", n.Process().ID()))
	require.NoError(t, err)
	args := []string{"-n", "19", "-p"}
	for _, thread := range threads {
		args = append(args, thread.Name())
	}
	out := harness.Run(t, time.Minute, "", "renice", args...)
	require.Zero(t, out.Code, out.Stderr) // a thread that it starts later inherits the priority
}

// churn is what a run of that workload found.
type churn struct {
	err error

	Succeeded, Failed int64
	WriteP99, LagP99  float64 // milliseconds
	Events            int64
	Errors            map[string]int64
	Verification      workload.Verification
}

// onEach runs churn on all nodes at the same time, at a rate that a small cluster has.
func onEach(t *testing.T, nodes []*harness.Node, d time.Duration) []churn {
	results := make([]churn, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { results[i] = run(t, n, d, "--clients", "4", "--rate", "20") })
	}
	all.Wait()
	return results
}

// run may be called by several goroutines.
func run(t *testing.T, n *harness.Node, d time.Duration, more ...string) churn {
	return runAs(t, nil, n, d, more...)
}

// runAs is run by a program that runs others.
func runAs(t *testing.T, by []string, n *harness.Node, d time.Duration, more ...string) (c churn) {
	args := append(slices.Clone(by), harness.Bench(t), "churn", "--endpoints", n.Host(), "--duration", d.String(),
		"--keys", "200",
		"--value-size", "1024", "--watchers", "2", "--exclusive", "--output", "json")
	args = append(args, more...)
	out := harness.Run(t, d+2*time.Minute, "", args[0], args[1:]...)
	var report workload.Report
	if err := json.Unmarshal([]byte(out.Stdout), &report); err != nil {
		c.err = fmt.Errorf("%w: %s", err, out.Stderr)
		return c
	}
	c.Verification, c.Events, c.Errors = report.Verification, report.Verification.Events, make(map[string]int64)
	for _, p := range report.Phases {
		for _, o := range p.Ops {
			switch {
			case p.Name == "churn":
				c.Succeeded, c.Failed = c.Succeeded+o.Succeeded, c.Failed+o.Failed
				for code, n := range o.Errors {
					c.Errors[code] += n
				}
				c.WriteP99 = max(c.WriteP99, o.Latency.P99)
			case o.Name == "event":
				c.LagP99 = o.Latency.P99
			}
		}
	}
	return c
}

// usage is what all planes and their database used while something was done.
type usage struct {
	seconds     float64
	connections int
	heartbeats  float64 // a second, as MySQL counts transactions of several statements
	statements  float64 // a second
	planesCPU   float64 // processors
	databaseCPU float64
	clientsCPU  float64
	otherCPU    float64 // of programs that do not belong to the test, and what a hypervisor took
	planesRSS   int     // bytes at the end, of all planes
	databaseRSS int
}

func measure(t *testing.T, s *enginetest.Server, nodes []*harness.Node, do func()) (u usage) {
	t.Helper()
	db := open(t, s)
	database, self, machine := stat(t, s.ID()), stat(t, os.Getpid()), machineCPU(t)
	var before, after float64
	began, first := time.Now(), counters(t, db)
	for _, n := range nodes {
		before += stat(t, n.Process().ID()).CPUTime()
	}
	do()
	u.seconds = time.Since(began).Seconds()
	last := counters(t, db)
	for _, n := range nodes {
		end := stat(t, n.Process().ID())
		after += end.CPUTime()
		u.planesRSS += end.ResidentMemory()
	}
	end := stat(t, s.ID())
	u.connections = int(last["Threads_connected"]) - 1
	u.heartbeats = (last["Com_commit"] - first["Com_commit"]) / u.seconds
	u.statements = (last["Questions"] - first["Questions"]) / u.seconds
	u.planesCPU, u.databaseCPU = (after-before)/u.seconds, (end.CPUTime()-database.CPUTime())/u.seconds
	u.databaseRSS = end.ResidentMemory()
	u.clientsCPU = (withChildren(stat(t, os.Getpid())) - withChildren(self)) / u.seconds
	u.otherCPU = max(0, (machineCPU(t)-machine)/u.seconds-u.planesCPU-u.databaseCPU-u.clientsCPU)
	return u
}

// withChildren returns the processor time of a process and of its children that have ended, in seconds.
func withChildren(s procfs.ProcStat) float64 {
	const ticks = 100 // a second, in which /proc counts
	return s.CPUTime() + float64(s.CUTime+s.CSTime)/ticks
}

// machineCPU returns for how many seconds the machine's processors were not idle.
func machineCPU(t *testing.T) float64 {
	t.Helper()
	fs, err := procfs.NewDefaultFS()
	require.NoError(t, err)
	s, err := fs.Stat()
	require.NoError(t, err)
	c := s.CPUTotal
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
}

// open connects to the server by a connection of the test.
func open(t *testing.T, s *enginetest.Server) *sql.DB {
	t.Helper()
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	db, err := sql.Open("mysql", u.User.String()+"@tcp("+u.Host+")/")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// counters are those of the server.
func counters(t *testing.T, db *sql.DB) map[string]float64 {
	t.Helper()
	rows, err := db.QueryContext(t.Context(),
		"SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_commit', 'Questions', 'Threads_connected')")
	require.NoError(t, err)
	defer rows.Close()
	c := map[string]float64{}
	for rows.Next() {
		var name string
		var value float64
		require.NoError(t, rows.Scan(&name, &value))
		c[name] = value
	}
	require.NoError(t, rows.Err())
	return c
}

func stat(t *testing.T, id int) procfs.ProcStat {
	t.Helper()
	p, err := procfs.NewProc(id)
	require.NoError(t, err)
	s, err := p.Stat()
	require.NoError(t, err)
	return s
}

// page is what was measured, in Markdown.
type page struct {
	product                                 string
	idle, busy                              int
	window                                  time.Duration
	atRest, atWork, withNoise, withLowNoise usage
	alone, beside, besideLow                []churn // of the busy planes
	noise, lowNoise                         churn
}

func (p *page) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %d control planes on one database server\n\nWritten by `make bench WHAT=planes`: %d idle planes, %d busy ones and one noisy one, each a server with a database, on one %s "+
		"with a cache of 128 MiB, on a machine with %d processors. A busy plane makes up to 20 writes a second for 4 clients, with 2 watchers; the noisy one as many as it can for %d. "+
		"All programs are on this machine. Each column is of %v.\n\n",
		p.idle+p.busy+1, p.idle, p.busy, p.product, runtime.NumCPU(), noisyClients, p.window)
	b.WriteString("| | all idle | busy ones at work | and the noisy one | the noisy one, at the lowest priority |\n|---|---|---|---|---|\n")
	row := func(name, format string, value func(*usage) any) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, u := range []*usage{&p.atRest, &p.atWork, &p.withNoise, &p.withLowNoise} {
			fmt.Fprintf(&b, " "+format+" |", value(u))
		}
		b.WriteByte('\n')
	}
	planes := float64(p.idle + p.busy + 1)
	row("connections to the database", "%d", func(u *usage) any { return u.connections })
	row("statements a second", "%.0f", func(u *usage) any { return u.statements })
	row("processors used by all planes", "%.2f", func(u *usage) any { return u.planesCPU })
	row("percent of a processor for each plane", "%.2f", func(u *usage) any { return 100 * u.planesCPU / planes })
	row("processors used by the database", "%.2f", func(u *usage) any { return u.databaseCPU })
	row("processors used by the clients", "%.2f", func(u *usage) any { return u.clientsCPU })
	row("processors used by other programs", "%.2f", func(u *usage) any { return u.otherCPU })
	row("resident MiB of a plane, mean", "%.0f", func(u *usage) any { return float64(u.planesRSS) / planes / (1 << 20) })
	row("resident MiB of the database", "%d", func(u *usage) any { return u.databaseRSS >> 20 })
	if p.product == string(enginetest.MySQL) {
		fmt.Fprintf(&b, "\nIdle planes make %.1f commits a second together: heartbeats.\n", p.atRest.heartbeats)
	}
	b.WriteString("\n| | writes | failed | events | wrong answers and watchers | p99 of a write, ms | p99 of an event, ms |\n|---|---|---|---|---|---|---|\n")
	churns := func(name string, all []churn) {
		var sum churn
		var writes, lags []float64
		for _, c := range all {
			sum.Succeeded, sum.Failed, sum.Events = sum.Succeeded+c.Succeeded, sum.Failed+c.Failed, sum.Events+c.Events
			sum.Verification.Failed += c.Verification.Failed
			writes, lags = append(writes, c.WriteP99), append(lags, c.LagP99)
		}
		slices.Sort(writes)
		slices.Sort(lags)
		median := len(all) / 2
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %.1f (at most %.1f) | %.1f (at most %.1f) |\n", name, sum.Succeeded,
			sum.Failed, sum.Events,
			sum.Verification.Failed, writes[median], writes[len(all)-1], lags[median], lags[len(all)-1])
	}
	churns("busy planes", p.alone)
	churns("busy planes, next to the noisy one", p.beside)
	churns("the noisy one", []churn{p.noise})
	churns("busy planes, next to the noisy one at the lowest priority", p.besideLow)
	churns("the noisy one, at the lowest priority", []churn{p.lowNoise})
	b.WriteString("\nThe last two columns are medians of the planes. A write counts from when it was due: on a machine that is too slow for the load, " +
		"or that other programs use, writes wait for those before them.\n\n" +
		"A plane does not commit more than one batch at a time. The noisy one therefore takes at most a few threads of the database, but its server and its clients " +
		"take as much of this machine's processors as they get. With the lowest priority the two leave them to the others, as if they were on another machine, and " +
		"disturb them by the database alone.\n")
	return b.String()
}
