package auth

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/sqlbrain/sqlbrain/server/backend"
)

const (
	// loginsFree is how many logins of a source may fail in a row without a delay. One is
	// forgiven per loginInterval.
	loginsFree = 10
	// loginInterval is the time between two logins of a source that has no free ones left.
	loginInterval = time.Second
	// maxLoginDelay bounds a delay. A login that would wait longer is refused.
	maxLoginDelay = 10 * time.Second
	// maxDelayed bounds how many logins wait in all. Others that would wait are refused.
	maxDelayed = 256

	// missesFree and missInterval are the same of tokens that do not exist. Nothing waits.
	missesFree   = 100
	missInterval = 50 * time.Millisecond

	// maxSources bounds the sources that are known to have failed.
	maxSources = 4096
)

// failures knows the sources of calls that failed, and delays or refuses their next ones. A
// source is an address, or a network of 64 bits for IPv6. Success is not recorded: an attacker
// with an account must not be able to reset the count.
type failures struct {
	free     int           // failures without a consequence
	interval time.Duration // after which one more is free
	maxDelay time.Duration

	mu      sync.Mutex
	sources map[string]*failedSource
	delayed int
}

func newLoginFailures() *failures {
	return &failures{free: loginsFree, interval: loginInterval, maxDelay: maxLoginDelay, sources: make(map[string]*failedSource)}
}

func newTokenMisses() *failures {
	return &failures{free: missesFree, interval: missInterval, sources: make(map[string]*failedSource)}
}

type failedSource struct {
	// forgiven is when all failures so far are forgiven.
	forgiven time.Time
	// next is when the next call of the source may start, if it is limited.
	next time.Time
}

// limited reports whether source has no free failures left.
func (f *failures) limited(source string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limitedAt(source, time.Now())
}

func (f *failures) limitedAt(source string, now time.Time) bool {
	s := f.sources[source]
	return s != nil && s.forgiven.Sub(now) > time.Duration(f.free-1)*f.interval
}

// add records that a call of source failed.
func (f *failures) add(source string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	s := f.sources[source]
	if s == nil {
		if len(f.sources) >= maxSources {
			f.forget(now)
		}
		s = &failedSource{}
		f.sources[source] = s
	}
	if s.forgiven.Before(now) {
		s.forgiven = now
	}
	s.forgiven = s.forgiven.Add(f.interval)
	if most := now.Add(time.Duration(f.free) * f.interval); s.forgiven.After(most) {
		s.forgiven = most
	}
}

// forget makes room for sources: it removes those whose failures are forgiven, or else a quarter
// of all, so that it is not called for every source.
func (f *failures) forget(now time.Time) {
	for name, s := range f.sources {
		if !s.forgiven.After(now) {
			delete(f.sources, name)
		}
	}
	for name := range f.sources {
		if len(f.sources) <= maxSources*3/4 {
			return
		}
		delete(f.sources, name)
	}
}

// wait returns when a call of source may start; delayed says whether it had to wait. Errors:
// backend.ErrTooManyRequests if it would wait too long, or too many wait; ctx's.
func (f *failures) wait(ctx context.Context, source string) (delayed bool, err error) {
	d, err := f.reserve(source)
	if err != nil || d == 0 {
		return d != 0, err
	}
	defer f.leave()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// reserve returns how long a call of source has to wait, and takes the place that it waits
// for. After a delay that is not 0, leave must be called.
func (f *failures) reserve(source string) (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.limitedAt(source, now) {
		return 0, nil
	}
	s := f.sources[source]
	start := now.Add(f.interval)
	if s.next.After(start) {
		start = s.next
	}
	d := start.Sub(now)
	if d > f.maxDelay || f.delayed >= maxDelayed {
		return 0, backend.ErrTooManyRequests
	}
	s.next = start.Add(f.interval)
	f.delayed++
	return d, nil
}

func (f *failures) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delayed--
}

// sourceAddress returns the address that a call comes from, without a port, as far as this
// process knows. For a call of the gateway or the console, which reach the server inside this
// process, it is the last address of x-forwarded-for: they append the one they were called from.
func sourceAddress(ctx context.Context) string {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	address := p.Addr.String()
	if p.Addr.Network() == "bufconn" {
		if vs := metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"); len(vs) > 0 {
			chain := vs[len(vs)-1]
			address = strings.TrimSpace(chain[strings.LastIndexByte(chain, ',')+1:])
		}
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() && !ip.Is4In6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			address = network.String()
		}
	}
	return address
}
