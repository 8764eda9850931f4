package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/bench"
)

// benchFlags are the flags of sqlbrain bench that need more than storing.
type benchFlags struct {
	cfg    bench.Config
	mix    string
	output string
	tls    transport.TLSInfo
}

// newBenchCommand returns the command that drives an etcd endpoint and checks
// its answers.
func newBenchCommand() *cobra.Command {
	f := benchFlags{cfg: bench.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Drive an etcd endpoint as kube-apiserver does, and check every answer",
		Long: `Drive an etcd endpoint with kube-apiserver's requests, measure it, and compare every answer and
every watch event with what was written. Any etcd v3 server will do.

Everything is written below a prefix of its own, and deleted afterwards. The store is compacted by
"objects" only.

Workloads:
` + benchWorkloads(),
		Example: `  sqlbrain bench create --total 20000 --clients 64
  sqlbrain bench mixed --duration 30s --mix get=60,list=5,create=5,update=25,delete=5
  sqlbrain bench watch-latency --watchers 100 --rate 500 --duration 20s
  sqlbrain bench churn --clients 200 --watchers 20 --duration 30s
  sqlbrain bench objects --objects 100000 --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.cfg.Workload == "" {
				return &usageError{errors.New("name a workload")}
			}
			return f.run(cmd)
		},
	}
	f.register(cmd)
	for _, w := range bench.Workloads {
		cmd.AddCommand(&cobra.Command{
			Use: w.Name, Short: strings.ToUpper(w.About[:1]) + w.About[1:], Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				f.cfg.Workload = w.Name
				return f.run(cmd)
			},
		})
	}
	return cmd
}

func benchWorkloads() string {
	var b strings.Builder
	for _, w := range bench.Workloads {
		fmt.Fprintf(&b, "  %-14s %s\n", w.Name, w.About)
	}
	return b.String()
}

func (f *benchFlags) register(cmd *cobra.Command) {
	c, p := &f.cfg, cmd.PersistentFlags()
	cmd.Flags().StringVar(&c.Workload, "workload", "", "the workload, in place of a sub-command")
	p.StringSliceVar(&c.Endpoints, "endpoints", c.Endpoints, "client endpoints of one cluster")
	p.IntVar(&c.Clients, "clients", c.Clients, "requests sent at the same time")
	p.IntVar(&c.Conns, "conns", c.Conns, "connections they share")
	p.IntVar(&c.ValueSize, "value-size", c.ValueSize, "bytes of each value; 0: 0.5 to 50 KiB and a few of 1 MiB, as Kubernetes has them")
	p.IntVar(&c.Keys, "keys", c.Keys, "objects that exist before workloads other than create start")
	p.Int64Var(&c.Total, "total", c.Total, "operations (default 10000, without --duration)")
	p.DurationVar(&c.Duration, "duration", c.Duration, "how long to start operations")
	p.Float64Var(&c.Rate, "rate", c.Rate, "operations started per second; latency then counts from when one was due (0: no limit)")
	p.Uint64Var(&c.Seed, "seed", c.Seed, "of keys, values and choices")
	p.StringVar(&c.Prefix, "prefix", c.Prefix, "of all keys; it must hold none yet (default a unique one)")
	p.BoolVar(&c.Keep, "keep", false, "leave what was written in the store")
	p.BoolVar(&c.Adopt, "adopt", false, "use the objects that a run with --keep and the same --seed, --prefix and --value-size left, in place of --keys new ones")
	p.IntVar(&c.PageSize, "page-size", c.PageSize, "keys of a page of a list")
	p.IntVar(&c.Watchers, "watchers", c.Watchers, "watchers of watch-latency and churn")
	p.BoolVar(&c.WatchEach, "watch-each", false, "each of them watches one object, as a kubelet does, in place of all")
	p.BoolVar(&c.NoVersions, "no-versions", false, "do not compare the versions of keys, which kine does not count")
	p.IntSliceVar(&c.Processes, "processes", nil, "ids of the server's processes on this machine: tell what they and the client use")
	p.StringVar(&f.mix, "mix", c.Mix.String(), "ratio of operations of mixed")
	p.Int64Var(&c.LeaseTTL, "lease-ttl", c.LeaseTTL, "seconds, of the leases of lease")
	p.IntVar(&c.KeysPerLease, "keys-per-lease", c.KeysPerLease, "events that share a lease")
	p.IntVar(&c.Objects, "objects", c.Objects, "objects of objects")
	p.IntVar(&c.Updates, "updates", c.Updates, "updates of each tenth object of objects")
	p.BoolVar(&c.NoCompact, "no-compact", false, "objects leaves the store's history alone")
	p.BoolVar(&c.Exclusive, "exclusive", false, "no other client writes to the store: fail if a revision is missing")
	p.DurationVar(&c.RequestTimeout, "timeout", c.RequestTimeout, "of one attempt of a request")
	p.DurationVar(&c.RetryFor, "retry-for", c.RetryFor, "how long to repeat a request that fails for a passing reason")
	p.StringVar(&f.tls.TrustedCAFile, "cacert", "", "file of the CA certificates that the server's is checked with; turns TLS on")
	p.StringVar(&f.tls.CertFile, "cert", "", "file of the client certificate")
	p.StringVar(&f.tls.KeyFile, "key", "", "file of the client certificate's key")
	p.StringVar(&f.output, "output", "table", "table or json")
}

func (f *benchFlags) run(cmd *cobra.Command) (err error) {
	if f.output != "table" && f.output != "json" {
		return &usageError{fmt.Errorf("--output %q: want table or json", f.output)}
	}
	cfg := f.cfg
	if cfg.Mix, err = bench.ParseMix(f.mix); err != nil {
		return &usageError{err}
	}
	secure := func(endpoint string) bool { return strings.HasPrefix(endpoint, "https://") }
	if f.tls.TrustedCAFile != "" || f.tls.CertFile != "" || f.tls.KeyFile != "" || slices.ContainsFunc(cfg.Endpoints, secure) {
		if cfg.TLS, err = f.tls.ClientConfig(); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
	}
	cfg.Progress = cmd.ErrOrStderr()
	if file, ok := cfg.Progress.(*os.File); ok {
		info, err := file.Stat()
		cfg.ProgressTerminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	rep, err := bench.Run(cmd.Context(), cfg)
	if rep == nil {
		return err
	}
	write := rep.WriteTable
	if f.output == "json" {
		write = rep.WriteJSON
	}
	return errors.Join(err, write(cmd.OutOrStdout()))
}
