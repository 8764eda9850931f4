package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// suiteWait bounds one package's tests, the build excluded.
const suiteWait = 30 * time.Minute

// outcome is what became of one top-level test.
type outcome struct {
	name   string // package.Test
	result string // pass, fail or skip; "" if it did not end
	output bytes.Buffer
}

// event is a line of go test -json, see cmd/test2json.
type event struct {
	Action, Package, Test, Output string
}

// runTests runs the tests of a package that match run ("": all) in the module
// in dir, and returns the top-level ones in the order they started. The error
// tells of anything but failed tests.
func runTests(ctx context.Context, dir, pkg, run string, env []string, progress io.Writer) ([]*outcome, error) {
	args := []string{"test", "-json", "-count=1", "-timeout", suiteWait.String()}
	if run != "" {
		args = append(args, "-run", run)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := report{pkg: pkg, byName: map[string]*outcome{}, progress: progress}
	readErr := r.read(json.NewDecoder(stdout))
	_, drainErr := io.Copy(io.Discard, stdout) // or Wait would cut it off
	waitErr := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) && r.failed {
		waitErr = nil // that is what failed tests exit with
	}
	if err := errors.Join(readErr, drainErr, waitErr); err != nil {
		return r.outcomes, fmt.Errorf("%s: %w\n%s%s", pkg, err, r.output.Bytes(), stderr.Bytes())
	}
	return r.outcomes, nil
}

type report struct {
	pkg      string
	outcomes []*outcome
	byName   map[string]*outcome
	output   bytes.Buffer // of the package: build errors, panics
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
		if e.Action == "output" || e.Action == "build-output" {
			r.output.WriteString(e.Output)
		}
		return nil
	}
	o := r.byName[name]
	if o == nil {
		o = &outcome{name: r.pkg[strings.LastIndexByte(r.pkg, '/')+1:] + "." + name}
		r.byName[name] = o
		r.outcomes = append(r.outcomes, o)
	}
	switch e.Action {
	case "output":
		o.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		if isSub {
			return nil
		}
		o.result = e.Action
		r.failed = r.failed || e.Action == "fail"
		if e.Action != "fail" {
			o.output.Reset()
		}
		_, err := fmt.Fprintln(r.progress, e.Action, o.name)
		return err
	}
	return nil
}
