package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	poll = 50 * time.Millisecond
	// pollMetrics is the interval for reading metrics, which are megabytes.
	pollMetrics = 2 * time.Second
)

// server is a running kube-apiserver, and a client of it with all rights.
type server struct {
	*controlplane.APIServer
	*kubernetes.Clientset
	t     testing.TB
	store *store
}

// startServer starts a kube-apiserver on a store, with more flags, and returns when it
// is ready. No controller makes service accounts, so pods go without.
func startServer(t testing.TB, creds *controlplane.Credentials, st *store, flags ...string) *server {
	t.Helper()
	return startServerNumber(t, creds, 0, st, flags...)
}

// startServerNumber is startServer for one of several.
func startServerNumber(t testing.TB, creds *controlplane.Credentials, number int, st *store, flags ...string) *server {
	t.Helper()
	a := controlplane.StartAPIServer(t, creds, controlplane.APIConfig{Store: st.endpoints, Number: number,
		Flags: append([]string{"--disable-admission-plugins=ServiceAccount"}, flags...)})
	return &server{APIServer: a, Clientset: a.Client(), t: t, store: st}
}

// await polls until f returns nil; it returns f's last error if ctx ends before.
func await(ctx context.Context, f func() error) error { return awaitEvery(ctx, poll, f) }

func awaitEvery(ctx context.Context, interval time.Duration, f func() error) error {
	return eventually.Every(ctx, interval, func(context.Context) error { return f() })
}

// within returns a context that ends after d, or with the test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// metric returns the sum of the samples of a metric whose labels have all the
// texts, as `success="true"`.
func (s *server) metric(name string, labels ...string) (sum float64) {
	s.t.Helper()
	body, err := s.Get(s.t.Context(), "/metrics")
	require.NoError(s.t, err)
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		l := lines.Text()
		if !strings.HasPrefix(l, name+"{") && !strings.HasPrefix(l, name+" ") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(l, label) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(l[strings.LastIndexByte(l, ' ')+1:], 64)
		require.NoError(s.t, err, l)
		sum += v
	}
	require.NoError(s.t, lines.Err())
	return sum
}

// namespace makes a namespace of the test's own and returns its name.
func (s *server) namespace(t testing.TB) string {
	t.Helper()
	n, err := s.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return n.Name
}
