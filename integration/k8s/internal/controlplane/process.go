package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/programs"
)

// start runs one of Kubernetes' programs until the test ends.
func start(t testing.TB, name string, args ...string) *harness.Process {
	t.Helper()
	p := harness.StartProcess(t, programs.Path(t, name), args...)
	t.Cleanup(func() { // before the harness kills it and its log's directory goes
		if t.Failed() {
			keepLog(t, name, p)
		}
	})
	return p
}

func keepLog(t testing.TB, name string, p *harness.Process) {
	to := filepath.Join(t.ArtifactDir(), fmt.Sprintf("%s-%d.log", name, p.ID()))
	log, err := os.ReadFile(p.LogPath())
	if err == nil {
		err = os.WriteFile(to, log, 0o600)
	}
	if err != nil {
		t.Errorf("keep the log of %s: %v", name, err)
		return
	}
	t.Logf("with go test -artifacts, the whole log of %s stays in %s", name, to)
}

// healthz returns a check that asks a program on this machine how it is. Its
// certificate is its own, made at start.
func healthz(t testing.TB, url string) func(context.Context) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // on the loopback interface
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close() //nolint:errcheck // read, or of no interest
		if response.StatusCode != http.StatusOK {
			text, err := io.ReadAll(response.Body)
			return fmt.Errorf("%s: %s: %s (%v)", url, response.Status, text, err)
		}
		return nil
	}
}
