package tidbsim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/tidbsim"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// leader returns a replica that leads, over a new cluster.
func leader(t *testing.T, cluster *tidbsim.Cluster) *replica.Replica {
	t.Helper()
	s, err := cluster.Open(t.Context(), sqlstore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	cfg := replica.DefaultConfig()
	cfg.Logger, cfg.Exclusive = slog.New(slog.DiscardHandler), true
	b, err := replica.Open(t.Context(), s, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, b.Close(ctx))
	})
	return b
}

func put(key, value string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte(value)}}}}
}

func everything(rev int64) *mvcc.RangeRequest {
	return &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte{0}, End: []byte{0}}, Revision: rev}
}

func TestBackend(t *testing.T) {
	ctx, b := t.Context(), leader(t, tidbsim.New(tidbsim.Config{}))
	const n = 300
	for i := range n {
		_, err := b.Txn(ctx, auth.System, put(fmt.Sprintf("k%03d", i), "1"), true)
		require.NoError(t, err)
	}
	before := b.Revision()
	swap := put("k000", "2")
	swap.Compares = []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: []byte("k000")}, Target: mvcc.CompareVersion,
		Result: mvcc.CompareEqual, Int: 1}}
	for _, succeeds := range []bool{true, false} {
		res, err := b.Txn(ctx, auth.System, swap, true)
		require.NoError(t, err)
		require.Equal(t, succeeds, res.Succeeded)
	}
	_, err := b.Txn(ctx, auth.System, &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte("k1"), End: []byte("k2")}}}}}, true)
	require.NoError(t, err)
	now, err := b.Range(ctx, auth.System, everything(0), true)
	require.NoError(t, err)
	require.Len(t, now.Records, n-100)
	require.Equal(t, "2", string(now.Records[0].Value))
	old, err := b.Range(ctx, auth.System, everything(before), true)
	require.NoError(t, err)
	require.Len(t, old.Records, n)
	require.Equal(t, "1", string(old.Records[0].Value))

	_, err = b.Compact(ctx, auth.System, b.Revision(), true)
	require.NoError(t, err)
	_, err = b.Range(ctx, auth.System, everything(before), true)
	require.ErrorIs(t, err, mvcc.ErrCompacted)
	again, err := b.Range(ctx, auth.System, everything(0), true)
	require.NoError(t, err)
	require.Equal(t, now.Records, again.Records)
}

// TestBackendUnderFaults: what a client was told is true, whatever happens to the
// statements. Each client counts in a key of its own by compare-and-swap.
func TestBackendUnderFaults(t *testing.T) {
	const clients, writes = 6, 60
	cluster := tidbsim.New(tidbsim.Config{Seed: 7, LateCommit: 20 * time.Millisecond})
	b := leader(t, cluster)
	cluster.SetFaults(tidbsim.AllFaults(0.004))
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			key, last, unknown := fmt.Sprint("client", client), 0, 0
			for range writes {
				// The value is the last one that was acknowledged, or that of a write whose
				// answer was lost.
				res, err := b.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte(key)}}, true)
				if err != nil {
					continue
				}
				seen := 0
				if len(res.Records) > 0 {
					if seen, err = strconv.Atoi(string(res.Records[0].Value)); err != nil {
						t.Error(err)
						return
					}
				}
				if seen != last && (unknown == 0 || seen != unknown) {
					t.Errorf("%s holds %d, acknowledged was %d and unknown %d", key, seen, last, unknown)
					return
				}
				last, unknown = seen, 0
				_, err = b.Txn(t.Context(), auth.System, put(key, strconv.Itoa(last+1)), true)
				switch {
				case err == nil:
					last++
				case errors.Is(err, mvcc.ErrTimeout):
					unknown = last + 1
				}
			}
			if last < writes/2 {
				t.Errorf("%s: only %d of %d writes were acknowledged", key, last, writes)
			}
		})
	}
	wg.Wait()
	cluster.SetFaults(nil)
	if n := len(cluster.Struck()); n < 5 {
		t.Errorf("only %d kinds of faults struck", n)
	}
}
