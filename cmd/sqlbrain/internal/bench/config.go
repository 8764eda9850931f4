package bench

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config describes a run. Zero values are replaced by the defaults named.
type Config struct {
	Endpoints []string    // at least one
	TLS       *tls.Config // nil: plain text
	Workload  string      // one of Workloads

	Clients   int           // concurrent requests, 16
	Conns     int           // connections they share, 4
	ValueSize int           // bytes of a value; 0: sizes as in a Kubernetes cluster
	Keys      int           // objects that exist before update, get, list, mixed and watch-latency start, 10,000
	Total     int64         // operations; 0: 10,000 unless Duration is set
	Duration  time.Duration // how long operations are started; 0: until Total
	Rate      float64       // operations started per second; 0: as fast as answers come
	Seed      uint64        // of keys, values and choices; the same seed asks for the same, 1
	Prefix    string        // of all keys, without a trailing slash; "": a unique one
	Keep      bool          // leave the keys in the store
	// Adopt takes over the objects that a run with Keep and the same Seed, Prefix
	// and ValueSize left, in place of creating Keys of them.
	Adopt bool

	PageSize     int   // keys of a page of a list, 500
	Watchers     int   // watchers of watch-latency, 10
	WatchEach    bool  // each watcher of watch-latency watches one object, not all
	Mix          Mix   // of mixed, DefaultMix
	LeaseTTL     int64 // seconds, of lease, 3600
	KeysPerLease int   // keys that share a lease, 1,000 as in kube-apiserver

	Objects   int  // objects of the objects workload, 100,000
	Updates   int  // updates of each tenth object, 10
	NoCompact bool // objects leaves the store's history alone
	// Exclusive says that nobody else writes to the store: then revisions must
	// have no gaps.
	Exclusive bool
	// NoVersions says that the server does not count the versions of keys, as kine
	// does not: they are not compared.
	NoVersions bool
	// Processes are the ids of the server's processes, if they are on this machine
	// and that has /proc: what they use is told of each phase.
	Processes []int

	RequestTimeout time.Duration // of one attempt, 10 s
	// RetryFor is how long a request that fails for a passing reason is
	// repeated, and how long a watch may deliver nothing, 60 s.
	RetryFor time.Duration

	Progress io.Writer // nil: no progress lines
	// ProgressTerminal says that Progress is a terminal: one line is rewritten.
	ProgressTerminal bool
}

// Workloads lists the workloads with what each does, in the order to show them.
var Workloads = []struct{ Name, About string }{
	{"create", "create objects that do not exist"},
	{"update", "replace objects if their revision is still the known one"},
	{"put", "replace objects whatever their revision is, which kube-apiserver never does"},
	{"get", "read single objects"},
	{"count", "count all objects"},
	{"list", "read all objects page by page at one revision"},
	{"list-all", "read all objects in one answer"},
	{"delete", "delete objects if their revision is still the known one"},
	{"mixed", "gets, lists, creates, updates and deletes in a ratio"},
	{"watch-latency", "time from the sending of a write to its event at each of many watchers"},
	{"lease", "create events that share leases, renew, revoke and let expire"},
	{"grant", "grant leases"},
	{"keepalive", "renew leases, of which each client has one"},
	{"objects", "the life of a cluster's objects: create, update, list, watch, compact"},
}

// Mix is the ratio of operations of the mixed workload.
type Mix struct{ Get, List, Create, Update, Delete int }

// DefaultMix resembles a busy cluster: heartbeats and status updates dominate.
var DefaultMix = Mix{Get: 35, List: 5, Create: 10, Update: 45, Delete: 5}

func (m *Mix) fields() []struct {
	name string
	n    *int
} {
	return []struct {
		name string
		n    *int
	}{{"get", &m.Get}, {"list", &m.List}, {"create", &m.Create}, {"update", &m.Update}, {"delete", &m.Delete}}
}

func (m Mix) sum() int { return m.Get + m.List + m.Create + m.Update + m.Delete }

// String returns m as ParseMix reads it.
func (m Mix) String() string {
	var parts []string
	for _, f := range m.fields() {
		parts = append(parts, f.name+"="+strconv.Itoa(*f.n))
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
		known := false
		for _, f := range m.fields() {
			if f.name == name {
				*f.n, known = n, true
			}
		}
		if !known {
			return m, fmt.Errorf("mix %q: want get, list, create, update or delete", part)
		}
	}
	if m.sum() == 0 {
		return m, fmt.Errorf("mix %q is empty", s)
	}
	return m, nil
}

// withDefaults fills what is unset and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	known := slices.ContainsFunc(Workloads, func(w struct{ Name, About string }) bool { return w.Name == c.Workload })
	for _, check := range []struct {
		bad bool
		msg string
	}{
		{len(c.Endpoints) == 0, "no endpoints"},
		{!known, fmt.Sprintf("unknown workload %q", c.Workload)},
		{c.ValueSize != 0 && c.ValueSize < minValue, fmt.Sprintf("a value has at least %d bytes", minValue)},
		{c.Clients < 0 || c.Conns < 0 || c.Keys < 0 || c.Total < 0 || c.Duration < 0 || c.Rate < 0 || c.PageSize < 0 ||
			c.Watchers < 0 || c.LeaseTTL < 0 || c.KeysPerLease < 0 || c.Objects < 0 || c.Updates < 0 ||
			c.RequestTimeout < 0 || c.RetryFor < 0, "a number is negative"},
		{strings.HasSuffix(c.Prefix, "/"), "the prefix ends in a slash"},
		{c.Adopt && c.Prefix == "", "to adopt objects, name their prefix"},
	} {
		if check.bad {
			return c, errors.New(check.msg)
		}
	}
	c.Clients = cmp.Or(c.Clients, 16)
	c.Conns = min(cmp.Or(c.Conns, 4), c.Clients)
	c.Keys = cmp.Or(c.Keys, 10_000)
	if c.Total == 0 && c.Duration == 0 {
		c.Total = 10_000
	}
	c.Seed = cmp.Or(c.Seed, 1)
	c.PageSize = cmp.Or(c.PageSize, 500)
	c.Watchers = cmp.Or(c.Watchers, 10)
	if c.Mix.sum() == 0 {
		c.Mix = DefaultMix
	}
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 3600)
	c.KeysPerLease = cmp.Or(c.KeysPerLease, 1000)
	c.Objects = cmp.Or(c.Objects, 100_000)
	c.Updates = cmp.Or(c.Updates, 10)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.RetryFor = cmp.Or(c.RetryFor, time.Minute)
	return c, nil
}
