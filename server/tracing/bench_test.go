package tracing_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/server/tracing/collector"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// BenchmarkPut is a put through a server, the client's own work included: without
// tracing, with no request followed, and with all.
func BenchmarkPut(b *testing.B) {
	spans := collector.Start(b)
	for _, c := range []struct {
		name string
		rate int // -1: off
	}{{"off", -1}, {"none", 0}, {"all", tracing.PerMillion}} {
		b.Run(c.name, func(b *testing.B) {
			var tr *tracing.Tracing
			var err error
			if c.rate >= 0 {
				tr, err = tracing.Open(b.Context(), tracing.Config{Address: spans.Address(), Service: "s", SamplingRate: c.rate})
				require.NoError(b, err)
			}
			log, store := slog.New(slog.DiscardHandler), memstore.New()
			own := replica.DefaultConfig()
			own.Logger, own.Exclusive, own.Tracer = log, true, tr.Tracer()
			node, err := replica.OpenLeader(b.Context(), store, own)
			require.NoError(b, err)
			cfg := server.DefaultConfig()
			cfg.Logger, cfg.ListenClientURLs, cfg.Tracing = log, []string{"http://127.0.0.1:0"}, tr
			s, err := server.New(cfg, node)
			require.NoError(b, err)
			running, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- s.Run(running) }()
			client, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), Logger: zap.NewNop()})
			require.NoError(b, err)
			_, err = client.Put(b.Context(), "k", "v") // connects
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Put(b.Context(), "k", "v"); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, client.Close())
			cancel()
			require.NoError(b, <-done)
			require.NoError(b, node.Close(context.Background()))
			require.NoError(b, store.Close())
			require.NoError(b, tr.Close(context.Background()))
		})
	}
}
