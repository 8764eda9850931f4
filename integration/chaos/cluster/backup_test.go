package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/server/backup"
	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// storage is an S3 server, and a proxy in front of it that can take it away, with its connections. While it is there,
// one request in ten fails, half of these after they were executed.
type storage struct {
	*httptest.Server
	away           atomic.Bool
	failed, served atomic.Int64
}

func startStorage(t *testing.T) *storage {
	dir, target := t.TempDir(), &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))}
	files, attributes := filepath.Join(dir, "files"), filepath.Join(dir, "attributes")
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Join(files, "bucket"), 0o700), os.Mkdir(attributes, 0o700)))
	const id, secret = "id", "secret-of-the-test"
	program := harness.StartProcess(t, harness.VersityGW(t), "--quiet", "--port", target.Host, "--access", id,
		"--secret", secret, "posix", "--sidecar", attributes, files)
	program.Await(t, func(ctx context.Context) error {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", target.Host)
		if err == nil {
			err = connection.Close()
		}
		return err
	})
	s3 := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which is signed
	}}
	s := &storage{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.away.Load() {
			s.failed.Add(1)
			panic(http.ErrAbortHandler)
		}
		switch rand.IntN(20) {
		case 0:
			s.failed.Add(1)
			http.Error(w, "", http.StatusInternalServerError)
		case 1:
			s.failed.Add(1)
			s3.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			s3.ServeHTTP(w, r)
			s.served.Add(1)
		}
	}))
	t.Cleanup(s.Close)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": s.URL, "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret} {
		t.Setenv(name, value)
	}
	return s
}

// written is an acknowledged write.
type written struct {
	revision     int64
	began, ended time.Time
}

// randomWrites writes until ctx ends.
func randomWrites(ctx context.Context, c *clientv3.Client, random *rand.Rand, acked chan<- written) {
	key := func() string { return fmt.Sprintf("/registry/%d", random.IntN(30)) }
	for i := 0; ctx.Err() == nil; i++ {
		var ops []clientv3.Op
		seen := make(map[string]bool)
		for range 1 + random.IntN(3) {
			k := key()
			if seen[k] {
				continue
			}
			if seen[k] = true; random.IntN(4) == 0 {
				ops = append(ops, clientv3.OpDelete(k))
			} else {
				ops = append(ops, clientv3.OpPut(k, fmt.Sprint(i, strings.Repeat("x", random.IntN(500)))))
			}
		}
		w := written{began: time.Now()}
		attempt, cancel := context.WithTimeout(ctx, attemptWait)
		r, err := c.Txn(attempt).Then(ops...).Commit() // if its outcome is unknown, the account of the store has it
		cancel()
		if err != nil || !slices.ContainsFunc(r.Responses, changed) {
			continue
		}
		w.revision, w.ended = r.Header.Revision, time.Now()
		select {
		case acked <- w:
		case <-ctx.Done():
		}
	}
}

func changed(r *pb.ResponseOp) bool {
	return r.GetResponsePut() != nil || r.GetResponseDeleteRange().GetDeleted() > 0
}

// TestBackupUnderFaults ships under load to object storage, encrypted, while leaders and the shipper are killed and the
// storage goes away. It restores random revisions and times, and compares each with a model of the account of the store,
// and with an etcd that replayed it. Damaged files are refused.
func TestBackupUnderFaults(t *testing.T) {
	harness.NeedsDatabase(t)
	seed := harness.Seed()
	t.Logf("repeat with -seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithTimeout(t.Context(), wait*time.Duration(harness.UsualOrLong(1, 10)))
	defer cancel()
	target := startStorage(t)
	c := harness.StartCluster(t, harness.ClusterConfig{})
	client := c.Client()
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	key := filepath.Join(t.TempDir(), "identity")
	require.NoError(t, os.WriteFile(key, []byte(identity.String()), 0o600))
	place, err := backup.OpenPlace("s3://bucket/prefix", nil)
	require.NoError(t, err)
	source := backup.Source{Place: place, Identities: []age.Identity{identity}}
	newest := func(ctx context.Context) (int64, error) {
		b, err := backup.Open(ctx, source, backup.Moment{})
		if err != nil {
			return 0, err
		}
		revision, _ := b.Newest()
		return revision, b.Close()
	}
	ship := func() *harness.Process {
		return harness.StartProcess(t, harness.Sqlbrain(t), "backup", "--to", "s3://bucket/prefix", "--continuous",
			"--backup-recipient", identity.Recipient().String(), "--datastore", c.Datastore())
	}
	shipper := ship()
	first := int64(0)
	shipper.Await(t, func(ctx context.Context) (err error) {
		first, err = newest(ctx)
		return err
	})

	writing, stop := context.WithCancel(ctx)
	acked, done := make(chan written), make(chan struct{})
	go func() {
		defer close(done)
		randomWrites(writing, client, rand.New(rand.NewPCG(seed, 1)), acked)
	}()
	defer func() { stop(); <-done }()
	var writes []written
	write := func(n int) {
		for range n {
			select {
			case w := <-acked:
				writes = append(writes, w)
			case <-ctx.Done():
				t.Fatal("no write was acknowledged")
			}
		}
	}
	shipped := func() { // so that there is something to lose
		for served := target.served.Load(); target.served.Load() < served+2; {
			write(1)
		}
	}
	faults := []func(){
		func() {
			leader := c.Leader()
			c.Kill(leader)
			write(20)
			c.Start(leader)
		},
		func() {
			shipper.Kill(t)
			write(random.IntN(100))
			shipper = ship()
		},
		func() {
			failed := target.failed.Load()
			target.away.Store(true)
			target.CloseClientConnections()
			for outage := failed + 2 + random.Int64N(10); target.failed.Load() < outage; {
				write(1)
			}
			target.away.Store(false)
		},
	}
	for i := range harness.UsualOrLong(len(faults), 40) {
		shipped()
		write(random.IntN(150))
		faults[(i+int(seed%3))%len(faults)]()
	}
	write(50)
	stop()
	<-done

	revisions, err := history.Account(ctx, client, 2)
	require.NoError(t, err)
	state, replay := model.New(1), harness.StartEtcd(t).Client()
	for _, r := range revisions {
		state.Apply(r)
		var ops []clientv3.Op
		for _, e := range r.Events {
			if e.Deleted {
				ops = append(ops, clientv3.OpDelete(e.Key))
			} else {
				ops = append(ops, clientv3.OpPut(e.Key, e.Value))
			}
		}
		got, err := replay.Txn(ctx).Then(ops...).Commit()
		require.NoError(t, err)
		require.Equal(t, r.Number, got.Header.Revision)
	}
	shipper.Await(t, func(ctx context.Context) error {
		revision, err := newest(ctx)
		if err == nil && revision < state.Revision() {
			err = fmt.Errorf("the backup is at revision %d of %d", revision, state.Revision())
		}
		return err
	})
	shipper.Stop(t)
	require.Positive(t, target.failed.Load())
	t.Logf("%d revisions, %d failed requests to the storage", state.Revision(), target.failed.Load())

	restore := func(at string) (datastore string, out harness.Output) {
		datastore = "sqlite://" + filepath.Join(t.TempDir(), "restored.db")
		return datastore, harness.Run(t, wait, "", harness.Sqlbrain(t), "restore", "--from", "s3://bucket/prefix",
			"--backup-identity", key, "--at", at, "--datastore", datastore)
	}
	for i := range harness.UsualOrLong(4, 50) {
		least, most := first+random.Int64N(state.Revision()-first+1), int64(0)
		at := fmt.Sprint(least)
		if most = least; i%2 == 1 {
			w := writes[random.IntN(len(writes))]
			moment := w.began.Add(time.Duration(random.Int64N(int64(w.ended.Sub(w.began) + time.Millisecond))))
			at, least, most = moment.Format(time.RFC3339Nano), first, state.Revision()
			for _, w := range writes {
				if w.ended.Before(moment) {
					least = max(least, w.revision)
				}
				if w.began.Truncate(time.Millisecond).After(moment) { // the times of commits are in milliseconds
					most = min(most, w.revision-1)
				}
			}
		}
		datastore, out := restore(at)
		require.Zero(t, out.Code, "%s: %s", at, out.Stderr)
		n := harness.StartNodeOn(t, datastore)
		requireAsAt(t, ctx, n, state, replay, first, least, most, random)
		n.Stop()
	}
	requireDamageIsRefused(t, ctx, place, random, func() harness.Output {
		_, out := restore(fmt.Sprint(state.Revision()))
		return out
	})
}

// requireAsAt demands that a node has a revision between two as its newest, and what the model and etcd have there; and
// an older revision, back to first.
func requireAsAt(t *testing.T, ctx context.Context, n *harness.Node, state *model.State, etcd *clientv3.Client,
	first, least, most int64, random *rand.Rand) {
	t.Helper()
	c := n.Client()
	at := int64(0)
	for _, older := range []bool{false, true} {
		if older {
			at = first + random.Int64N(at-first+1)
		}
		got, err := c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(at))
		require.NoError(t, err)
		if !older {
			at = got.Header.Revision
			require.GreaterOrEqual(t, at, least)
			require.LessOrEqual(t, at, most)
		}
		var kvs []model.KV
		for _, kv := range got.Kvs {
			kvs = append(kvs, model.FromProto(kv))
		}
		require.Equal(t, state.List(model.Range{Key: "\x00", End: "\x00"}, at), kvs, "revision %d", at)
		is, err := c.HashKV(ctx, n.Endpoint(), at)
		require.NoError(t, err)
		was, err := etcd.HashKV(ctx, etcd.Endpoints()[0], at)
		require.NoError(t, err)
		require.Equal(t, was.Hash, is.Hash, "revision %d", at)
	}
}

// requireDamageIsRefused: a segment that is shorter, missing, has another bit, or is in the place of another. Before
// that, the storage takes a file in parts.
func requireDamageIsRefused(t *testing.T, ctx context.Context, place backup.Place, random *rand.Rand,
	restore func() harness.Output) {
	t.Helper()
	names, err := place.List(ctx)
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "log-") })
	slices.Sort(names)
	require.Greater(t, len(names), 1)
	read := func(name string) []byte {
		var content []byte
		eventually.Nil(t, attemptWait, func(ctx context.Context) error {
			r, err := place.Read(ctx, name)
			if err == nil {
				content, err = io.ReadAll(r)
				_ = r.Close() // was read to its end, or failed
			}
			return err
		})
		return content
	}
	put := func(name string, content []byte) {
		eventually.True(t, "the storage takes it", func() bool {
			if content == nil {
				return place.Remove(ctx, name) == nil
			}
			return place.Create(ctx, name, func(w io.Writer) error {
				_, err := w.Write(content)
				return err
			}) == nil
		})
	}
	large := make([]byte, 40<<20) // of two parts
	put("large", large)
	require.True(t, bytes.Equal(large, read("large")))
	put("large", nil)

	// Others may be those of a shipper that was killed before they were part of the backup.
	var manifest struct {
		Newest struct {
			First, Last int64
			Hash        string `json:"sha256"`
		}
	}
	require.NoError(t, json.Unmarshal(read("manifest.json"), &manifest))
	name := fmt.Sprintf("log-%020d-%020d-%.16s.seg", manifest.Newest.First, manifest.Newest.Last, manifest.Newest.Hash)
	require.Contains(t, names, name)
	other := names[0]
	if other == name {
		other = names[1]
	}
	whole := read(name)
	flipped := bytes.Clone(whole)
	flipped[random.IntN(len(flipped))] ^= 1 << random.IntN(8)
	for what, content := range map[string][]byte{"truncated": whole[:random.IntN(len(whole)-1)+1], "flipped": flipped,
		"missing": nil, "reordered": read(other)} {
		put(name, content)
		out := restore()
		require.NotZero(t, out.Code, what)
		require.Contains(t, out.Stderr, "the backup is damaged", what)
		require.Contains(t, out.Stderr, name, what)
	}
	put(name, whole)
	require.Zero(t, restore().Code)
}
