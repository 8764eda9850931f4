package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
)

// clients are the programs that use the cluster. They call its RPCs directly: etcd's client
// would hide errors, and cost more.
type clients struct {
	w        *world
	recorder *history.Recorder
	auditor  *watcher // sees all revisions; the account of the store
	running  sync.WaitGroup
	began    time.Duration // since the start of the world
	stopped  chan struct{}

	keepWatches atomic.Bool // whose time is over, and read quickly

	mu          sync.Mutex
	watches     []*watch
	followed    map[*watching]bool
	leases      []*lease
	held        []*lease              // those that clients hold now
	compactions []int64               // that were asked for
	acked       map[int64]*history.Op // by revision
	newest      map[string]int64      // the newest revision that a node showed, by node
	compacted   map[string]int64      // the newest compaction that a node acknowledged, by node
}

func newClients(w *world) *clients {
	return &clients{
		w: w, recorder: history.NewRecorder(), acked: make(map[int64]*history.Op),
		newest: make(map[string]int64), compacted: make(map[string]int64),
		stopped: make(chan struct{}), followed: make(map[*watching]bool),
	}
}

// start starts the clients of the plan's workload.
func (cl *clients) start() {
	load := cl.w.plan.Workload
	cl.began = time.Since(cl.w.start)
	cl.auditor = cl.audit()
	for _, node := range nodes {
		for i := range load.Clients {
			c := cl.newClient(fmt.Sprintf("c%d-%s", i, node), node)
			cl.running.Go(c.run)
		}
	}
	for _, node := range nodes {
		if load.Stale {
			c := cl.newClient("stale-"+node, node)
			cl.running.Go(func() { c.readOnly(true) })
		}
		if load.Newest {
			c := cl.newClient("newest-"+node, node)
			cl.running.Go(func() { c.readOnly(false) })
		}
	}
	for i := range load.Watchers {
		c := cl.newClient(fmt.Sprintf("w%d", i), nodes[i%len(nodes)])
		cl.running.Go(func() { c.watch(c.rnd) })
	}
	for i := range load.Leases {
		c := cl.newClient(fmt.Sprintf("l%d", i), nodes[i%len(nodes)])
		if load.Again {
			cl.running.Go(c.grantAgain)
		} else {
			cl.running.Go(c.hold)
		}
	}
	if load.Compact > 0 {
		for i := range max(1, load.Compactors) {
			c := cl.newClient(fmt.Sprintf("compact%d", i), nodes[i])
			cl.running.Go(func() { c.compact(load.Compact) })
		}
	}
}

// stop ends all clients but the auditor.
func (cl *clients) stop() {
	close(cl.stopped)
	cl.running.Wait()
}

func (cl *clients) over() bool {
	select {
	case <-cl.stopped:
		return true
	default:
		return false
	}
}

// client is one program, which sends one request at a time.
type client struct {
	*clients
	process *process
	rnd     *rand.Rand
	node    string
	conn    *grpc.ClientConn      // nil: none
	seen    map[string]history.KV // by key; guarded by mu
}

func (cl *clients) newClient(name, node string) *client {
	return &client{clients: cl, process: newProcess(name, name), rnd: cl.w.rand("client " + name), node: node,
		seen: make(map[string]history.KV)}
}

// buffer is the size of a connection's buffers. The default is slow where connections are short.
const buffer = 4 << 10

// connect returns the connection to the client's node.
func (c *client) connect() *grpc.ClientConn {
	if c.conn != nil {
		return c.conn
	}
	options := []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return c.w.network.dial(ctx, c.process, address)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
	}
	conn, err := grpc.NewClient("passthrough:///"+c.node+clientPort, options...)
	if err != nil {
		panic(err) // the options are constants
	}
	c.conn = conn
	return conn
}

// disconnect closes the connection.
func (c *client) disconnect() {
	if c.conn != nil {
		_ = c.conn.Close() // fails only if it is closed already
		c.conn = nil
	}
}

// failed is what a client does after an error: it connects again, to another node at times.
func (c *client) failed(err error) {
	c.w.trace(c.process.name, "failed at %s: %v", c.node, err)
	switch status.Code(err) {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		c.w.fail("%s: %s answers: %v", c.process.name, c.node, err)
	}
	if outcomeOf(err) == history.Refused {
		return
	}
	c.disconnect()
	if c.rnd.IntN(3) == 0 {
		c.node = nodes[c.rnd.IntN(len(nodes))]
	}
	c.pause(50 * time.Millisecond)
}

// pause waits for up to d, or until the clients stop.
func (c *client) pause(d time.Duration) {
	t := time.NewTimer(1 + time.Duration(c.rnd.Int64N(int64(d))))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.stopped:
	}
}

// timeout returns the context of one request. Some clients are impatient.
func (c *client) timeout() (context.Context, context.CancelFunc) {
	if c.oneIn(10) { // gives up before the answer can be there, at times
		return context.WithTimeout(context.Background(),
			time.Millisecond+time.Duration(c.rnd.Int64N(int64(20*time.Millisecond))))
	}
	return context.WithTimeout(context.Background(),
		100*time.Millisecond+time.Duration(c.rnd.Int64N(int64(2*time.Second))))
}

// compositions are the requests of a client, by weight.
var compositions = []struct {
	weight  int
	compose func(author) proto.Message
}{
	{12, func(a author) proto.Message { return a.put(a.key()) }},
	{6, func(a author) proto.Message { return a.create(a.key()) }},
	{10, func(a author) proto.Message { return a.update(a.key()) }},
	{1, func(a author) proto.Message { return a.createKeeping(a.key()) }},
	{12, func(a author) proto.Message { return nil }}, // a transaction of any kind
	{4, func(a author) proto.Message { return a.delete(a.key(), "") }},
	{2, func(a author) proto.Message { return a.delete(a.span()) }},
	{12, func(a author) proto.Message { return a.read(false) }},
	{10, func(a author) proto.Message { return a.read(true) }},
}

// compose returns a function that sends a request and judges its answer. Only compose uses the client's random numbers.
func (c *client) compose() func(context.Context) error {
	a := author{c}
	if c.w.plan.Workload.Same {
		request := a.put(prefix)
		request.Lease, request.IgnoreLease = 0, false
		return func(ctx context.Context) error { return c.change(ctx, request, false) }
	}
	if c.w.plan.Workload.Single {
		key := a.hot()
		switch n := c.rnd.IntN(10); n {
		case 0, 1:
			return func(ctx context.Context) error { return c.change(ctx, &pb.DeleteRangeRequest{Key: []byte(key)}, false) }
		case 2, 3, 4, 5:
			if n > 3 { // memory has room for few keys
				key = a.key()
			}
			return func(ctx context.Context) error { return c.change(ctx, &pb.PutRequest{Key: []byte(key)}, false) }
		}
		request := &pb.RangeRequest{Key: []byte(key), Serializable: c.oneIn(2)}
		return func(ctx context.Context) error { return c.ask(ctx, request) }
	}
	if c.w.plan.Workload.Past && c.oneIn(2) || c.w.plan.Workload.Counts && c.oneIn(2) {
		request := a.read(true)
		return func(ctx context.Context) error { return c.ask(ctx, request) }
	}
	if c.w.plan.Workload.Wide > 0 && c.oneIn(3) {
		request := a.wide()
		return func(ctx context.Context) error { return c.change(ctx, request, false) }
	}
	total := 0
	for _, o := range compositions {
		total += o.weight
	}
	n := c.rnd.IntN(total)
	for _, o := range compositions {
		if n -= o.weight; n < 0 {
			request, twice := o.compose(a), false
			if request == nil {
				request, twice = a.txn()
			}
			if !writes(request) {
				if r, ok := request.(*pb.RangeRequest); ok {
					r.Serializable = c.oneIn(3)
				}
				return func(ctx context.Context) error { return c.ask(ctx, request) }
			}
			return func(ctx context.Context) error { return c.change(ctx, request, twice) }
		}
	}
	panic("not reached: n is below total")
}

// run sends requests, most of the time one after the other. A burst of requests meets in one batch.
func (c *client) run() {
	defer c.disconnect()
	load := c.w.plan.Workload
	for !c.over() {
		count := 1
		if load.Burst > 1 && c.oneIn(3) {
			count += c.rnd.IntN(load.Burst)
		}
		c.connect()
		var sent sync.WaitGroup
		errs := make([]error, count)
		for i := range count {
			ctx, cancel := c.timeout()
			send := c.compose()
			sent.Go(func() {
				defer cancel()
				errs[i] = send(ctx)
			})
		}
		sent.Wait()
		for _, err := range errs {
			if err != nil {
				c.failed(err)
				break
			}
		}
		c.pause(load.Think)
	}
}

// readOnly reads again and again what the client's node shows, or the newest state.
func (c *client) readOnly(serializable bool) {
	defer c.disconnect()
	for !c.over() {
		ctx, cancel := c.timeout()
		key, end := author{c}.bounds()
		_ = c.ask(ctx, &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end), Serializable: serializable}) // it asks again
		cancel()
		c.pause(20 * time.Millisecond)
	}
}

// call sends a request of the key space.
func (c *client) call(ctx context.Context, request proto.Message) (answer proto.Message, err error) {
	kv := pb.NewKVClient(c.connect())
	switch r := request.(type) {
	case *pb.RangeRequest:
		answer, err = kv.Range(ctx, r)
	case *pb.PutRequest:
		answer, err = kv.Put(ctx, r)
	case *pb.DeleteRangeRequest:
		answer, err = kv.DeleteRange(ctx, r)
	case *pb.TxnRequest:
		answer, err = kv.Txn(ctx, r)
	}
	return answer, err
}

// change sends a request that writes. With twice, it writes a key twice.
func (c *client) change(ctx context.Context, request proto.Message, twice bool) error {
	op := c.recorder.Begin(func(id int) history.Op {
		sign(request, history.Token(id))
		return history.Op{Request: request, Twice: twice}
	})
	node, half := c.node, halfTime(ctx)
	answer, err := c.call(ctx, request)
	if err != nil {
		op.MaxRevision = c.w.token().Revision
		c.recorder.Finish(op, outcomeOf(err), 0, nil, err)
	} else {
		revision, outcome := history.Strip(answer), history.NotApplied
		if changed(answer) {
			outcome = history.Applied
		}
		c.recorder.Finish(op, outcome, revision, answer, nil)
		c.acknowledged(op)
		if outcome == history.Applied && time.Now().Before(half) {
			c.shows(shown{node: node}, revision)
		}
	}
	c.w.trace(c.process.name, "%v", op)
	return err
}

// halfTime returns when half of the time of a request is over. A node that forwards a write waits for so long, at
// least, until it has applied the write, before it answers.
func halfTime(ctx context.Context) time.Time {
	end, _ := ctx.Deadline() // all requests have one
	return time.Now().Add(time.Until(end) / 2)
}

// ask sends a request that reads.
func (c *client) ask(ctx context.Context, request proto.Message) error {
	_, err := c.read(ctx, request)
	return err
}

func (c *client) read(ctx context.Context, request proto.Message) ([]history.KV, error) {
	read := c.recorder.BeginRead(history.Read{Request: request, Serializable: serializable(request)})
	shown, sent := c.shown(), time.Now()
	answer, err := c.call(ctx, request)
	switch {
	case err == nil:
	case outcomeOf(err) == history.Refused:
		c.recorder.RefuseRead(read, err)
		return nil, err
	default:
		return nil, err
	}
	revision := history.Strip(answer)
	c.recorder.FinishRead(read, revision, answer)
	if !read.Serializable {
		c.w.judgeWitness(shown.node, sent, revision)
	}
	c.shows(shown, revision)
	c.w.trace(c.process.name, "read %v: revision %d", request, revision)
	r, ok := answer.(*pb.RangeResponse)
	if !ok {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learn(answer)
	return keyValues(r), nil
}

// shown is the newest revision that a node showed to readers, or acknowledged in time. The answer to a write that takes
// long can be ahead of its node.
type shown struct {
	node     string
	revision int64
}

// shown returns what the client's node has shown.
func (c *client) shown() shown {
	c.mu.Lock()
	defer c.mu.Unlock()
	return shown{c.node, c.newest[c.node]}
}

// shows notes that a node shows a revision, and checks that it has shown none before that is newer.
func (c *client) shows(before shown, revision int64) {
	c.mu.Lock()
	c.newest[before.node] = max(c.newest[before.node], revision)
	c.mu.Unlock()
	c.w.machines[before.node].look()
	if revision < before.revision && !c.w.plan.reuses() {
		c.w.fail("%s shows revision %d to %s, and has shown %d", before.node, revision, c.process.name, before.revision)
	}
}

// prefix is that of all keys without leases.
const prefix = "k/"

var all = history.Range{Key: prefix, End: "k0"}

func (c *client) key() string { return fmt.Sprintf("%s%d", prefix, c.rnd.IntN(c.w.plan.Workload.Keys)) }

func outcomeOf(err error) history.Outcome {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
		codes.Unimplemented:
		return history.Refused
	default:
		return history.Unknown
	}
}

// acknowledged checks that no two requests are acknowledged with one revision. The history
// shows that too, but after a loss of data there is none.
func (c *client) acknowledged(op *history.Op) {
	if op.Outcome != history.Applied || op.Revoke != 0 {
		return
	}
	c.mu.Lock()
	other := c.acked[op.Revision]
	c.acked[op.Revision] = op
	c.mu.Unlock()
	if other != nil && !c.w.plan.reuses() {
		c.w.fail("one revision was acknowledged twice:\n  %v\n  %v", other, op)
	}
}

func (c *client) putKey(ctx context.Context, key string, lease int64) error {
	return c.change(ctx, &pb.PutRequest{Key: []byte(key), Lease: lease}, false)
}

func keyValues(r *pb.RangeResponse) []history.KV {
	var kvs []history.KV
	for _, kv := range r.GetKvs() {
		kvs = append(kvs, model.FromProto(kv))
	}
	return kvs
}

// probe writes and reads through a node until both succeed, or end.
func (cl *clients) probe(node string, end time.Time) (err error) {
	c := cl.newClient("probe-"+node, node)
	defer c.disconnect()
	for time.Now().Before(end) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if err = c.putKey(ctx, "probe/"+node, 0); err == nil {
			request := &pb.RangeRequest{Key: []byte(all.Key), RangeEnd: []byte(all.End)}
			if cl.w.plan.Workload.Single {
				request.RangeEnd = nil
			}
			_, err = c.read(ctx, request)
		}
		cancel()
		if err == nil {
			return nil
		}
		c.disconnect()
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// compact compacts from time to time what the auditor has seen, often all of it, and at times twice at once.
func (c *client) compact(every time.Duration) {
	defer c.disconnect()
	for !c.over() {
		c.pause(2 * every)
		c.connect()
		var sent sync.WaitGroup
		var failed error
		for range 1 + c.rnd.IntN(2)*c.rnd.IntN(2) {
			at := c.auditor.last()
			if c.oneIn(2) {
				at -= c.rnd.Int64N(30)
			}
			physical := c.oneIn(2)
			if at < 1 {
				continue
			}
			ctx, cancel := c.timeout()
			sent.Go(func() {
				defer cancel()
				if err := c.compactAt(ctx, at, physical); err != nil {
					c.mu.Lock()
					failed = err
					c.mu.Unlock()
				}
			})
		}
		sent.Wait()
		if failed != nil {
			c.failed(failed)
		}
	}
}

// compactAt compacts once, and checks that what was compacted can no longer be read then.
func (c *client) compactAt(ctx context.Context, at int64, physical bool) error {
	before, _ := c.recorder.Compactions()
	node := c.node
	c.recorder.BeginCompact(at)
	c.mu.Lock()
	c.compactions = append(c.compactions, at)
	c.mu.Unlock()
	answer, err := pb.NewKVClient(c.connect()).Compact(ctx, &pb.CompactionRequest{Revision: at, Physical: physical})
	c.w.trace(c.process.name, "compaction at %d: %v", at, err)
	c.mu.Lock()
	others := 0 // that can be the reason of a refusal
	for _, other := range c.compactions {
		if other >= at {
			others++
		}
	}
	c.mu.Unlock()
	if err != nil && outcomeOf(err) == history.Refused && others < 2 {
		c.w.fail("a compaction at %d was refused: %v", at, err)
	}
	if err != nil {
		return err
	}
	if answer.Header.Revision < at {
		c.w.fail("a compaction at %d was answered at revision %d", at, answer.Header.Revision)
	}
	if before >= at {
		c.w.fail("a compaction at %d was accepted, after one at %d", at, before)
	}
	c.recorder.FinishCompact(at)
	c.w.judgeMark(at)
	c.mu.Lock()
	c.compacted[node] = max(c.compacted[node], at)
	c.mu.Unlock()
	for _, rev := range []int64{at, at - 1} {
		if rev > 0 {
			// an error is judged too
			_ = c.ask(ctx, &pb.RangeRequest{Key: []byte(all.Key), RangeEnd: []byte(all.End), Revision: rev})
		}
	}
	return nil
}
