package gotest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// runWait bounds one package's tests.
const runWait = time.Hour

// Outcome is the result of one top-level test.
type Outcome struct {
	Name   string // of the test, as TestWatch
	Result string // pass, fail or skip; "" if it did not end
	Output bytes.Buffer
}

// Reason is what a test that skipped itself said last.
func (o *Outcome) Reason() string {
	lines := strings.Split(strings.TrimSpace(o.Output.String()), "\n")
	for _, l := range slices.Backward(lines) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "---") && !strings.HasPrefix(l, "===") {
			return l
		}
	}
	return "it does not say why"
}

// Program is the built tests of a package.
type Program struct {
	Path string // of the program
	Dir  string // of the package, where they are run
	Env  []string
}

// Run runs the tests that match run ("": all), and returns the top-level ones in the
// order they started. It reports progress. The error covers everything except failed
// tests.
func (p Program) Run(ctx context.Context, run string, progress io.Writer) ([]*Outcome, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", p.Path,
		"-test.v=test2json", "-test.timeout="+runWait.String(), "-test.run="+run)
	cmd.Dir, cmd.Env = p.Dir, p.Env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := report{byName: map[string]*Outcome{}, progress: progress}
	readErr := r.read(json.NewDecoder(stdout))
	_, drainErr := io.Copy(io.Discard, stdout) // or Wait would cut it off
	waitErr := cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](waitErr); ok && r.failed {
		waitErr = nil // that is what failed tests exit with
	}
	if err := errors.Join(readErr, drainErr, waitErr); err != nil {
		return r.outcomes, fmt.Errorf("%s: %w\n%s%s", p.Path, err, r.output.Bytes(), stderr.Bytes())
	}
	return r.outcomes, nil
}

// event is a line of test2json, see cmd/test2json.
type event struct {
	Action, Package, Test, Output string
}

type report struct {
	outcomes []*Outcome
	byName   map[string]*Outcome
	output   bytes.Buffer // of the package: panics
	failed   bool         // a test failed
	progress io.Writer
}

func (r *report) read(events *json.Decoder) error {
	for {
		var e event
		switch err := events.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("output of go test: %w", err)
		}
		if err := r.add(e); err != nil {
			return err
		}
	}
}

func (r *report) add(e event) error {
	name, _, isSub := strings.Cut(e.Test, "/")
	if name == "" {
		if e.Action == "output" {
			r.output.WriteString(e.Output)
		}
		return nil
	}
	o := r.byName[name]
	if o == nil {
		o = &Outcome{Name: name}
		r.byName[name] = o
		r.outcomes = append(r.outcomes, o)
	}
	switch e.Action {
	case "output":
		o.Output.WriteString(e.Output)
	case "pass", "fail", "skip":
		if isSub {
			return nil
		}
		o.Result = e.Action
		r.failed = r.failed || e.Action == "fail"
		if e.Action == "pass" {
			o.Output.Reset()
		}
		_, err := fmt.Fprintln(r.progress, e.Action, o.Name)
		return err
	}
	return nil
}
