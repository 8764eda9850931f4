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

// Load reads what Keep kept.
func Load(dir string) (reports []report.ClientReport, persisted []model.EtcdRequest, err error) {
	// A porcupine.Operation holds anything.
	type operation struct {
		ClientId     int //nolint:revive,staticcheck // porcupine's name
		Input        model.EtcdRequest
		Output       model.MaybeEtcdResponse
		Call, Return int64
	}
	var kept []struct {
		ClientID int
		KeyValue []operation
		Watch    []model.WatchOperation
	}
	if err := errors.Join(readJSON(filepath.Join(dir, "reports.json"), &kept),
		readJSON(filepath.Join(dir, "persisted.json"), &persisted)); err != nil {
		return nil, nil, err
	}
	for _, k := range kept {
		r := report.ClientReport{ClientID: k.ClientID, Watch: k.Watch}
		for _, op := range k.KeyValue {
			r.KeyValue = append(r.KeyValue, porcupine.Operation{
				ClientId: op.ClientId, Input: op.Input, Output: op.Output, Call: op.Call, Return: op.Return, Metadata: op.Output,
			})
		}
		reports = append(reports, r)
	}
	return reports, persisted, nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
