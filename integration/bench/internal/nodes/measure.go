package nodes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Options are the sizes of a run.
type Options struct {
	Nodes     int           // a multiple of Conns; each has a Lease object
	Period    time.Duration // after which a Lease object is updated again
	Events    int           // created each second; these share an etcd lease, as in kube-apiserver
	TTL       time.Duration // of Events, whole seconds
	Watchers  int           // of one namespace's Events each
	Conns     int           // each has a stream of watchers, and a goroutine for each kind of request
	ValueSize int           // bytes
	Warm      time.Duration // writing before the measurement; after the TTL as many Events expire as come
	Duration  time.Duration // of the measurement
}

// Full is for figures, Tiny for tests.
var (
	Full = Options{Nodes: 10_000, Period: 10 * time.Second, Events: 1000, TTL: 15 * time.Second, Watchers: 30_000,
		Conns: 40, ValueSize: 512, Warm: 16 * time.Second, Duration: 30 * time.Second}
	Tiny = Options{Nodes: 20, Period: time.Second, Events: 20, TTL: time.Hour, Watchers: 30, Conns: 2,
		ValueSize: 64, Warm: time.Second, Duration: time.Second}
)

// Value is one number of a measurement.
type Value struct {
	Name   string // with its unit
	Number float64
}

// samples are the milliseconds of what began at from or later. n also counts the others.
type samples struct {
	from time.Time
	mu   sync.Mutex
	n    int
	ms   []float64
}

func (s *samples) add(began time.Time) {
	ms := time.Since(began).Seconds() * 1000
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n++; !began.Before(s.from) {
		s.ms = append(s.ms, ms)
	}
}

func (s *samples) measureFrom(from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = from
}

func (s *samples) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

const leases, events = "/registry/leases/", "/registry/events/"

func namespace(n int) string { return fmt.Sprintf("%snamespace-%05d/", events, n) }

// run is one measurement.
type run struct {
	Options
	start, end                time.Time // of the writers
	renewed, created, expired samples
	toAPIServer, toOthers     samples // events at kube-apiserver's two watchers, and at those of namespaces
	revisions                 []int64 // of the Lease objects; one goroutine uses each

	mu    sync.Mutex
	lease clientv3.LeaseID // of the newest Events
	left  int              // how many may still have it
}

// Run starts a system on fresh data and measures it.
func Run(ctx context.Context, env *system.Environment, s system.System, o Options) (values []Value, err error) {
	running, err := env.Start(ctx, s)
	if running != nil {
		defer func() { err = errors.Join(err, running.Close()) }()
	}
	if err != nil {
		return nil, err
	}
	var cfg workload.Config
	running.Configure(&cfg)
	var conns []*clientv3.Client
	ended := &errgroup.Group{}
	watching, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		err = errors.Join(err, ended.Wait())
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
	}()
	for range o.Conns {
		c, err := running.Connect()
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	r := &run{Options: o, revisions: make([]int64, o.Nodes)}
	_, before := usage(cfg.Processes)
	err = errors.Join(r.watch(watching, ended, conns[0], &r.toAPIServer, leases),
		r.watch(watching, ended, conns[0], &r.toAPIServer, events))
	for i, c := range conns {
		var namespaces []string
		for n := i; n < o.Watchers; n += o.Conns {
			namespaces = append(namespaces, namespace(n))
		}
		err = errors.Join(err, r.watch(watching, ended, c, &r.toOthers, namespaces...))
	}
	if err != nil {
		return nil, err
	}
	_, watched := usage(cfg.Processes)

	r.start = time.Now()
	from := r.start.Add(o.Warm)
	r.end = from.Add(o.Duration)
	for _, s := range []*samples{&r.renewed, &r.created, &r.toAPIServer, &r.toOthers} {
		s.measureFrom(from)
	}
	writers, writing := errgroup.WithContext(ctx)
	for i, c := range conns {
		writers.Go(func() error {
			return r.repeat(writing, &r.renewed, i, float64(o.Nodes)/o.Period.Seconds(), func(n int) (err error) {
				node := n % o.Nodes
				key := fmt.Sprintf("%skube-node-lease/node-%05d", leases, node)
				r.revisions[node], err = r.put(writing, c, key, r.revisions[node])
				return err
			})
		})
		writers.Go(func() error {
			return r.repeat(writing, &r.created, i, float64(o.Events), func(n int) error { return r.create(writing, c, n) })
		})
	}
	err = retry.Sleep(writing, time.Until(from))
	cpu, _ := usage(cfg.Processes)
	expired := r.expired.count()
	err = errors.Join(err, retry.Sleep(writing, o.Duration))
	cpuAtEnd, mib := usage(cfg.Processes)
	expired = r.expired.count() - expired
	if err := errors.Join(err, writers.Wait(), running.Ended()); err != nil {
		return nil, err
	}
	created, all := r.created.count(), r.created.count()+r.renewed.count()
	for began := time.Now(); r.toOthers.count() != created || r.toAPIServer.count() != all; {
		if err := retry.Sleep(ctx, 10*time.Millisecond); err != nil || time.Since(began) > time.Minute {
			return nil, fmt.Errorf("of %d writes, %d of them Events, kube-apiserver's watchers have %d and the others %d: %w",
				all, created, r.toAPIServer.count(), r.toOthers.count(), err)
		}
	}
	stop()
	if err := ended.Wait(); err != nil {
		return nil, err
	}
	values = []Value{
		{"CPU, seconds a second", (cpuAtEnd - cpu) / o.Duration.Seconds()},
		{"MiB, before the watchers", before}, {"MiB, with them", watched}, {"MiB, at the end", mib},
		{"Events that expired, a second", float64(expired) / o.Duration.Seconds()},
	}
	for _, v := range []struct {
		name string
		of   *samples
	}{{"Lease object updated", &r.renewed}, {"Event created", &r.created},
		{"until kube-apiserver's watcher has it", &r.toAPIServer}, {"until a namespace's watcher has it", &r.toOthers}} {
		values = append(values, Value{v.name + ", p50 ms", result.Quantile(v.of.ms, 0.5)},
			Value{v.name + ", p99 ms", result.Quantile(v.of.ms, 0.99)})
	}
	return values, nil
}

// repeat calls f for every Conns-th of perSecond calls, each when it is due or else as soon as it can. Delays count
// from when it was due.
func (r *run) repeat(ctx context.Context, to *samples, first int, perSecond float64, f func(n int) error) error {
	for n := first; ; n += r.Conns {
		due := r.start.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))
		if due.After(r.end) {
			return nil
		}
		if err := errors.Join(retry.Sleep(ctx, time.Until(due)), f(n)); err != nil {
			return err
		}
		to.add(due)
	}
}

// put puts a key that was last changed at the revision, as kube-apiserver does, and returns its new revision. The
// value begins with the time.
func (r *run) put(ctx context.Context, c *clientv3.Client, key string, revision int64,
	o ...clientv3.OpOption) (int64, error) {
	value := append(binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano())), make([]byte, r.ValueSize-8)...)
	answer, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(value), o...)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return 0, err
	}
	if !answer.Succeeded {
		return 0, fmt.Errorf("%s was changed after revision %d: %v", key, revision, answer.Responses)
	}
	return answer.Header.Revision, nil
}

// create creates an Event. As in kube-apiserver, others wait while their lease is granted.
func (r *run) create(ctx context.Context, c *clientv3.Client, n int) error {
	r.mu.Lock()
	if r.left--; r.left < 0 {
		granted, err := c.Grant(ctx, int64(r.TTL.Seconds()))
		if err != nil {
			r.mu.Unlock()
			return err
		}
		r.lease, r.left = granted.ID, r.Events-1
	}
	lease := r.lease
	r.mu.Unlock()
	_, err := r.put(ctx, c, fmt.Sprint(namespace(n%r.Watchers), n), 0, clientv3.WithLease(lease))
	return err
}

// watch opens a stream with a watcher of each prefix. When it returns, the server has confirmed them.
func (r *run) watch(ctx context.Context, ended *errgroup.Group, c *clientv3.Client, to *samples,
	prefixes ...string) error {
	stream, err := pb.NewWatchClient(c.ActiveConnection()).Watch(ctx)
	if err != nil {
		return err
	}
	for _, prefix := range prefixes {
		create := &pb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)),
			PrevKv: true, ProgressNotify: true}
		err = errors.Join(err, stream.Send(&pb.WatchRequest{
			RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}))
	}
	for range prefixes {
		if err == nil {
			_, err = stream.Recv()
		}
	}
	ended.Go(func() error {
		for {
			answer, err := stream.Recv()
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				return err
			case answer.Canceled:
				return errors.New("a watcher was cancelled: " + answer.CancelReason)
			}
			for _, e := range answer.Events {
				switch {
				case e.Type == mvccpb.Event_PUT:
					to.add(time.Unix(0, int64(binary.BigEndian.Uint64(e.Kv.Value)))) //nolint:gosec // see put
				case to == &r.toAPIServer:
					r.expired.add(time.Now())
				}
			}
		}
	})
	return err
}

// usage returns the CPU seconds that processes have used, and their memory in MiB.
func usage(processes []int) (cpu, mib float64) {
	for _, id := range processes {
		u := workload.UsageOf(id)
		cpu, mib = cpu+u.CPUSeconds, mib+float64(u.RSSBytes)/(1<<20)
	}
	return cpu, mib
}
