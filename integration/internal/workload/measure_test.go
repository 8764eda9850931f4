package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestQuantilesAreWithinOnePercentOrAMicrosecond(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []time.Duration
	for range 50_000 {
		d := time.Duration(math.Exp(r.Float64()*16)) * time.Microsecond // up to nine seconds
		h.record(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		require.InDelta(t, want, h.quantile(q), float64(max(want/100, time.Microsecond)), "quantile %v", q)
	}
	require.Equal(t, all[len(all)-1], h.max)
	require.Equal(t, h.max, h.quantile(1))
}

func TestBucketsCoverEverythingInOrder(t *testing.T) {
	for d := time.Duration(0); d < 1<<17*time.Microsecond; d += time.Microsecond {
		i := bucketOf(d)
		require.LessOrEqual(t, d, bucketTop(i))
		if i > 0 {
			require.GreaterOrEqual(t, d, bucketTop(i-1))
		}
	}
	var h histogram
	h.record(-time.Second)
	h.record(math.MaxInt64)
	require.EqualValues(t, 2, h.count)
	require.Equal(t, time.Duration(math.MaxInt64), h.max)
}

func TestErrorsAreCountedByCode(t *testing.T) {
	p := &phase{name: "x"}
	p.record("get", sample{latency: 3 * time.Millisecond, keys: 2})
	for _, err := range []error{
		rpctypes.ErrNoSpace, fmt.Errorf("wrapped: %w", context.DeadlineExceeded), status.Error(codes.Unavailable, "gone"),
		rpctypes.ErrGRPCCompacted, context.Canceled, errors.New("other"),
	} {
		p.record("get", sample{err: err})
	}
	p.elapsed = 2 * time.Second
	rep := p.report().Ops[0]
	require.Equal(t, map[string]int64{
		"ResourceExhausted": 1, "DeadlineExceeded": 1, "Unavailable": 1, "OutOfRange": 1, "Canceled": 1, "Unknown": 1,
	}, rep.Errors)
	require.EqualValues(t, 6, rep.Failed)
	require.EqualValues(t, 1, rep.Succeeded)
	require.InDelta(t, 0.5, rep.PerSecond, 1e-9)
	require.InDelta(t, 3, rep.Latency.P50, 0.03)
	require.EqualValues(t, 6, p.errs.Load())
}

func TestOnlyTemporaryErrorsAreRetried(t *testing.T) {
	for _, err := range []error{rpctypes.ErrTooManyRequests, rpctypes.ErrTimeout, rpctypes.ErrNoLeader,
		context.DeadlineExceeded} {
		require.True(t, passing(err), "%v", err)
	}
	for _, err := range []error{rpctypes.ErrNoSpace, rpctypes.ErrCompacted, rpctypes.ErrEmptyKey,
		rpctypes.ErrPermissionDenied} {
		require.False(t, passing(err), "%v", err)
	}
}

func TestOperationsAreDrawnByTheirShares(t *testing.T) {
	mix := map[string]int{"get": 3, "list": 1}
	drawn := map[string]int{}
	for n := range sum(mix) {
		for name, do := range operations {
			if reflect.ValueOf(do).Pointer() == reflect.ValueOf(draw(mix, n)).Pointer() {
				drawn[name]++
			}
		}
	}
	require.Equal(t, mix, drawn)
}

func TestConfigIsChecked(t *testing.T) {
	good := DefaultConfig()
	good.Workload, good.Prefix = "get", "/r"
	require.NoError(t, good.check())
	for name, spoil := range map[string]func(*Config){
		"endpoints": func(c *Config) { c.Endpoints = nil },
		"workload":  func(c *Config) { c.Workload = "nonsense" },
		"size":      func(c *Config) { c.ValueSize = minValue - 1 },
		"negative":  func(c *Config) { c.Total = -1 },
		"zero":      func(c *Config) { c.Clients = 0 },
		"no prefix": func(c *Config) { c.Prefix = "" },
		"slash":     func(c *Config) { c.Prefix = "/registry/" },
		"no mix":    func(c *Config) { c.Mix = nil },
		"mix":       func(c *Config) { c.Mix = map[string]int{"gets": 1} },
		"share":     func(c *Config) { c.Mix = map[string]int{"get": 2, "list": -1} },
	} {
		bad := good
		spoil(&bad)
		require.Error(t, bad.check(), name)
	}
}

func TestPacerSpreadsEvenly(t *testing.T) {
	p := &pacer{start: time.Unix(0, 0), rate: 4}
	require.Equal(t, time.Unix(0, 0), p.slot(0))
	require.Equal(t, time.Unix(0, 0).Add(2500*time.Millisecond), p.slot(10))
}

func TestDriveTakesEachStepOnce(t *testing.T) {
	r := testRunner()
	r.cfg.Clients = 7
	p := r.begin("x", 100)
	got := make([]bool, 100)
	r.drive(t.Context(), p, func(_ context.Context, _ *worker, n int64) error {
		if got[n] {
			return errors.New("twice")
		}
		got[n] = true
		return nil
	})
	require.NotContains(t, got, false)
	require.EqualValues(t, 100, p.steps.Load())
}

func TestDriveEndsWithItsContext(t *testing.T) {
	r := testRunner()
	ctx, cancel := context.WithCancel(t.Context())
	p := r.begin("x", 0)
	r.drive(ctx, p, func(_ context.Context, _ *worker, n int64) error {
		if n == 50 {
			cancel()
		}
		return nil
	})
	require.GreaterOrEqual(t, p.steps.Load(), int64(51))
}

func TestDriveTakesAStepHoweverLateItIs(t *testing.T) {
	r := testRunner()
	r.cfg.Clients = 7
	p := r.begin("x", 0)
	p.until = p.started.Add(-time.Second)
	r.drive(t.Context(), p, func(context.Context, *worker, int64) error { return nil })
	require.EqualValues(t, 1, p.steps.Load())
}
