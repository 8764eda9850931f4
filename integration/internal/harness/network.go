package harness

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// Network is all ways between the nodes, and between them and the database.
type Network struct {
	t testing.TB

	database []*Proxy   // by node; nil with etcd
	urls     []string   // of the database, for each node
	peers    [][]*Proxy // from, to; nil on the diagonal
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

func startNetwork(t testing.TB, size int, datastore string) *Network {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a network between the nodes needs Linux, which tells whom a connection is from")
	}
	n := &Network{t: t, pids: make(map[int]int)}
	t.Cleanup(n.stop)
	n.peers = make([][]*Proxy, size)
	for i := range n.peers {
		n.peers[i] = make([]*Proxy, size)
		if datastore != "" {
			proxy, url := StartProxy(t, datastore)
			n.database, n.urls = append(n.database, proxy), append(n.urls, url)
		}
	}
	return n
}

// join opens the door of node i, which listens on port for its peers, and
// returns its address.
func (n *Network) join(i, port int) string {
	n.t.Helper()
	for from := range n.peers {
		if from != i {
			n.peers[from][i] = newProxy(fmt.Sprintf("127.0.0.1:%d", port))
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
	n.mu.Lock()
	pids := maps.Clone(n.pids)
	n.mu.Unlock()
	from := originOf(conn, pids)
	if from < 0 || from == to {
		_ = conn.Close()
		return
	}
	n.peers[from][to].serve(conn)
}

// stop ends everything. The nodes have ended by then.
func (n *Network) stop() {
	for i := range n.doors {
		n.shut(i)
	}
	for _, w := range n.ways(func(int, int) bool { return true }, true) {
		w.Refuse()
	}
	n.done.Wait()
}

// NetworkFault is something done to a way: a method of Proxy, or Delay.
type NetworkFault func(*Proxy)

// Delay returns a fault that delays everything by d, more or less a half, in each direction.
func Delay(d time.Duration) NetworkFault {
	return func(w *Proxy) { w.Delay(d + rand.N(2*d)) }
}

// ways returns those between nodes that the predicate names, and with database
// those from them to the database; for the latter, to is -1.
func (n *Network) ways(of func(from, to int) bool, database bool) (ways []*Proxy) {
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
func (n *Network) Database(i int, f NetworkFault) { f(n.database[i]) }

// Peers does f to all ways between node i and other nodes, in both directions. If all
// refuse, the node's listener does, as by a firewall.
func (n *Network) Peers(i int, f NetworkFault) {
	n.t.Helper()
	reachable := false
	for _, w := range n.ways(func(from, to int) bool { return from == i || to == i }, false) {
		f(w)
		reachable = reachable || !w.refuses()
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
		f(w)
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
		w.Heal()
		w.Delay(0)
	}
	for i := range n.doors {
		n.open(i)
	}
}
