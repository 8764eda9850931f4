package workload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config describes a run. Start with DefaultConfig.
type Config struct {
	Endpoints []string // at least one
	Workload  string   // one of Workloads

	Clients   int           // concurrent requests
	Conns     int           // connections they share, at most one for each client
	ValueSize int           // bytes of a value; 0: sizes as in a Kubernetes cluster
	Keys      int           // objects that exist before the workloads that do not begin with none
	Total     int64         // operations; 0: 10,000 unless Duration is set
	Duration  time.Duration // how long operations are started; 0: until Total
	Rate      float64       // operations started per second; 0: as fast as answers come
	Seed      uint64        // of keys, values and choices; the same seed asks for the same
	Prefix    string        // of all keys, without a trailing slash
	// After is a run on the same store. This one continues with its objects, in place of
	// creating Keys of them, and has its Seed, Prefix and ValueSize.
	After *Report

	PageSize  int            // keys of a page of a list
	Watchers  int            // watchers of watch-latency and churn
	WatchEach bool           // each watcher of watch-latency watches one object, not all
	Mix       map[string]int // ratio of the operations of mixed, by name
	LeaseTTL  int64          // seconds, of the leases of grant and keepalive

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
}

// DefaultConfig returns the default configuration, which names no workload.
func DefaultConfig() Config {
	return Config{
		Endpoints: []string{"127.0.0.1:2379"},
		Clients:   16, Conns: 4, Keys: 10_000, Seed: 1, PageSize: 500, Watchers: 10,
		// heartbeats and status updates dominate a busy cluster
		Mix:            map[string]int{"get": 35, "list": 5, "create": 10, "update": 45, "delete": 5},
		LeaseTTL:       3600, // as in kube-apiserver
		RequestTimeout: 10 * time.Second, RetryFor: time.Minute,
	}
}

// operations are those of a mix.
var operations = map[string]step{
	"get":    (*worker).getRandom,
	"list":   (*worker).listNamespace,
	"create": (*worker).createNext,
	"update": changeRandom((*worker).update),
	"delete": changeRandom((*worker).remove),
}

// draw returns one of the operations of mix, for a number below the sum of its shares.
func draw(mix map[string]int, n int) step {
	for _, name := range slices.Sorted(maps.Keys(mix)) {
		if n -= mix[name]; n < 0 {
			return operations[name]
		}
	}
	return nil
}

func sum(mix map[string]int) (n int) {
	for _, share := range mix {
		n += share
	}
	return n
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
		{c.Keys < 0 || c.Total < 0 || c.Duration < 0 || c.Rate < 0 || c.Watchers < 0,
			"a number is negative"},
		{c.Clients < 1 || c.Conns < 1 || c.PageSize < 1 || c.LeaseTTL < 1 ||
			c.RequestTimeout < 1 || c.RetryFor < 1, "a number is not positive"},
		{c.Prefix == "" || strings.HasSuffix(c.Prefix, "/"), "the prefix is empty or ends in a slash"},
		{sum(c.Mix) == 0, "the mix is empty"},
	} {
		if check.bad {
			return errors.New(check.msg)
		}
	}
	for name, share := range c.Mix {
		if operations[name] == nil || share < 0 || share > 1_000_000 {
			return fmt.Errorf("mix %s=%d: want get, list, create, update or delete, and a number", name, share)
		}
	}
	for _, id := range c.Processes {
		if UsageOf(id).ID == 0 {
			return fmt.Errorf("there is no process %d", id)
		}
	}
	return nil
}
