package programs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// KWOKStages returns what KWOK itself comes with to play nodes that are ready and
// beat, and pods that start, end and go at once, as one file of YAML documents.
func KWOKStages(t testing.TB) []byte {
	t.Helper()
	module, err := moduleDir(t.Context(), "kwok")
	if err != nil {
		t.Fatal(err)
	}
	kwok, err := harness.Download(t.Context(), module, "sigs.k8s.io/kwok")
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for _, stage := range []string{
		"node/fast/node-initialize.yaml",
		"node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
		"pod/fast/pod-ready.yaml",
		"pod/fast/pod-complete.yaml",
		"pod/fast/pod-delete.yaml",
	} {
		content, err := os.ReadFile(filepath.Join(kwok, "kustomize", "stage", filepath.FromSlash(stage)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content)
	}
	return bytes.Join(all, []byte("\n---\n"))
}
