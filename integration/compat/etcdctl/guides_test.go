package etcdctl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// guide is a script of commands, or a chapter of etcd's guides: what its reader types, with several windows
// open at a time where the guide has that.
type guide struct {
	name string
	read func(r *reader)
	// flags of the server, beyond the usual.
	flags []string
	// nodes, if it is not 1, is how many servers the guide has; those of sqlbrain
	// need a database server then.
	nodes int
}

var guides = []guide{
	{name: "commands", read: commands},
	{name: "users", read: users},
	{name: "authentication", read: authentication},
	{name: "leases", read: leases},
	{name: "watches", read: watches},
	{name: "locks and elections", read: locksAndElections},
	{name: "maintenance", read: maintenance, flags: []string{"--quota-backend-bytes=171798691840"}},
	{name: "limits", read: limits, flags: []string{"--max-request-bytes=1536", "--max-txn-ops=3", "--auto-compaction-retention=1"}},
	{name: "members", read: members, nodes: 3},
}

// TestGuides has the guides read at real etcd and at sqlbrain: all that the reader
// types prints the same.
func TestGuides(t *testing.T) {
	for _, g := range guides {
		t.Run(g.name, func(t *testing.T) {
			g.flags = append([]string{"--bcrypt-cost=4"}, g.flags...) // passwords are checked quickly
			if g.nodes > 1 {
				want := g.transcript(t, nodesOf(harness.StartCluster(t,
					harness.ClusterConfig{Patient: true, Etcd: true, Size: g.nodes, Extra: g.flags})))
				got := g.transcript(t, nodesOf(harness.StartCluster(t,
					harness.ClusterConfig{Patient: true, Size: g.nodes, Extra: g.flags})))
				sameTranscript(t, want, got)
				return
			}
			want := g.transcript(t, []*harness.Node{harness.StartEtcd(t, g.flags...)})
			harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
				sameTranscript(t, want, g.transcript(t, []*harness.Node{harness.StartNode(t, e, g.flags...)}))
			})
		})
	}
}

func nodesOf(c *harness.Cluster) (nodes []*harness.Node) {
	for n := range c.Size() {
		nodes = append(nodes, c.Node(n))
	}
	return nodes
}

func sameTranscript(t *testing.T, want, got []exchange) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			t.Errorf("%s: etcd (-), sqlbrain (+):\n%s", want[i].Typed, diff)
		}
	}
	require.Len(t, got, len(want))
}

func (g *guide) transcript(t *testing.T, nodes []*harness.Node) []exchange {
	t.Helper()
	r := &reader{t: t, nodes: nodes}
	g.read(r)
	require.NotEmpty(t, r.seen)
	return r.seen
}

// reader types what a guide says, and keeps what comes back.
type reader struct {
	t     *testing.T
	nodes []*harness.Node
	seen  []exchange
}

// exchange is what was typed, and what came back, without what must differ.
type exchange struct {
	Typed string
	Back  harness.Output
}

// identities are what differs between any two clusters.
var identities = append(usualMasks[:len(usualMasks):len(usualMasks)],
	mask{regexp.MustCompile(` +([0-9a-f]{12,16})\b`), " $1"}, // they are padded
	mask{regexp.MustCompile(`\b[0-9a-f]{12,16}\b`), "ID"},
	mask{regexp.MustCompile(`\b[1-9]\d{14,19}\b`), "0"},
	mask{regexp.MustCompile(`"raft_term":"\d+"`), `"raft_term":"0"`},
	mask{regexp.MustCompile(`remaining\(\d+s\)`), "remaining(TIME)"},
	mask{regexp.MustCompile(`("TTL" ?: ?"?)(5\d\d|600)\b`), "${1}600"}, // of 600 s that the guides grant
)

func (r *reader) keep(typed string, out harness.Output, masks []mask) {
	for _, m := range append(identities[:len(identities):len(identities)], masks...) {
		for _, text := range []*string{&typed, &out.Stdout, &out.Stderr} {
			*text = m.pattern.ReplaceAllString(*text, m.by)
		}
	}
	r.seen = append(r.seen, exchange{typed, out})
}

var words = regexp.MustCompile(`'([^']*)'|\S+`)

// arguments splits a command as a shell does, as far as is needed here.
func arguments(command string) (args []string) {
	for _, w := range words.FindAllString(command, -1) {
		args = append(args, strings.Trim(w, "'"))
	}
	return args
}

// etcdctl runs a command, and returns what it printed.
func (r *reader) etcdctl(command string, masks ...mask) harness.Output {
	r.t.Helper()
	return r.etcdctlWith("", command, masks...)
}

// etcdctlWith is etcdctl with something to read.
func (r *reader) etcdctlWith(input, command string, masks ...mask) harness.Output {
	r.t.Helper()
	out := r.nodes[0].Etcdctl(input, arguments(command)...)
	r.keep(command, out, masks)
	return out
}

// find is etcdctl, and returns what the pattern's group is in its output.
func (r *reader) find(pattern, command string, masks ...mask) string {
	r.t.Helper()
	out := r.etcdctl(command, masks...)
	found := regexp.MustCompile(pattern).FindStringSubmatch(out.Stdout)
	require.NotNil(r.t, found, "%s: %s%s", command, out.Stdout, out.Stderr)
	return found[1]
}

// until asks again and again until done, on this goroutine.
func (r *reader) until(what string, done func() bool) {
	r.t.Helper()
	eventually.True(r.t, what, done)
}

// eventually is etcdctl again and again, until it prints that; only this is kept.
func (r *reader) eventually(command, stdout string) {
	r.t.Helper()
	var out harness.Output
	r.until(command, func() bool {
		out = r.nodes[0].Etcdctl("", arguments(command)...)
		return out.Stdout == stdout
	})
	r.keep(command, out, nil)
}

// settled returns when the nodes report their final versions.
func (r *reader) settled() {
	r.t.Helper()
	for _, n := range r.nodes {
		n.AwaitStorageVersion()
	}
}

// waiting returns when a prefix has the given number of keys. The holder of a lock and
// each waiting client have one key.
func (r *reader) waiting(prefix string, keys int64) {
	r.t.Helper()
	c := r.nodes[0].Client()
	r.until(fmt.Sprintf("%d keys under %s", keys, prefix), func() bool {
		resp, err := c.Get(r.t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && resp.Count == keys
	})
}

// window is a command that continues to run while others are typed.
type window struct {
	*harness.Terminal
	r       *reader
	command string
}

func (r *reader) open(command string) *window {
	r.t.Helper()
	args := r.nodes[0].EtcdctlArgs(arguments(command)...)
	return &window{harness.OpenTerminal(r.t, harness.Etcdctl(r.t), args...), r, command}
}

func (w *window) await(text string) { w.r.t.Helper(); w.Await(text, eventually.Deadline) }

// interrupt is Ctrl-C. All that was printed is kept.
func (w *window) interrupt() { w.r.t.Helper(); w.r.keep(w.command, w.Close(), nil) }

// sorted is text with its lines in order.
func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
