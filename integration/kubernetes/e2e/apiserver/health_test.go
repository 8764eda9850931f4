package apiserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testHealth: the API server's checks of its store, and what it knows of its size.
func testHealth(t *testing.T, s *server) {
	for path, checks := range map[string][]string{
		"/readyz?verbose": {"etcd", "etcd-readiness", "informer-sync"},
		"/livez?verbose":  {"etcd"},
	} {
		text, err := s.Get(t.Context(), path)
		require.NoError(t, err, path)
		for _, c := range checks {
			require.Contains(t, string(text), "[+]"+c+" ok\n", path)
		}
		require.NotContains(t, string(text), "[-]", path)
	}
	require.NoError(t, awaitEvery(within(t, 2*time.Minute), pollMetrics, func() error {
		if s.metric("apiserver_storage_size_bytes") == 0 {
			return fmt.Errorf("no size is reported")
		}
		return nil
	}))
}

// checksWait is more than the longest time that the API server takes until its
// first check: five to seven and a half minutes, at random.
const checksWait = 9 * time.Minute

const consistencyChecks = "apiserver_storage_consistency_checks_total"

// testCacheChecks: every few minutes the API server compares a digest of its cache
// with one of what the store lists at the same version. Several resources must have
// been compared, and none may have differed.
func testCacheChecks(t *testing.T, s *server) {
	awaitChecks(t, s)
	require.Zero(t, s.metric(consistencyChecks, `status="error"`), "the cache could not be compared")
}

// awaitChecks waits for checks that begin after the call.
func awaitChecks(t *testing.T, s *server) {
	t.Helper()
	const enough = 5
	before := s.metric(consistencyChecks, `status="success"`)
	require.NoError(t, awaitEvery(within(t, checksWait), pollMetrics, func() error {
		requireConsistent(t, s)
		if n := s.metric(consistencyChecks, `status="success"`) - before; n < enough {
			return fmt.Errorf("%v checks so far", n)
		}
		return nil
	}))
	t.Logf("%v checks, no difference", s.metric(consistencyChecks, `status="success"`))
}

func requireConsistent(t *testing.T, s *server) {
	t.Helper()
	require.Zero(t, s.metric(consistencyChecks, `status="failure"`), "the cache differs from the store:\n%s",
		s.Process().LogTail(6000))
}
