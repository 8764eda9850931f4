package apiserver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// findings is a test whose errors are only counted.
type findings struct {
	testing.TB
	count int
}

func (f *findings) Errorf(string, ...any) { f.count++ }
func (f *findings) Helper()               {}
func (f *findings) Logf(string, ...any)   {}

func stored(name, state string, version int) corev1.ConfigMap {
	c := configMap(name, map[string]string{"state": state})
	c.ResourceVersion = fmt.Sprint(version)
	return *c
}

// aTraffic has seen a created at 5 as "1" and updated at 6 to "2", b created at 7
// and then deleted, and c asked to be created as "3" without an answer.
func aTraffic(t *testing.T) (*traffic, *findings) {
	f := &findings{TB: t}
	tr := &traffic{t: f, progress: make(chan struct{}, 1), possible: map[string]map[string]bool{},
		revisions: map[int64]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is waited for
	a1, a2, b := stored("a", "1", 5), stored("a", "2", 6), stored("b", "1", 7)
	tr.wrote(ctx, "a", "1", &a1, nil)
	tr.wrote(ctx, "a", "2", &a2, nil)
	tr.wrote(ctx, "b", "1", &b, nil)
	tr.wrote(ctx, "b", absent, nil, nil)
	tr.wrote(ctx, "c", "3", nil, errors.New("no answer"))
	return tr, f
}

// TestJudgesFindViolations: the judges find a loss, a stale read and a change that no client
// requested, and accept allowed histories.
func TestJudgesFindViolations(t *testing.T) {
	a, c := stored("a", "2", 6), stored("c", "3", 9)
	for _, l := range []struct {
		name  string
		list  []corev1.ConfigMap
		wrong int
	}{
		{"as acknowledged", []corev1.ConfigMap{a}, 0},
		{"and what had no answer", []corev1.ConfigMap{a, c}, 0},
		{"an update is lost", []corev1.ConfigMap{stored("a", "1", 5)}, 1},
		{"an object is lost", nil, 1},
		{"a deletion is lost", []corev1.ConfigMap{a, stored("b", "1", 7)}, 1},
		{"another value than asked for", []corev1.ConfigMap{a, stored("c", "4", 9)}, 1},
		{"an object that no client made", []corev1.ConfigMap{a, stored("d", "1", 9)}, 1},
	} {
		tr, f := aTraffic(t)
		tr.check(l.list)
		require.Equal(t, l.wrong, f.count, l.name)
	}

	tr, f := aTraffic(t)
	old := stored("a", "1", 5)
	tr.checkRead("a", &old)
	tr.checkRead("a", nil)
	tr.checkRead("b", &old)
	require.Equal(t, 3, f.count, "stale reads")
	tr.checkRead("c", nil)
	tr.checkRead("c", &c)
	require.Equal(t, 3, f.count, "of what had no answer, both are right")

	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("changed"))
	tr.wrote(t.Context(), "c", "5", nil, conflict)
	require.Equal(t, 3, f.count, "the write without an answer explains it")
	tr.wrote(t.Context(), "a", "5", nil, conflict)
	require.Equal(t, 4, f.count, "nothing explains it")
}

// TestObserverFindsViolations: a watch that repeats, goes back or leaves out is found.
func TestObserverFindsViolations(t *testing.T) {
	type event struct {
		kind  string
		state corev1.ConfigMap
	}
	good := []event{
		{"ADDED", stored("a", "1", 5)}, {"MODIFIED", stored("a", "2", 6)}, {"ADDED", stored("b", "1", 7)},
		{"BOOKMARK", stored("", "", 7)}, {"DELETED", stored("b", "1", 8)},
	}
	follow := func(events ...event) (*observer, *findings, error) {
		f := &findings{TB: t}
		o := &observer{t: f, last: 4, events: map[int64]string{}, state: map[string]string{}}
		for _, e := range events {
			if err := o.add(e.kind, &e.state); err != nil {
				return o, f, err
			}
		}
		return o, f, nil
	}
	for name, events := range map[string][]event{
		"repeats":               {good[0], good[0]},
		"goes back":             {good[0], good[2], {"MODIFIED", stored("a", "2", 6)}},
		"left out a creation":   {good[1]},
		"left out a deletion":   {good[0], {"ADDED", stored("a", "2", 6)}},
		"sends an old bookmark": {good[0], good[1], {"BOOKMARK", stored("", "", 5)}},
		"deletes what is not":   {{"DELETED", stored("b", "1", 8)}},
	} {
		_, _, err := follow(events...)
		require.Error(t, err, name)
	}

	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "8"},
		Items: []corev1.ConfigMap{stored("a", "2", 6)}}
	o, f, err := follow(good...)
	require.NoError(t, err)
	tr, _ := aTraffic(t)
	o.check(list, tr)
	require.Zero(t, f.count)
	delete(o.events, 6) // as if the watch had missed the update, with a correct state
	o.check(list, tr)
	require.Equal(t, 1, f.count)
	o.gaps = [][2]int64{{5, 6}} // unless the watch was refused there
	o.check(list, tr)
	require.Equal(t, 1, f.count)

	o.state["a"] = "1"
	require.Error(t, o.agrees(list))
}
