package benchmark

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(enginetest.Main(m)).Run()) }

const (
	pkgTool = "go.etcd.io/etcd/v3/tools/benchmark"
	// runWait bounds one run of the tool.
	runWait = 5 * time.Minute
)

// run is one call of the tool. TOTAL in args is its total.
type run struct {
	args  string
	total int
}

const common = "--conns 4 --clients 16 "

// runs cover every subcommand that talks to a server. Earlier ones make the keys
// that later ones read.
var runs = []run{
	{common + "put --sequential-keys --key-space-size 1000 --val-size 256 --total TOTAL", 500},
	{common + "put --key-space-size 100 --val-size 256 --total TOTAL --compact-interval 50ms --compact-index-delta 100", 500},
	{"put --check-hashkv --key-space-size 100 --val-size 256 --total TOTAL", 200},
	{common + "range a z --total TOTAL --limit 100", 200},
	{common + "range a z --total TOTAL --consistency s --keys-only", 200},
	{common + "range a z --total TOTAL --count-only", 200},
	{common + "range a --prefix --total TOTAL --paginate", 100},
	{common + "range a --prefix --total TOTAL --stream", 100},
	{common + "txn-put --key-space-size 1000 --txn-ops 8 --total TOTAL", 200},
	{common + "txn-mixed a z --key-space-size 1000 --limit 100 --total TOTAL", 200},
	{common + "stm --keys 20 --keys-per-txn 3 --isolation r --total TOTAL", 200},
	{common + "stm --keys 20 --keys-per-txn 3 --isolation c --total TOTAL", 200},
	{common + "stm --keys 20 --keys-per-txn 3 --isolation s --total TOTAL", 200},
	{common + "stm --keys 20 --keys-per-txn 3 --isolation ss --total TOTAL", 200},
	{common + "stm --keys 5 --stm-locker lock-client --total TOTAL", 50},
	{common + "stm --keys 5 --stm-locker lock-rpc --total TOTAL", 50},
	{common + "lease-keepalive --total TOTAL", 500},
	{common + "watch --streams 4 --watch-per-stream 25 --watched-key-total 10 --put-total TOTAL", 200},
	{common + "watch-get --watchers TOTAL --events 4", 50},
	{common + "watch-latency --streams 4 --watchers-per-stream 5 --put-rate 1000 --put-total TOTAL", 200},
	{common + "watch-latency --streams 4 --watchers-per-stream 5 --put-rate 1000 --prevkv --put-total TOTAL", 200},
}

// notNetwork are the subcommands that talk to no server.
var notNetwork = map[string]bool{"completion": true, "help": true, "mvcc": true}

func TestRunsCoverTheSubcommands(t *testing.T) {
	out := harness.Run(t, runWait, "", tool(t), "--help")
	require.Zero(t, out.Code, out.Stderr)
	_, list, found := strings.Cut(out.Stdout, "Available Commands:\n")
	require.True(t, found, out.Stdout)
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		name := strings.Fields(line)[0]
		covered := notNetwork[name]
		for _, r := range runs {
			covered = covered || strings.Contains(" "+r.args+" ", " "+name+" ")
		}
		require.True(t, covered, "no run of %s", name)
	}
}

func TestBenchmarkTool(t *testing.T) {
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		for _, r := range runs {
			t.Run(strings.ReplaceAll(strings.TrimPrefix(r.args, common), " ", "_"), func(t *testing.T) { r.on(t, node) })
		}
	})
}

var rate = regexp.MustCompile(`(?m)^\s*Requests/sec:\s*([0-9.]+)`)

// on runs the tool against node.
func (r run) on(t *testing.T, node *harness.Node) {
	args := strings.Fields(strings.ReplaceAll(r.args, "TOTAL", strconv.Itoa(r.total)))
	out := harness.Run(t, runWait, "", tool(t), append(args, "--endpoints", node.Host())...)
	require.Zero(t, out.Code, "%s%s", out.Stdout, out.Stderr)
	// It ends with 0 whatever became of its requests.
	require.NotContains(t, out.Stdout, "Error distribution", out.Stderr)
	found := rate.FindAllStringSubmatch(out.Stdout, -1)
	require.NotEmpty(t, found, "no rate in: %s%s", out.Stdout, out.Stderr)
	for _, m := range found {
		perSecond, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		require.Positive(t, perSecond, out.Stdout)
	}
}

var built string

// tool returns the path of the built tool.
func tool(t *testing.T) string {
	t.Helper()
	if built != "" {
		return built
	}
	// Beside the tests' binary, which go test removes with its directory.
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(filepath.Dir(self), "etcd-benchmark")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkgTool).CombinedOutput()
	require.NoError(t, err, "%s", out)
	built = path
	return path
}
