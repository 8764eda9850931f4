package bounds

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// start starts a server, and another client of it.
func start(t *testing.T, e harness.Engine, flags ...string) (*harness.Node, *harness.Putters) {
	t.Helper()
	node := harness.StartNode(t, e, flags...)
	o := harness.StartPutters(t, node.Client())
	time.Sleep(time.Second)
	o.Report("before")
	return node, o
}

// TestUnreadAnswers: clients that take nothing of long answers cost what a chunk of each is, and not what they asked
// for.
func TestUnreadAnswers(t *testing.T) {
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		for name, c := range map[string]struct {
			method string
			limit  int64
			most   int
		}{
			"RangeStream": {"/etcdserverpb.KV/RangeStream", 0, 400 << 20},
			"Range":       {"/etcdserverpb.KV/Range", 500, 900 << 20}, // until the server sees that nothing is taken
		} {
			t.Run(name, func(t *testing.T) {
				const connections, streams = 10, 100
				node, o := start(t, e)
				harness.Fill(t, node.Client(), "k", 20_000, strings.Repeat("v", 1<<10))
				before := memory(t, node)
				request := message(t, &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l"), Limit: c.limit})
				o.Report("until then")
				var attackers []*attacker
				for range connections {
					a := attack(t, node, 0)
					attackers = append(attackers, a)
					for range streams {
						_, err := a.open(c.method, request, true)
						require.NoError(t, err)
					}
				}
				time.Sleep(10 * time.Second)
				o.Report("with unread answers")
				used := memory(t, node) - before
				t.Logf("%d streams: %d MiB more", connections*streams, used>>20)
				attackers[0].said(t)
				if !harness.TargetIsEtcd() {
					require.Less(t, used, c.most)
				}
			})
		}
	})
}

// TestUnfinishedMessages: clients that begin large messages and do not go on.
func TestUnfinishedMessages(t *testing.T) {
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		const connections, streams, size = 10, 100, 1900 << 10
		node, o := start(t, e)
		before := memory(t, node)
		begun := make([]byte, size)
		begun[0] = 0
		binary.BigEndian.PutUint32(begun[1:], size)
		var sending sync.WaitGroup
		var attackers []*attacker
		for range connections {
			a := attack(t, node, 1<<20)
			attackers = append(attackers, a)
			a.deadline(20 * time.Second)
			sending.Go(func() {
				for i := range streams {
					method := []string{"/etcdserverpb.KV/Put", "/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive"}[i%3]
					if _, err := a.open(method, begun, false); err != nil {
						return
					}
				}
			})
		}
		sending.Wait()
		time.Sleep(5 * time.Second)
		o.Report("with unfinished messages")
		used := memory(t, node) - before
		t.Logf("%d MiB more", used>>20)
		attackers[0].said(t)
		if !harness.TargetIsEtcd() {
			require.Less(t, used, 300<<20)
		}
		_, err := node.Client().Put(t.Context(), "large", strings.Repeat("v", 1<<20))
		require.NoError(t, err)
	})
}

// TestLongWatchKeys: watches of keys that cannot exist are refused.
func TestLongWatchKeys(t *testing.T) {
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		const streams, watches, size = 62, 16, 1900 << 10 // a window of requests on each stream
		node, o := start(t, e)
		before := memory(t, node)
		create := message(t, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: bytes.Repeat([]byte("k"), size), RangeEnd: bytes.Repeat([]byte("l"), 10)}}})[5:]
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write(create)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		request := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(packed.Len())), packed.Bytes()...)
		a := attack(t, node, 1<<20)
		for range streams {
			_, err := a.open("/etcdserverpb.Watch/Watch", bytes.Repeat(request, watches), false, "grpc-encoding", "gzip")
			require.NoError(t, err)
		}
		time.Sleep(8 * time.Second)
		o.Report("with watches of long keys")
		a.said(t)
		used := memory(t, node) - before
		t.Logf("%d MiB more", used>>20)
		if !harness.TargetIsEtcd() {
			require.Less(t, used, 500<<20)
		}
	})
}

// TestRapidReset: a client opens calls and resets them at once.
func TestRapidReset(t *testing.T) {
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		node, o := start(t, e)
		harness.Fill(t, node.Client(), "k", 1000, strings.Repeat("v", 100))
		before := memory(t, node)
		request := message(t, &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		o.Report("until then")
		var attacking sync.WaitGroup
		var opened [4]int // by connection
		for i := range opened {
			a := attack(t, node, 1<<20)
			a.deadline(10 * time.Second)
			attacking.Go(func() {
				for ctx.Err() == nil {
					stream, err := a.open("/etcdserverpb.KV/Range", request, true)
					if err != nil || a.reset(stream) != nil {
						return
					}
					opened[i]++
				}
			})
		}
		attacking.Wait()
		o.Report("with resets")
		used := memory(t, node) - before
		t.Logf("calls %d, %d MiB more", opened, used>>20)
		require.NotContains(t, opened, 0)
		if !harness.TargetIsEtcd() {
			require.Less(t, used, 200<<20)
		}
	})
}
