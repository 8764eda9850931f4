package apiserver

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	writers       = 4
	keysPerWriter = 12
	// requestWait bounds a request; the API server gives up earlier.
	requestWait = 40 * time.Second
	retryEvery  = 50 * time.Millisecond
)

// absent is the state of a key without an object; other states are what the
// object's data says.
const absent = ""

// traffic is clients that create, update, read and delete ConfigMaps, each of its
// own keys, and know for each key what it may be: what was acknowledged last, or
// what was asked for since without an answer. Every read is held against that.
type traffic struct {
	t        testing.TB
	cancel   context.CancelFunc
	group    sync.WaitGroup
	acked    atomic.Int64 // writes that were acknowledged
	unknown  atomic.Int64 // writes without an answer
	refused  atomic.Int64 // reads without one
	longest  atomic.Int64 // the longest time, in ns, without an acknowledged write
	progress chan struct{}

	mu        sync.Mutex
	possible  map[string]map[string]bool // by key
	revisions map[int64]string           // of acknowledged creates and updates: the key
}

// startTraffic has the writers write through the clients, in turn, until stop.
func startTraffic(t *testing.T, ns string, servers ...*server) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{t: t, cancel: cancel, progress: make(chan struct{}, 1), possible: map[string]map[string]bool{},
		revisions: map[int64]string{}}
	t.Cleanup(tr.stop)
	tr.group.Go(func() { tr.measure(ctx) })
	for w := range writers {
		tr.group.Go(func() {
			for op := 0; ctx.Err() == nil; op++ {
				s := servers[(op+w)%len(servers)]
				tr.step(ctx, s.CoreV1().ConfigMaps(ns), fmt.Sprintf("w%d-%02d", w, rand.IntN(keysPerWriter)),
					fmt.Sprintf("%d-%d", w, op))
			}
		})
	}
	return tr
}

func (tr *traffic) stop() {
	tr.cancel()
	tr.group.Wait()
}

// measure finds the longest time without an acknowledged write.
func (tr *traffic) measure(ctx context.Context) {
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tr.progress:
			tr.longest.Store(max(tr.longest.Load(), int64(time.Since(last))))
			last = time.Now()
		}
	}
}

// step reads a key, and changes it.
func (tr *traffic) step(ctx context.Context, client typedcorev1.ConfigMapInterface, key, next string) {
	// The end of the traffic does not cut requests off: their outcome would not be known.
	request, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestWait)
	defer cancel()
	now, err := client.Get(request, key, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		now = nil
	case err != nil:
		tr.refused.Add(1)
		pause(ctx)
		return
	}
	tr.checkRead(key, now)
	switch {
	case now == nil:
		made, err := client.Create(request, configMap(key, map[string]string{"state": next}), metav1.CreateOptions{})
		tr.wrote(ctx, key, next, made, err)
	case rand.IntN(5) == 0:
		err := client.Delete(request, key, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID,
			ResourceVersion: &now.ResourceVersion}})
		tr.wrote(ctx, key, absent, nil, err)
	default:
		now.Data["state"] = next
		updated, err := client.Update(request, now, metav1.UpdateOptions{})
		tr.wrote(ctx, key, next, updated, err)
	}
}

func stateOf(c *corev1.ConfigMap) string {
	if c == nil {
		return absent
	}
	return c.Data["state"]
}

// may returns the states that the key may have; tr.mu is held.
func (tr *traffic) may(key string) map[string]bool {
	if tr.possible[key] == nil {
		tr.possible[key] = map[string]bool{absent: true}
	}
	return tr.possible[key]
}

func (tr *traffic) checkRead(key string, now *corev1.ConfigMap) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if may := tr.may(key); !may[stateOf(now)] {
		tr.t.Errorf("%s is %q, and may only be %q", key, stateOf(now), slices.Collect(maps.Keys(may)))
	}
}

// wrote notes what became of a write. Each was conditional on what was read before
// it, so once one is acknowledged no earlier one can still take effect.
func (tr *traffic) wrote(ctx context.Context, key, state string, now *corev1.ConfigMap, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	may := tr.may(key)
	switch {
	case err == nil:
		tr.possible[key] = map[string]bool{state: true}
		if now != nil {
			tr.revisions[revision(tr.t, now)] = key
		}
		tr.acked.Add(1)
		select {
		case tr.progress <- struct{}{}:
		default:
		}
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		// Nobody else writes the key: an earlier write took effect after all.
		if len(may) == 1 {
			tr.t.Errorf("%s: %v, though the last write was acknowledged", key, err)
		}
	default:
		may[state] = true
		tr.unknown.Add(1)
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	timer := time.NewTimer(retryEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// awaitWrites returns when n more writes have been acknowledged.
func (tr *traffic) awaitWrites(n int64) {
	tr.t.Helper()
	enough := tr.acked.Load() + n
	require.NoError(tr.t, await(within(tr.t, 3*time.Minute), func() error {
		if missing := enough - tr.acked.Load(); missing > 0 {
			return fmt.Errorf("%d of %d writes are missing (%d had no answer so far)", missing, n, tr.unknown.Load())
		}
		return nil
	}))
}

// check holds a list against what was acknowledged.
func (tr *traffic) check(list []corev1.ConfigMap) {
	tr.t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	states := map[string]string{}
	for _, c := range list {
		states[c.Name] = stateOf(&c)
	}
	for key, may := range tr.possible {
		if !may[states[key]] {
			tr.t.Errorf("%s is %q in the end, and may only be %q", key, states[key], slices.Collect(maps.Keys(may)))
		}
		delete(states, key)
	}
	delete(states, "kube-root-ca.crt")
	if len(states) > 0 {
		tr.t.Errorf("no client asked for %v", states)
	}
	tr.t.Logf("%d writes acknowledged, %d without an answer, %d reads without one; longest time without an "+
		"acknowledged write %s",
		tr.acked.Load(), tr.unknown.Load(), tr.refused.Load(), time.Duration(tr.longest.Load()).Round(time.Millisecond))
}
