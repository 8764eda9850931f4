package harness

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// Network is all ways between the nodes, and between them and the database.
type Network struct {
	t      testing.TB
	server *toxiproxy.ApiServer
	url    *url.URL // of the database; nil with etcd

	database []*way   // by node
	peers    [][]*way // from, to; nil on the diagonal
	doors    []*door
	done     sync.WaitGroup

	mu   sync.Mutex
	pids map[int]int // by node
}

// door is the listener to which the peers of a node connect. While the node is down,
// it refuses connections, as the kernel does for a port without a listener.
type door struct {
	address  string
	listener net.Listener // nil while it is shut
	vacant   bool         // the node is down
}

// way is one way through a proxy.
type way struct {
	proxy *toxiproxy.Proxy
	cut   bool
}

func startNetwork(t testing.TB, size int, datastore string) *Network {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a network between the nodes needs Linux, which tells whom a connection is from")
	}
	n := &Network{t: t, pids: make(map[int]int)}
	n.server = toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	t.Cleanup(n.stop)
	if datastore != "" {
		u, err := url.Parse(datastore)
		if err != nil {
			t.Fatal(err)
		}
		n.url = u
		for i := range size {
			n.database = append(n.database, n.newWay(fmt.Sprintf("node%d-database", i), u.Host))
		}
	}
	n.peers = make([][]*way, size)
	for i := range n.peers {
		n.peers[i] = make([]*way, size)
	}
	return n
}

// newWay starts a proxy to a host.
func (n *Network) newWay(name, to string) *way {
	n.t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(n.t))
	w := &way{proxy: toxiproxy.NewProxy(n.server, name, listen, to)}
	if err := w.proxy.Start(); err != nil {
		n.t.Fatalf("%s: %v", name, err)
	}
	return w
}

// databaseURL is the URL of the database for node i.
func (n *Network) databaseURL(i int) string {
	u := *n.url
	u.Host = n.database[i].proxy.Listen
	return u.String()
}

// join opens the door of node i, which listens on port for its peers, and
// returns its address.
func (n *Network) join(i, port int) string {
	n.t.Helper()
	for from := range n.peers {
		if from != i {
			n.peers[from][i] = n.newWay(fmt.Sprintf("node%d-node%d", from, i), fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	n.doors = append(n.doors, &door{address: fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(n.t))})
	n.open(i)
	return n.doors[i].address
}

func (n *Network) open(i int) {
	n.t.Helper()
	d := n.doors[i]
	if d.listener != nil || d.vacant {
		return
	}
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		n.t.Fatal(err)
	}
	d.listener = listener
	n.done.Go(func() { n.receive(listener, i) })
}

func (n *Network) shut(i int) {
	n.t.Helper()
	d := n.doors[i]
	if d.listener == nil {
		return
	}
	if err := d.listener.Close(); err != nil {
		n.t.Error(err)
	}
	d.listener = nil
}

// came records that node i runs and its process; went records that it has ended.
func (n *Network) came(i, pid int) {
	n.mu.Lock()
	n.pids[i] = pid
	n.mu.Unlock()
	n.doors[i].vacant = false
	n.open(i)
}

func (n *Network) went(i int) {
	n.doors[i].vacant = true
	n.shut(i)
}

// receive hands connections to node i to the ways they belong to.
func (n *Network) receive(listener net.Listener, i int) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // shut
		}
		n.done.Go(func() { n.hand(conn, i) })
	}
}

func (n *Network) hand(conn net.Conn, to int) {
	defer conn.Close() //nolint:errcheck // closed before, in most cases
	n.mu.Lock()
	pids := maps.Clone(n.pids)
	n.mu.Unlock()
	from := originOf(conn, pids)
	if from < 0 || from == to {
		return
	}
	through, err := net.Dial("tcp", n.peers[from][to].proxy.Listen)
	if err != nil {
		return // cut
	}
	defer through.Close() //nolint:errcheck // closed before, in most cases
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{conn, through}, {through, conn}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			// Either end ends both.
			_ = pair[0].Close()
			_ = pair[1].Close()
		})
	}
	both.Wait()
}

// stop ends everything. The nodes have ended by then.
func (n *Network) stop() {
	for i := range n.doors {
		n.shut(i)
	}
	for _, w := range n.ways(func(int, int) bool { return true }, true) {
		w.heal(n.t)
		w.proxy.Stop()
	}
	n.done.Wait()
}

// NetworkFault is something done to a way.
type NetworkFault func(*way, testing.TB)

// Cut refuses connections and resets those there are.
func Cut(w *way, _ testing.TB) {
	w.cut = true
	w.proxy.Stop()
}

// Reset resets the connections there are; new ones work.
func Reset(w *way, t testing.TB) {
	if w.cut {
		return
	}
	w.proxy.Stop()
	if err := w.proxy.Start(); err != nil {
		t.Errorf("%s: %v", w.proxy.Name, err)
	}
}

// Swallow accepts connections and forwards nothing, like a dropped route. The
// swallowed bytes stay lost: the connections end when the fault ends.
func Swallow(w *way, t testing.TB) {
	w.toxic(t, "timeout", `{"timeout": 0}`)
}

// Delay returns a fault that delays everything by d, more or less a half.
func Delay(d time.Duration) NetworkFault {
	return func(w *way, t testing.TB) {
		ms := d.Milliseconds()
		w.toxic(t, "latency", fmt.Sprintf(`{"latency": %d, "jitter": %d}`, ms, ms/2))
	}
}

func (w *way) toxic(t testing.TB, kind, attributes string) {
	t.Helper()
	for _, direction := range []string{"upstream", "downstream"} {
		name := kind + "-" + direction
		if w.proxy.Toxics.GetToxic(name) != nil {
			continue // two faults may share a way
		}
		toxic := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": %s}`, name, kind, direction, attributes)
		if _, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			t.Fatalf("%s: %v", w.proxy.Name, err)
		}
	}
}

func (w *way) heal(t testing.TB) {
	w.proxy.Toxics.ResetToxics(context.Background())
	if w.cut {
		w.cut = false
		if err := w.proxy.Start(); err != nil {
			t.Errorf("%s: %v", w.proxy.Name, err)
		}
	}
}

// ways returns those between nodes that the predicate names, and with database
// those from them to the database; for the latter, to is -1.
func (n *Network) ways(of func(from, to int) bool, database bool) (ways []*way) {
	for from, row := range n.peers {
		for to, w := range row {
			if w != nil && of(from, to) {
				ways = append(ways, w)
			}
		}
	}
	if database {
		for i, w := range n.database {
			if of(i, -1) {
				ways = append(ways, w)
			}
		}
	}
	return ways
}

// Database does f to the way between node i and the database.
func (n *Network) Database(i int, f NetworkFault) { n.t.Helper(); f(n.database[i], n.t) }

// Peers does f to all ways between node i and other nodes, in both directions. If f
// cuts them, connections are refused, as by a firewall.
func (n *Network) Peers(i int, f NetworkFault) {
	n.t.Helper()
	reachable := false
	for _, w := range n.ways(func(from, to int) bool { return from == i || to == i }, false) {
		f(w, n.t)
		reachable = reachable || !w.cut
	}
	if !reachable {
		n.shut(i)
	}
}

// From does f to the ways on which node i connects to others; those on which
// others connect to it stay.
func (n *Network) From(i int, f NetworkFault) {
	n.t.Helper()
	for _, w := range n.ways(func(from, _ int) bool { return from == i }, false) {
		f(w, n.t)
	}
}

// Isolate does f to all ways from and to node i, that to the database included.
func (n *Network) Isolate(i int, f NetworkFault) {
	n.t.Helper()
	n.Peers(i, f)
	if n.HasDatabase() {
		n.Database(i, f)
	}
}

// HasDatabase reports whether there are ways to a database: not with etcd.
func (n *Network) HasDatabase() bool { return n.database != nil }

// Heal ends every fault.
func (n *Network) Heal() {
	n.t.Helper()
	for _, w := range n.ways(func(int, int) bool { return true }, true) {
		w.heal(n.t)
	}
	for i := range n.doors {
		n.open(i)
	}
}
