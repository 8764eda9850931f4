package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
)

// File is what a run found.
type File struct {
	Started  time.Time         `json:"started"`
	Machine  machine.Machine   `json:"machine"`
	Versions map[string]string `json:"versions"`
	Options  plan.Options      `json:"options,omitzero"`
	Rounds   int               `json:"rounds,omitempty"`
	Systems  []string          `json:"systems,omitempty"`
	Figures  []Figure          `json:"figures,omitempty"`
}

// Status says what a figure is worth.
type Status string

// The statuses.
const (
	OK Status = "ok"
	// Wrong: measured, but answers were wrong.
	Wrong Status = "wrong"
	// Failed: it came to no end.
	Failed Status = "failed"
	// Unsupported: the product has no such thing.
	Unsupported Status = "unsupported"
)

// Figure is one cell of one system in one round.
type Figure struct {
	System string `json:"system"`
	Round  int    `json:"round"`
	plan.Cell
	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"` // unless OK

	Started   time.Time `json:"started"`
	Load      float64   `json:"load"` // the machine's, of the minute before
	Seconds   float64   `json:"seconds"`
	Succeeded int64     `json:"succeeded"`
	Errors    int64     `json:"errors"` // requests that failed and were repeated
	PerSecond float64   `json:"per_second"`
	Keys      float64   `json:"keys_per_second"`
	P50       float64   `json:"p50_ms"`
	P90       float64   `json:"p90_ms"`
	P99       float64   `json:"p99_ms"`
	P999      float64   `json:"p99.9_ms"`

	// CPU microseconds for each operation, and bytes of memory.
	ServerCPU   float64 `json:"server_cpu_us"`
	DatabaseCPU float64 `json:"database_cpu_us"` // 0 where the database is in the server
	ClientCPU   float64 `json:"client_cpu_us"`
	ServerRSS   int64   `json:"server_rss"`
	DatabaseRSS int64   `json:"database_rss"`

	Answers    int64 `json:"answers"` // compared with the model
	Events     int64 `json:"events"`  // that had to come
	Missing    int64 `json:"events_missing"`
	Unexpected int64 `json:"events_unexpected"` // that came twice or should not have come
	Different  int64 `json:"events_different"`  // that came with another content
	Bad        int64 `json:"wrong"`

	// From the sending of a write to its event, of churn.
	LagP50 float64 `json:"lag_p50_ms,omitempty"`
	LagP99 float64 `json:"lag_p99_ms,omitempty"`
}

// Measured reports whether the figure has numbers that mean something: a few wrong
// answers are reported next to them.
func (f *Figure) Measured() bool {
	return f.Status == OK || f.Status == Wrong && f.Succeeded > 0 && f.Bad*100 < f.Answers+f.Events
}

// Read reads a file that Write has written; nil if there is none.
func Read(path string) (*File, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := new(File)
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Write replaces the file at once, so that one that is cut off leaves the old.
func Write(path string, content *File) error {
	b, err := json.MarshalIndent(content, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Continue adds the versions of the programs of a run that goes on with f. It fails if figures of f are not
// comparable with those of the run.
func (f *File) Continue(versions map[string]string, o plan.Options) error {
	if !reflect.DeepEqual(f.Options, o) {
		return fmt.Errorf("cannot go on: it has %+v, and this is %+v", f.Options, o)
	}
	for program, version := range versions {
		if before, ok := f.Versions[program]; ok && before != version {
			return fmt.Errorf("cannot go on: %s was %s, and is %s", program, before, version)
		}
		f.Versions[program] = version
	}
	return nil
}

// Has reports whether the figure was measured. One that failed may be tried again.
func (f *File) Has(system string, round int, cell string) bool {
	return slices.ContainsFunc(f.Figures, func(g Figure) bool {
		return g.System == system && g.Round == round && g.ID == cell && g.Status != Failed
	})
}

// Add adds a figure, in place of an older one of the same cell.
func (f *File) Add(g Figure) {
	f.Figures = slices.DeleteFunc(f.Figures, func(old Figure) bool {
		return old.System == g.System && old.Round == g.Round && old.ID == g.ID
	})
	f.Figures = append(f.Figures, g)
}
