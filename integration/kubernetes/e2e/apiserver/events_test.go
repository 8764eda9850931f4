package apiserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// testEvents: a lease removes events when their time is over, not before, and a watch
// shows the deletions.
func testEvents(t *testing.T, s *server) {
	ctx := within(t, eventTTL+2*time.Minute)
	ns := s.namespace(t)
	events := s.CoreV1().Events(ns)
	list, err := events.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	w, err := events.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	defer w.Stop()

	const n = 10
	begin := time.Now()
	for i := range n {
		_, err := events.Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("e%d", i)},
			InvolvedObject: corev1.ObjectReference{Namespace: ns, Name: "something", Kind: "Pod"},
			Reason:         "Tested", Type: corev1.EventTypeNormal,
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	added, deleted := map[string]bool{}, map[string]bool{}
	for len(deleted) < n {
		e, open := <-w.ResultChan()
		require.True(t, open, "the watch ended; deleted so far: %v", deleted)
		event, ok := e.Object.(*corev1.Event)
		require.True(t, ok, "%v", e)
		switch e.Type {
		case watch.Added:
			require.False(t, added[event.Name])
			added[event.Name] = true
		case watch.Deleted:
			require.True(t, added[event.Name])
			require.False(t, deleted[event.Name])
			deleted[event.Name] = true
			// Their lease was granted after begin.
			require.GreaterOrEqual(t, time.Since(begin), eventTTL, "deleted too early")
		default:
			t.Fatalf("%v", e)
		}
	}
	_, err = events.Get(ctx, "e0", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	list, err = events.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}
