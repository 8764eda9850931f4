package deterministic_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
)

// A trace is the record of a run. Its lines are in the order in which the goroutines wrote them.
type trace struct {
	mu    sync.Mutex
	start time.Time
	b     bytes.Buffer
}

func (tr *trace) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	fmt.Fprintf(&tr.b, "%v ", time.Since(tr.start))
	fmt.Fprintf(&tr.b, format, args...)
	tr.b.WriteByte('\n')
}

// record runs all programs in a bubble.
func record(t *testing.T, seed uint64, run func(*testing.T, uint64, func(*testing.T))) string {
	var tr trace
	run(t, seed, func(t *testing.T) {
		tr.start = time.Now()
		for _, p := range programs {
			p.run(t, &tr)
			tr.add("end of %s", p.name)
		}
	})
	return tr.b.String()
}

// digests returns a digest for each program of the trace.
func digests(s string) map[string]string {
	out := map[string]string{}
	for s != "" {
		i := strings.Index(s, "end of ")
		if i < 0 {
			break
		}
		name, rest, _ := strings.Cut(s[i+len("end of "):], "\n")
		sum := sha256.Sum256([]byte(s[:i]))
		out[name] = fmt.Sprintf("%x", sum[:6])
		s = rest
	}
	return out
}

var programs = []struct {
	name string
	run  func(t *testing.T, tr *trace)
}{
	{"goroutines", goroutines},
	{"selects", selects},
	{"timeouts", timeouts},
	{"maps", mapOrders},
	{"timers", timers},
	{"locks", locks},
	{"pools", pools},
	{"contexts", contexts},
	{"random", random},
	{"busy", busy},
	{"allocations", allocations},
	{"grpc", calls},
}

func goroutines(t *testing.T, tr *trace) {
	var wg sync.WaitGroup
	c := make(chan int, 3)
	for i := range 50 {
		wg.Go(func() {
			tr.add("start %d", i)
			c <- i
			tr.add("sent %d", i)
		})
	}
	wg.Go(func() {
		for range 50 {
			tr.add("got %d", <-c)
		}
	})
	wg.Wait()
}

func selects(t *testing.T, tr *trace) {
	a, b, c := make(chan int, 100), make(chan int, 100), make(chan int, 100)
	for i := range 100 {
		a <- i
		b <- i
		c <- i
	}
	for range 300 {
		select {
		case x := <-a:
			tr.add("a %d", x)
		case x := <-b:
			tr.add("b %d", x)
		case x := <-c:
			tr.add("c %d", x)
		}
	}
}

// timeouts waits for two timers of one instant. Which of them has the lower address differs between processes.
func timeouts(t *testing.T, tr *trace) {
	differs := mrand.New(mrand.NewPCG(uint64(os.Getpid()), 0))
	for range 100 {
		a, b := time.NewTimer(time.Second), time.NewTimer(time.Second)
		if reflect.ValueOf(a.C).Pointer() < reflect.ValueOf(b.C).Pointer() != (differs.IntN(2) == 0) {
			a, b = b, a
		}
		select {
		case <-a.C:
			tr.add("a")
		case <-b.C:
			tr.add("b")
		}
	}
}

type point struct {
	p    *int
	name string
}

func mapOrders(t *testing.T, tr *trace) {
	strs, ptrs, anys, structs := map[string]int{}, map[*int]int{}, map[any]int{}, map[point]int{}
	chans := map[chan int]int{}
	var sm sync.Map
	for i := range 200 {
		p := new(int)
		strs[strconv.Itoa(i)] = i
		ptrs[p] = i
		anys[p] = i
		structs[point{p, "x"}] = i
		chans[make(chan int)] = i
		sm.Store(p, i)
	}
	for k, v := range strs {
		tr.add("string %s %d", k, v)
	}
	for _, v := range ptrs {
		tr.add("pointer %d", v)
	}
	for _, v := range anys {
		tr.add("any %d", v)
	}
	for _, v := range structs {
		tr.add("struct %d", v)
	}
	for _, v := range chans {
		tr.add("channel %d", v)
	}
	sm.Range(func(_, v any) bool {
		tr.add("sync.Map %d", v)
		return true
	})
}

func timers(t *testing.T, tr *trace) {
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for j := range 5 {
				time.Sleep(time.Millisecond)
				tr.add("slept %d %d", i, j)
			}
		})
	}
	for i := range 20 {
		wg.Add(1)
		time.AfterFunc(3*time.Millisecond, func() { tr.add("func %d", i); wg.Done() })
	}
	tick := time.NewTicker(time.Millisecond)
	after := time.After(10 * time.Millisecond)
	for range 15 {
		select {
		case <-tick.C:
			tr.add("tick")
		case <-after:
			tr.add("after")
		}
	}
	tick.Stop()
	wg.Wait()
}

func locks(t *testing.T, tr *trace) {
	var mu sync.Mutex
	var rw sync.RWMutex
	cond := sync.NewCond(&mu)
	var wg sync.WaitGroup
	n := 0
	for i := range 30 {
		wg.Go(func() {
			for j := range 10 {
				mu.Lock()
				n++
				tr.add("lock %d %d", i, j)
				if j%3 == 0 {
					runtime.Gosched()
				}
				cond.Signal()
				mu.Unlock()
				rw.RLock()
				tr.add("read %d", i)
				rw.RUnlock()
				if j == 5 {
					rw.Lock()
					runtime.Gosched()
					tr.add("write %d", i)
					rw.Unlock()
				}
			}
		})
	}
	for i := range 5 {
		wg.Go(func() {
			mu.Lock()
			for n < 300 {
				cond.Wait()
				tr.add("woken %d", i)
			}
			cond.Broadcast()
			mu.Unlock()
		})
	}
	wg.Wait()
}

func pools(t *testing.T, tr *trace) {
	p := &shared
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 20 {
				b, _ := p.Get().(*bytes.Buffer)
				tr.add("pool %d %v", i, b == nil)
				if b == nil {
					b = new(bytes.Buffer)
				}
				time.Sleep(time.Duration(mrand.IntN(1000)))
				p.Put(b)
			}
		})
	}
	wg.Wait()
}

// shared survives between seeds.
var shared sync.Pool

func contexts(t *testing.T, tr *trace) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 50 {
		c, stop := context.WithTimeout(ctx, time.Hour)
		wg.Go(func() {
			defer stop()
			<-c.Done()
			tr.add("cancelled %d", i)
		})
		context.AfterFunc(c, func() { tr.add("after %d", i) })
	}
	time.Sleep(time.Second)
	cancel()
	wg.Wait()
	time.Sleep(time.Second)
}

func random(t *testing.T, tr *trace) {
	b := make([]byte, 16)
	for range 10 {
		if _, err := rand.Read(b); err != nil {
			t.Fatal(err)
		}
		tr.add("%x %d", b, mrand.Uint64())
	}
}

// busy runs for longer than the runtime's time slice, allocates, and makes system calls that block.
func busy(t *testing.T, tr *trace) {
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			h := sha256.New()
			b := make([]byte, 4096)
			for range 12 {
				for range 300 {
					h.Write(b)
					keep = make([]byte, 8192)
				}
				if d, err := os.ReadDir("/proc/self/fd"); err != nil || len(d) == 0 {
					t.Error(err)
				}
				tr.add("worked %d", i)
			}
		})
	}
	wg.Wait()
}

var keep []byte

// allocations takes memory whose clearing lasts so long that the system monitor asks for the processor meanwhile.
func allocations(t *testing.T, tr *trace) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 8 {
				runtime.KeepAlive(make([]byte, 4<<20))
				tr.add("%d", i)
			}
		})
	}
	wg.Wait()
}

func calls(t *testing.T, tr *trace) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "probe"}, DNSNames: []string{"probe"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	tr.add("certificate %x", sha256.Sum256(der))
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	for i := range 3 {
		conn, err := grpc.NewClient("passthrough:///probe",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				c, err := l.DialContext(ctx)
				return tapped{c, tr, i}, err
			}),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "probe"})))
		if err != nil {
			t.Fatal(err)
		}
		client := healthpb.NewHealthClient(conn)
		for j := range 8 {
			wg.Go(func() {
				for k := range 5 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
					tr.add("call %d %d %d: %v", i, j, k, err)
					cancel()
				}
			})
		}
		defer conn.Close()
	}
	time.Sleep(time.Minute)
	srv.Stop()
	wg.Wait()
}

// tapped records what is written to a connection.
type tapped struct {
	net.Conn
	tr *trace
	i  int
}

func (c tapped) Write(b []byte) (int, error) {
	sum := sha256.Sum256(b)
	c.tr.add("wrote on %d: %d bytes %x", c.i, len(b), sum[:4])
	return c.Conn.Write(b)
}
