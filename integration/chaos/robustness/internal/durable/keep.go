package durable

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
)

// Keep saves what is needed to understand a failure, and says where.
func Keep(t testing.TB, result validate.RobustnessResult, reports []report.ClientReport,
	persisted []model.EtcdRequest) {
	dir, err := os.MkdirTemp("", "sqlbrain-robustness-")
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("the history is kept in %s", dir)
	for name, v := range map[string]any{"reports.json": reports, "persisted.json": persisted} {
		if err := writeJSON(filepath.Join(dir, name), v); err != nil {
			t.Error(err)
		}
	}
	if result.Linearization.Status != validate.Unknown {
		if err := visualize(result.Linearization, filepath.Join(dir, "history.html")); err != nil {
			t.Error(err)
		}
	}
}

func writeJSON(path string, v any) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	e := json.NewEncoder(f)
	e.SetIndent("", " ")
	return e.Encode(v)
}

func visualize(r validate.LinearizationResult, path string) error {
	return porcupine.VisualizePath(r.Model, r.Info, path)
}
