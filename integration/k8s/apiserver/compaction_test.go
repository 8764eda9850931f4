package apiserver

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/programs"
)

// TestCompaction: the API server compacts its store repeatedly. Older revisions are
// gone for it and for all clients, and current objects stay.
func TestCompaction(t *testing.T) {
	programs.NeedsKubernetes(t)
	forEachStore(t, func(t *testing.T, st *store) {
		s := startServer(t, controlplane.NewCredentials(t), st, "--etcd-compaction-interval=5s")
		ctx := within(t, 5*time.Minute)
		ns := s.namespace(t)
		maps := s.CoreV1().ConfigMaps(ns)
		const all = 30
		fill(t, s, ns, all)
		page, err := maps.List(ctx, metav1.ListOptions{Limit: 10})
		require.NoError(t, err)
		require.NotEmpty(t, page.Continue)

		for round := range 3 {
			before, err := maps.Get(ctx, "c000", metav1.GetOptions{})
			require.NoError(t, err)
			awaitCompacted(t, s, before)
			t.Logf("round %d: %s is compacted", round, before.ResourceVersion)
		}
		_, err = maps.List(ctx, metav1.ListOptions{Limit: 10, Continue: page.Continue})
		require.True(t, apierrors.IsResourceExpired(err), "%v", err)
		// The answer has a token to go on with, at a newer version.
		var status apierrors.APIStatus
		require.ErrorAs(t, err, &status)
		rest, err := maps.List(ctx, metav1.ListOptions{Continue: status.Status().ListMeta.Continue})
		require.NoError(t, err)
		require.Len(t, rest.Items, all-len(page.Items))
		whole, err := maps.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, whole.Items, all)
	})
}

// awaitCompacted changes things until the version of an object is compacted, in the
// store, and the API server says so.
func awaitCompacted(t *testing.T, s *server, old *corev1.ConfigMap) {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	client := s.store.client(t)
	maps := s.CoreV1().ConfigMaps(old.Namespace)
	require.NoError(t, await(ctx, func() error {
		c, err := maps.Get(ctx, old.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.Data["n"] += strconv.Itoa(1)
		if _, err := maps.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
			return err
		}
		_, err = client.Get(ctx, "x", clientv3.WithRev(revision(t, old)))
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("the store still has %s (%w)", old.ResourceVersion, err)
		}
		return nil
	}))
	require.NoError(t, await(ctx, func() error {
		_, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: old.ResourceVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		if !apierrors.IsResourceExpired(err) {
			return fmt.Errorf("the API server still has %s (%w)", old.ResourceVersion, err)
		}
		return nil
	}))
}
