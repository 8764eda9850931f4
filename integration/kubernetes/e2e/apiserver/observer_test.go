package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// observer is a watch from the beginning, which resumes at its position after a cut.
type observer struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	last   int64             // newest version it knows of
	events map[int64]string  // by version: the key
	state  map[string]string // by key
	gaps   [][2]int64        // versions it was refused, and lists instead
	err    error
}

// observe watches all ConfigMaps of a namespace.
func observe(t *testing.T, ns string, s *server) *observer {
	t.Helper()
	client := s.CoreV1().ConfigMaps(ns)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
	ctx, cancel := context.WithCancel(t.Context())
	o := &observer{t: t, cancel: cancel, done: make(chan struct{}), last: listRevision(t, list),
		events: map[int64]string{}, state: map[string]string{}}
	go func() {
		defer close(o.done)
		for ctx.Err() == nil {
			if err := o.watch(ctx, client); err != nil {
				o.mu.Lock()
				o.err = errors.Join(o.err, err)
				o.mu.Unlock()
				return
			}
			pause(ctx)
		}
	}()
	t.Cleanup(o.stop)
	return o
}

func (o *observer) stop() {
	o.cancel()
	<-o.done
}

// watch follows one watch to its end. It returns an error if the watch showed a wrong event.
func (o *observer) watch(ctx context.Context, client typedcorev1.ConfigMapInterface) error {
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatInt(o.last, 10),
		AllowWatchBookmarks: true})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return o.list(ctx, client)
	}
	if err != nil {
		return nil // and again
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		c, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			err := apierrors.FromObject(e.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return o.list(ctx, client)
			}
			return nil // the API server's own trouble: again
		}
		if err := o.add(string(e.Type), c); err != nil {
			return err
		}
	}
	return nil
}

func (o *observer) add(kind string, c *corev1.ConfigMap) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := revision(o.t, c)
	if kind == "BOOKMARK" {
		if r < o.last {
			return fmt.Errorf("a bookmark at %d after an event at %d", r, o.last)
		}
		o.last = r
		return nil
	}
	if r <= o.last {
		return fmt.Errorf("%s of %s at %d after %d", kind, c.Name, r, o.last)
	}
	before, exists := o.state[c.Name]
	switch {
	case kind == "ADDED" && exists, kind != "ADDED" && !exists:
		return fmt.Errorf("%s of %s at %d, which was %q", kind, c.Name, r, before)
	case kind == "DELETED":
		delete(o.state, c.Name)
	default:
		o.state[c.Name] = stateOf(c)
		o.events[r] = c.Name
	}
	o.last = r
	return nil
}

// list starts anew after a watch that could not go on.
func (o *observer) list(ctx context.Context, client typedcorev1.ConfigMapInterface) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil // and again
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	to := listRevision(o.t, list)
	if to < o.last {
		return fmt.Errorf("a list at %d after an event at %d", to, o.last)
	}
	o.gaps = append(o.gaps, [2]int64{o.last, to})
	o.last, o.state = to, map[string]string{}
	for _, c := range list.Items {
		o.state[c.Name] = stateOf(&c)
	}
	return nil
}

// agrees returns an error unless the watch has shown all objects of the list.
func (o *observer) agrees(list *corev1.ConfigMapList) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	want, newest := map[string]string{}, int64(0)
	for _, c := range list.Items {
		want[c.Name] = stateOf(&c)
		newest = max(newest, revision(o.t, &c))
	}
	if o.err != nil {
		return fmt.Errorf("the watch is wrong: %w", o.err)
	}
	if o.last < newest || !maps.Equal(want, o.state) {
		return fmt.Errorf("the watch is at %d of %d and sees %v, listed are %v", o.last, newest, o.state, want)
	}
	return nil
}

// check waits until the watch agrees with the list, and compares it with every
// version that a writer received.
func (o *observer) check(list *corev1.ConfigMapList, tr *traffic) {
	o.t.Helper()
	require.NoError(o.t, await(within(o.t, 2*time.Minute), func() error { return o.agrees(list) }))
	o.mu.Lock()
	defer o.mu.Unlock()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for r, key := range tr.revisions {
		if _, told := o.events[r]; !told && !o.missed(r) {
			o.t.Errorf("the watch did not show %s at %d, which was acknowledged", key, r)
		}
	}
	o.t.Logf("the watch showed %d creates and updates, and had to list %d times", len(o.events), len(o.gaps))
}

func (o *observer) missed(r int64) bool {
	return slices.ContainsFunc(o.gaps, func(g [2]int64) bool { return g[0] < r && r <= g[1] })
}
