package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config describes a run. Start with DefaultConfig.
type Config struct {
	Endpoints []string    // at least one
	TLS       *tls.Config // nil: plain text
	Workload  string      // one of Workloads

	Clients   int           // concurrent requests
	Conns     int           // connections they share, at most one for each client
	ValueSize int           // bytes of a value; 0: sizes as in a Kubernetes cluster
	Keys      int           // objects that exist before update, get, list, mixed, watch-latency and churn start
	Total     int64         // operations; 0: 10,000 unless Duration is set
	Duration  time.Duration // how long operations are started; 0: until Total
	Rate      float64       // operations started per second; 0: as fast as answers come
	Seed      uint64        // of keys, values and choices; the same seed asks for the same
	Prefix    string        // of all keys, without a trailing slash; "": a unique one
	Keep      bool          // leave the keys in the store
	// Adopt takes over the objects that a run with Keep and the same Seed, Prefix
	// and ValueSize left, in place of creating Keys of them.
	Adopt bool

	PageSize     int   // keys of a page of a list
	Watchers     int   // watchers of watch-latency and churn
	WatchEach    bool  // each watcher of watch-latency watches one object, not all
	Mix          Mix   // of mixed
	LeaseTTL     int64 // seconds, of lease
	KeysPerLease int   // keys that share a lease

	Objects   int  // objects of the objects workload
	Updates   int  // updates of each tenth object
	NoCompact bool // objects leaves the store's history alone
	// Exclusive says that no other client writes to the store, so that revisions
	// must have no gaps.
	Exclusive bool
	// NoVersions says that the server does not count the versions of keys, as kine
	// does not: they are not compared.
	NoVersions bool
	// Processes are the ids of the server's processes, if they are on this machine
	// and it has /proc: the report of each phase contains their usage.
	Processes []int

	RequestTimeout time.Duration // of one attempt
	// RetryFor is how long a request that fails for a passing reason is
	// repeated, and how long a watch may deliver nothing.
	RetryFor time.Duration

	Progress io.Writer // nil: no progress lines
	// ProgressTerminal says that Progress is a terminal: one line is rewritten.
	ProgressTerminal bool
}

// DefaultConfig returns the default configuration, which names no workload.
func DefaultConfig() Config {
	return Config{
		Endpoints: []string{"127.0.0.1:2379"},
		Clients:   16, Conns: 4, Keys: 10_000, Seed: 1,
		PageSize: 500, Watchers: 10, Mix: Mix{Get: 35, List: 5, Create: 10, Update: 45, Delete: 5}, // heartbeats and status updates dominate a busy cluster
		LeaseTTL: 3600, KeysPerLease: 1000, // as in kube-apiserver
		Objects: 100_000, Updates: 10,
		RequestTimeout: 10 * time.Second, RetryFor: time.Minute,
	}
}

// Mix is the ratio of operations of the mixed workload.
type Mix struct{ Get, List, Create, Update, Delete int }

// operation is one of a mix.
type operation struct {
	name  string
	share *int
	step  func(*worker, context.Context) error
}

func (m *Mix) operations() []operation {
	return []operation{
		{"get", &m.Get, (*worker).getRandom},
		{"list", &m.List, (*worker).listNamespace},
		{"create", &m.Create, (*worker).createNext},
		{"update", &m.Update, changeRandom((*worker).update)},
		{"delete", &m.Delete, changeRandom((*worker).remove)},
	}
}

func (m Mix) sum() int { return m.Get + m.List + m.Create + m.Update + m.Delete }

// String returns m as ParseMix reads it.
func (m Mix) String() string {
	var parts []string
	for _, op := range m.operations() {
		parts = append(parts, op.name+"="+strconv.Itoa(*op.share))
	}
	return strings.Join(parts, ",")
}

// ParseMix reads a ratio such as "get=60,list=5,update=35"; what is not named
// does not occur.
func ParseMix(s string) (Mix, error) {
	var m Mix
	for part := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > 1_000_000 {
			return m, fmt.Errorf("mix %q: want name=number", part)
		}
		operations := m.operations()
		i := slices.IndexFunc(operations, func(op operation) bool { return op.name == name })
		if i < 0 {
			return m, fmt.Errorf("mix %q: want get, list, create, update or delete", part)
		}
		*operations[i].share = n
	}
	if m.sum() == 0 {
		return m, fmt.Errorf("mix %q is empty", s)
	}
	return m, nil
}

// check refuses what cannot work.
func (c *Config) check() error {
	for _, check := range []struct {
		bad bool
		msg string
	}{
		{len(c.Endpoints) == 0, "no endpoints"},
		{findWorkload(c.Workload) == nil, fmt.Sprintf("unknown workload %q", c.Workload)},
		{c.ValueSize != 0 && c.ValueSize < minValue, fmt.Sprintf("a value has at least %d bytes", minValue)},
		{c.Keys < 0 || c.Total < 0 || c.Duration < 0 || c.Rate < 0 || c.Watchers < 0 || c.Updates < 0, "a number is negative"},
		{c.Clients < 1 || c.Conns < 1 || c.PageSize < 1 || c.LeaseTTL < 1 || c.KeysPerLease < 1 || c.Objects < 1 ||
			c.RequestTimeout < 1 || c.RetryFor < 1, "a number is not positive"},
		{strings.HasSuffix(c.Prefix, "/"), "the prefix ends in a slash"},
		{c.Adopt && c.Prefix == "", "to adopt objects, name their prefix"},
	} {
		if check.bad {
			return errors.New(check.msg)
		}
	}
	return nil
}
