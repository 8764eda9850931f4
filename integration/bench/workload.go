package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

// newWorkloadCommand returns the command that runs a workload on a server that runs already.
func newWorkloadCommand(w workload.Workload) *cobra.Command {
	c := workload.DefaultConfig()
	c.Workload = w.Name
	var output string
	var tls transport.TLSInfo
	cmd := &cobra.Command{
		Use: w.Name, Short: strings.ToUpper(w.About[:1]) + w.About[1:], Args: cobra.NoArgs, GroupID: "workloads",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %q: want table or json", output)
			}
			secure := func(endpoint string) bool { return strings.HasPrefix(endpoint, "https://") }
			if tls.TrustedCAFile != "" || tls.CertFile != "" || tls.KeyFile != "" || slices.ContainsFunc(c.Endpoints, secure) {
				if c.TLS, err = tls.ClientConfig(); err != nil {
					return fmt.Errorf("TLS: %w", err)
				}
			}
			c.Progress = cmd.ErrOrStderr()
			rep, err := workload.Run(cmd.Context(), c)
			if rep == nil {
				return err
			}
			write := rep.WriteTable
			if output == "json" {
				write = rep.WriteJSON
			}
			return errors.Join(err, write(cmd.OutOrStdout()))
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Endpoints, "endpoints", c.Endpoints, "client endpoints of one cluster")
	f.IntVar(&c.Clients, "clients", c.Clients, "requests sent at the same time")
	f.IntVar(&c.Conns, "conns", c.Conns, "connections they share")
	f.IntVar(&c.ValueSize, "value-size", c.ValueSize,
		"bytes of each value; 0: 0.5 to 50 KiB and a few of 1 MiB, as Kubernetes has them")
	f.IntVar(&c.Keys, "keys", c.Keys, "objects that exist before the workloads that do not begin with none")
	f.Int64Var(&c.Total, "total", c.Total, "operations (default 10000, without --duration)")
	f.DurationVar(&c.Duration, "duration", c.Duration, "how long to start operations")
	f.Float64Var(&c.Rate, "rate", c.Rate, "operations started per second; latency then counts from when one was due (0: no limit)")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "of keys, values and choices")
	f.StringVar(&c.Prefix, "prefix", c.Prefix, "of all keys; it must hold none yet (default a unique one)")
	f.BoolVar(&c.Keep, "keep", false, "leave what was written in the store")
	f.IntVar(&c.PageSize, "page-size", c.PageSize, "keys of a page of a list")
	f.IntVar(&c.Watchers, "watchers", c.Watchers, "watchers of watch-latency and churn")
	f.BoolVar(&c.WatchEach, "watch-each", false, "each of them watches one object, as a kubelet does, in place of all")
	f.BoolVar(&c.NoVersions, "no-versions", false, "do not compare the versions of keys, which kine does not count")
	f.BoolVar(&c.NoFinalList, "no-final-list", false, "do not list and compare all objects in the end")
	f.IntSliceVar(&c.Processes, "processes", nil,
		"ids of the server's processes on this machine: tell what they and the client use")
	f.StringToIntVar(&c.Mix, "mix", c.Mix, "ratio of operations of mixed")
	f.Int64Var(&c.LeaseTTL, "lease-ttl", c.LeaseTTL, "seconds, of the leases of grant and keepalive")
	f.IntVar(&c.Batch, "batch", c.Batch, "objects of a transaction of load")
	f.IntVar(&c.Versions, "versions", c.Versions, "of each object that load writes")
	f.BoolVar(&c.Exclusive, "exclusive", false, "no other client writes to the store: fail if a revision is missing")
	f.DurationVar(&c.RequestTimeout, "timeout", c.RequestTimeout, "of one attempt of a request")
	f.DurationVar(&c.RetryFor, "retry-for", c.RetryFor, "how long to repeat a request that fails for a passing reason")
	f.StringVar(&tls.TrustedCAFile, "cacert", "",
		"file of the CA certificates that the server's is checked with; turns TLS on")
	f.StringVar(&tls.CertFile, "cert", "", "file of the client certificate")
	f.StringVar(&tls.KeyFile, "key", "", "file of the client certificate's key")
	f.StringVar(&output, "output", "table", "table or json")
	return cmd
}
