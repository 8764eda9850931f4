package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
)

// clients are the programs that use the cluster. They call its RPCs directly: etcd's client
// would hide errors, and cost more.
type clients struct {
	w        *world
	recorder *history.Recorder
	auditor  *watcher // sees all revisions; the account of the store
	running  sync.WaitGroup
	stopped  chan struct{}

	mu        sync.Mutex
	watches   []*watch
	leases    []*lease
	compacted int64                 // the newest revision that a compaction was asked for
	acked     map[int64]*history.Op // by revision
}

func newClients(w *world) *clients {
	return &clients{w: w, recorder: history.NewRecorder(), acked: make(map[int64]*history.Op), stopped: make(chan struct{})}
}

// start starts the clients of the plan's workload.
func (cl *clients) start() {
	load := cl.w.plan.Workload
	cl.auditor = cl.audit()
	for _, node := range nodes {
		for i := range load.Clients {
			c := cl.newClient(fmt.Sprintf("c%d-%s", i, node), node)
			cl.running.Go(c.run)
		}
	}
	for i := range load.Watchers {
		c := cl.newClient(fmt.Sprintf("w%d", i), nodes[i%len(nodes)])
		cl.running.Go(func() { c.watch(c.rnd) })
	}
	for i := range load.Leases {
		c := cl.newClient(fmt.Sprintf("l%d", i), nodes[i%len(nodes)])
		cl.running.Go(c.hold)
	}
	if load.Compact > 0 {
		c := cl.newClient("compact", nodes[0])
		cl.running.Go(func() { c.compact(load.Compact) })
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
	conn    *grpc.ClientConn // nil: none
}

func (cl *clients) newClient(name, node string) *client {
	return &client{clients: cl, process: newProcess(name, name), rnd: cl.w.rand("client " + name), node: node}
}

// buffer is the size of a connection's buffers. The default is slow where connections are short.
const buffer = 4 << 10

// connect returns the connection to the client's node.
func (c *client) connect() *grpc.ClientConn {
	if c.conn != nil {
		return c.conn
	}
	conn, err := grpc.NewClient("passthrough:///"+c.node+clientPort,
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
	)
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
	return context.WithTimeout(context.Background(), 100*time.Millisecond+time.Duration(c.rnd.Int64N(int64(2*time.Second))))
}

// actions are what a client does, by weight.
var actions = []struct {
	weight int
	do     func(*client, context.Context) error
}{
	{20, (*client).put},
	{10, (*client).compareAndSet},
	{8, (*client).putAndDelete},
	{4, (*client).deleteKey},
	{4, (*client).deleteAll},
	{12, (*client).get},
	{12, (*client).list},
	{6, (*client).listOld},
}

func (c *client) run() {
	defer c.disconnect()
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	for !c.over() {
		n := c.rnd.IntN(total)
		for _, a := range actions {
			if n -= a.weight; n < 0 {
				ctx, cancel := c.timeout()
				if err := a.do(c, ctx); err != nil {
					c.failed(err)
				}
				cancel()
				break
			}
		}
		c.pause(c.w.plan.Workload.Think)
	}
}

// prefix is that of all keys without leases.
const prefix = "k/"

var all = history.Range{Key: prefix, End: "k0"}

func (c *client) key() string { return fmt.Sprintf("%s%d", prefix, c.rnd.IntN(c.w.plan.Workload.Keys)) }

func outcomeOf(err error) history.Outcome {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return history.Refused
	default:
		return history.Unknown
	}
}

// finish records the answer to a write.
func (c *client) finish(op *history.Op, outcome history.Outcome, header *pb.ResponseHeader, observed []history.KV, err error) error {
	if err != nil {
		c.recorder.Finish(op, outcomeOf(err), 0, nil, err)
	} else {
		c.recorder.Finish(op, outcome, header.Revision, observed, nil)
		c.acknowledged(op)
	}
	c.w.trace(c.process.name, "%v", op)
	return err
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
	if other != nil {
		c.w.fail("one revision was acknowledged twice:\n  %v\n  %v", other, op)
	}
}

func (c *client) put(ctx context.Context) error { return c.putKey(ctx, c.key(), 0) }

func (c *client) putKey(ctx context.Context, key string, lease int64) error {
	op := c.recorder.Begin(func(id int) history.Op {
		return history.Op{Puts: []history.Put{{Key: key, Value: history.Token(id), Lease: lease}}}
	})
	r, err := pb.NewKVClient(c.connect()).Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte(op.Puts[0].Value), Lease: lease})
	return c.finish(op, history.Applied, r.GetHeader(), nil, err)
}

// compareAndSet reads two keys and changes them if neither changed since.
func (c *client) compareAndSet(ctx context.Context) error {
	mod := map[string]int64{}
	kvs, err := c.read(ctx, history.Read{Range: all, Serializable: c.rnd.IntN(4) == 0})
	if err != nil {
		return err
	}
	var keys []string
	for range 2 {
		if k := c.key(); len(keys) == 0 || keys[0] != k {
			keys = append(keys, k)
			mod[k] = 0
		}
	}
	for _, kv := range kvs {
		if _, wanted := mod[kv.Key]; wanted {
			mod[kv.Key] = kv.ModRevision
		}
	}
	return c.txn(ctx, keys, func(id int) history.Op {
		op := history.Op{Compare: mod}
		for _, k := range keys {
			op.Puts = append(op.Puts, history.Put{Key: k, Value: history.Token(id)})
		}
		return op
	})
}

// putAndDelete changes two keys in one revision.
func (c *client) putAndDelete(ctx context.Context) error {
	put, gone := c.key(), c.key()
	if put == gone {
		return nil
	}
	return c.txn(ctx, nil, func(id int) history.Op {
		return history.Op{Puts: []history.Put{{Key: put, Value: history.Token(id)}}, Deletes: []history.Range{{Key: gone}}}
	})
}

// txn sends an op as one transaction; its else branch reads the keys compared.
func (c *client) txn(ctx context.Context, compared []string, compose func(id int) history.Op) error {
	op := c.recorder.Begin(compose)
	request := &pb.TxnRequest{}
	for _, key := range compared {
		request.Compare = append(request.Compare, &pb.Compare{
			Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: op.Compare[key]},
		})
		request.Failure = append(request.Failure, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}})
	}
	for _, p := range op.Puts {
		request.Success = append(request.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte(p.Key), Value: []byte(p.Value), Lease: p.Lease},
		}})
	}
	for _, d := range op.Deletes {
		request.Success = append(request.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(d.Key), RangeEnd: []byte(d.End)},
		}})
	}
	r, err := pb.NewKVClient(c.connect()).Txn(ctx, request)
	if err != nil || r.Succeeded {
		return c.finish(op, history.Applied, r.GetHeader(), nil, err)
	}
	var observed []history.KV
	for _, o := range r.Responses {
		observed = append(observed, keyValues(o.GetResponseRange())...)
	}
	return c.finish(op, history.NotApplied, r.Header, observed, nil)
}

func (c *client) deleteKey(ctx context.Context) error {
	return c.deleteRange(ctx, history.Range{Key: c.key()})
}

func (c *client) deleteAll(ctx context.Context) error { return c.deleteRange(ctx, all) }

func (c *client) deleteRange(ctx context.Context, r history.Range) error {
	op := c.recorder.Begin(func(int) history.Op { return history.Op{Deletes: []history.Range{r}} })
	answer, err := pb.NewKVClient(c.connect()).DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(r.Key), RangeEnd: []byte(r.End)})
	outcome := history.Applied
	if answer.GetDeleted() == 0 {
		outcome = history.NotApplied
	}
	return c.finish(op, outcome, answer.GetHeader(), nil, err)
}

func (c *client) get(ctx context.Context) error {
	_, err := c.read(ctx, history.Read{Range: history.Range{Key: c.key()}, Serializable: c.rnd.IntN(4) == 0})
	return err
}

func (c *client) list(ctx context.Context) error {
	_, err := c.read(ctx, history.Read{Range: history.Range{Key: "\x00", End: "\x00"}, Serializable: c.rnd.IntN(4) == 0})
	return err
}

func (c *client) listOld(ctx context.Context) error {
	newest := c.recorder.Newest()
	_, err := c.read(ctx, history.Read{Range: all, Asked: max(1, newest-c.rnd.Int64N(40)), Serializable: c.rnd.IntN(4) == 0})
	return err
}

func (c *client) read(ctx context.Context, r history.Read) ([]history.KV, error) {
	read := c.recorder.BeginRead(r)
	answer, err := pb.NewKVClient(c.connect()).Range(ctx, &pb.RangeRequest{
		Key: []byte(r.Key), RangeEnd: []byte(r.End), Revision: r.Asked, Serializable: r.Serializable,
	})
	if err != nil {
		return nil, err
	}
	kvs := keyValues(answer)
	c.recorder.FinishRead(read, answer.Header.Revision, kvs)
	c.w.trace(c.process.name, "read [%q, %q) at %d (serializable %v): %d keys at revision %d", r.Key, r.End, r.Asked, r.Serializable, len(kvs), answer.Header.Revision)
	return kvs, nil
}

func keyValues(r *pb.RangeResponse) []history.KV {
	var kvs []history.KV
	for _, kv := range r.GetKvs() {
		kvs = append(kvs, history.FromProto(kv))
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
			_, err = c.read(ctx, history.Read{Range: all})
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

// compact compacts from time to time what the auditor has seen.
func (c *client) compact(every time.Duration) {
	defer c.disconnect()
	for !c.over() {
		c.pause(2 * every)
		c.mu.Lock()
		at := c.auditor.last() - c.rnd.Int64N(30)
		if at <= c.compacted {
			c.mu.Unlock()
			continue
		}
		c.compacted = at
		c.mu.Unlock()
		ctx, cancel := c.timeout()
		_, err := pb.NewKVClient(c.connect()).Compact(ctx, &pb.CompactionRequest{Revision: at, Physical: c.rnd.IntN(2) == 0})
		cancel()
		c.w.trace(c.process.name, "compaction at %d: %v", at, err)
		if err != nil {
			c.failed(err)
		}
	}
}
