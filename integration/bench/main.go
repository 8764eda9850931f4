package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted: what compares systems continues with --resume")
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Drive etcd endpoints as kube-apiserver does, check every answer, and compare sqlbrain, etcd and kine",
		SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Example: `  bench create --endpoints 127.0.0.1:2379 --total 20000 --clients 64
  bench mixed --duration 30s --mix get=60,list=5,create=5,update=25,delete=5
  bench watch-latency --watchers 100 --rate 500 --duration 20s
  bench churn --clients 200 --watchers 20 --duration 30s --output json`,
	}
	cmd.AddGroup(&cobra.Group{ID: "comparisons", Title: "Start sqlbrain, etcd and kine, and compare them:"},
		&cobra.Group{ID: "workloads", Title: "Run a workload on a server that runs already:"})
	for _, c := range []*cobra.Command{results.command(), scoreboard.command(), newGrowthCommand(), newReportCommand()} {
		c.GroupID = "comparisons"
		cmd.AddCommand(c)
	}
	for _, w := range workload.Workloads {
		cmd.AddCommand(newWorkloadCommand(w))
	}
	return cmd
}
