package tracing_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/cluster/node"
	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/server/tracing/collector"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

// member is one member of a cluster whose database, for once, is an SQLite file.
type member struct {
	*node.Node
	tracing *tracing.Tracing
	client  *clientv3.Client
	stop    func() // everything; once
}

// newURL returns a database that has its table.
func newURL(t *testing.T) *sqlstore.URL {
	raw := sqldbtest.SQLiteURL(t)
	sqldbtest.Opener(engines.OpenDB).Migrate(t, raw)
	return sqldbtest.Parse(t, raw)
}

// startMember starts a member; rate is the sampling rate, or -1 for no tracing.
func startMember(t *testing.T, u *sqlstore.URL, name, address string, rate int) *member {
	t.Helper()
	ctx := t.Context()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("node", name)
	m := &member{}
	var err error
	if rate >= 0 {
		m.tracing, err = tracing.Open(ctx, tracing.Config{
			Address: address, Service: "the service", Instance: name, Version: "v1", SamplingRate: rate, Logger: log,
		})
		require.NoError(t, err)
	}
	store, err := engines.Open(ctx, u, sqlstore.Options{Shared: true, Tracer: m.tracing.Tracer()})
	require.NoError(t, err)
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t)) // the others have to be told
	own := node.DefaultConfig()
	own.Store, own.Name, own.Version, own.PeerURLs, own.PeerStats = store, name, "test", []string{peerURL},
		m.tracing.Client()
	own.Replica.Logger, own.Replica.Tracer, own.Logger = log, m.tracing.Tracer(), log
	// A busy machine does not change the leader, and ends no request.
	own.ElectionTimeout, own.Replica.RequestTimeout = time.Hour, eventually.Deadline
	m.Node, err = node.Join(ctx, own)
	require.NoError(t, err)
	cfg := server.DefaultConfig()
	cfg.Logger, cfg.Name, cfg.Tracing, cfg.StopTimeout = log, name, m.tracing, eventually.Deadline
	cfg.RequestTimeout = eventually.Deadline
	cfg.ListenClientURLs, cfg.PeerURLs = []string{"http://127.0.0.1:0"}, []string{peerURL}
	cfg.Members, cfg.PeerNode, cfg.PeerCredentials = m.Members(), node.Peer{Node: m.Node}, m.PeerCredentials()
	cfg.Router, cfg.Mover = node.Connection{Node: m.Node}, m.Node
	s, err := server.New(cfg, m.Replica())
	require.NoError(t, err)
	m.Start()
	running, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(running) }()
	m.client, err = clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), Logger: zap.NewNop()})
	require.NoError(t, err)
	m.stop = sync.OnceFunc(func() {
		require.NoError(t, m.client.Close())
		m.Resign()
		cancel()
		require.NoError(t, <-done)
		ctx, cancel := context.WithTimeout(context.Background(), eventually.Deadline)
		defer cancel()
		require.NoError(t, m.Close(ctx))
		require.NoError(t, store.Close())
		require.NoError(t, m.tracing.Close(ctx))
	})
	t.Cleanup(m.stop)
	return m
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	t.Cleanup(cancel)
	return ctx
}

// leads waits until m leads.
func (m *member) leads(t *testing.T) {
	t.Helper()
	eventually.True(t, "a leader", m.Replica().Leading)
}

// A put through a follower is one trace from the client's call to the statement that
// makes it durable, and contains neither keys nor values.
func TestPutThroughAFollowerIsOneTrace(t *testing.T) {
	spans := collector.Start(t)
	u := newURL(t)
	leader := startMember(t, u, "n1", spans.Address(), tracing.PerMillion)
	leader.leads(t)
	follower := startMember(t, u, "n2", spans.Address(), tracing.PerMillion)
	ctx := testContext(t)
	_, err := follower.client.Put(ctx, "/the/key", "the value")
	require.NoError(t, err)
	require.True(t, leader.Replica().Leading())
	_, err = follower.client.Get(ctx, "/the/other", clientv3.WithSerializable())
	require.NoError(t, err)
	follower.stop() // sends what was not sent yet
	leader.stop()

	all, _ := spans.Spans()
	find := func(name, instance string, kind tracepb.Span_SpanKind) collector.Span {
		t.Helper()
		for _, s := range collector.Named(all, name) {
			if s.Resource["service.instance.id"] == instance && s.GetKind() == kind {
				return s
			}
		}
		require.Fail(t, "no span", "%s of %s in %s", name, instance, names(all))
		return collector.Span{}
	}
	const put = "etcdserverpb.KV/Put"
	chain := []collector.Span{
		find(put, "n2", tracepb.Span_SPAN_KIND_SERVER),
		find(put, "n2", tracepb.Span_SPAN_KIND_CLIENT),
		find(put, "n1", tracepb.Span_SPAN_KIND_SERVER),
		find("write", "n1", tracepb.Span_SPAN_KIND_INTERNAL),
		find("batch", "n1", tracepb.Span_SPAN_KIND_INTERNAL),
		find("sql commit_tx", "n1", tracepb.Span_SPAN_KIND_CLIENT),
	}
	require.Empty(t, chain[0].GetParentSpanId())
	for i, s := range chain[1:] {
		require.Equal(t, hex.EncodeToString(chain[i].GetSpanId()), hex.EncodeToString(s.GetParentSpanId()),
			"%s is not under %s", s.GetName(), chain[i].GetName())
		require.Equal(t, chain[0].GetTraceId(), s.GetTraceId())
	}
	require.Equal(t, "the service", chain[0].Resource["service.name"])
	require.Equal(t, "v1", chain[0].Resource["service.version"])
	read := find("sql lookup", "n2", tracepb.Span_SPAN_KIND_CLIENT)
	parent, ok := collector.Parent(all, read)
	require.True(t, ok)
	require.Equal(t, "etcdserverpb.KV/Range", parent.GetName())

	for _, s := range all {
		require.NotContains(t, s.GetName(), "sqlbrain.Peer", "they belong to no request")
		if strings.HasPrefix(s.GetName(), "sql ") {
			_, ok := collector.Parent(all, s)
			require.True(t, ok, "%s belongs to no request", s.GetName())
		}
		text := s.Span.String()
		for _, secret := range []string{"/the/", "the value", hex.EncodeToString([]byte("/the/")), "sqlbrain.db"} {
			require.NotContains(t, text, secret)
		}
	}
}

func names(spans []collector.Span) (all []string) {
	for _, s := range spans {
		all = append(all, fmt.Sprintf("%s %s %s", s.GetName(), s.Resource["service.instance.id"], s.GetKind()))
	}
	return all
}

// Puts that share a batch have traces of their own; those that the batch is not a part
// of are linked with it in both directions.
func TestBatchIsLinkedWithAllItsRequests(t *testing.T) {
	spans := collector.Start(t)
	m := startMember(t, newURL(t), "n1", spans.Address(), tracing.PerMillion)
	m.leads(t)
	ctx := testContext(t)
	const puts = 200
	var clients sync.WaitGroup
	for i := range puts {
		clients.Go(func() {
			_, err := m.client.Put(ctx, fmt.Sprint("k", i), "v")
			require.NoError(t, err)
		})
	}
	clients.Wait()
	m.stop()

	all, _ := spans.Spans()
	writes, batches := collector.Named(all, "write"), collector.Named(all, "batch")
	require.Len(t, writes, puts)
	require.Less(t, len(batches), puts, "every batch had one request: nothing is tested")
	batch := make(map[string]collector.Span)
	served := make(map[string]bool) // writes, by their span
	for _, b := range batches {
		batch[string(b.GetSpanId())] = b
		served[string(b.GetParentSpanId())] = true
		for _, l := range b.GetLinks() {
			served[string(l.GetSpanId())] = true
		}
	}
	for _, w := range writes {
		require.True(t, served[string(w.GetSpanId())], "no batch knows of it")
		for _, l := range w.GetLinks() {
			if b, ok := batch[string(l.GetSpanId())]; ok {
				require.NotEqual(t, w.GetTraceId(), b.GetTraceId())
				delete(served, string(w.GetSpanId()))
			}
		}
	}
	for _, b := range batches {
		delete(served, string(b.GetParentSpanId()))
	}
	// What is left of served: read-ahead shares its links, but not the batches'.
	require.Empty(t, served, "a batch links to writes that do not link back")
}

// Members follow the caller's decision; without one, the rate decides.
func TestSampling(t *testing.T) {
	spans := collector.Start(t)
	m := startMember(t, newURL(t), "n1", spans.Address(), 0)
	m.leads(t)
	ctx := testContext(t)
	_, err := m.client.Put(ctx, "a", "not followed")
	require.NoError(t, err)

	caller, err := tracing.Open(ctx, tracing.Config{Address: spans.Address(), Service: "caller",
		SamplingRate: tracing.PerMillion})
	require.NoError(t, err)
	under, span := caller.Tracer().Start(ctx, "the caller's")
	traced, err := clientv3.New(clientv3.Config{Endpoints: m.client.Endpoints(), Logger: zap.NewNop(),
		DialOptions: dialOptions(caller)})
	require.NoError(t, err)
	_, err = traced.Put(under, "a", "followed")
	require.NoError(t, err)
	span.End()
	require.NoError(t, traced.Close())
	require.NoError(t, caller.Close(ctx))
	m.stop()

	all, _ := spans.Spans()
	require.Len(t, collector.Named(all, "write"), 1)
	for _, s := range all {
		require.Equal(t, all[0].GetTraceId(), s.GetTraceId(), s.GetName())
	}
}
