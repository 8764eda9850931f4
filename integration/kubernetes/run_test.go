package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// suiteWait bounds one package's tests.
const suiteWait = 30 * time.Minute

// outcome is what became of one top-level test.
type outcome struct {
	name   string // package.Test
	result string // pass, fail or skip; "" if it did not end
	output bytes.Buffer
}

// reason is what a test that skipped itself said last.
func (o *outcome) reason() string {
	lines := strings.Split(strings.TrimSpace(o.output.String()), "\n")
	for _, l := range slices.Backward(lines) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "---") && !strings.HasPrefix(l, "===") {
			return l
		}
	}
	return "it does not say why"
}

// event is a line of test2json, see cmd/test2json.
type event struct {
	Action, Package, Test, Output string
}

// compile builds the tests of a package of the module in dir. Paths are trimmed, so
// that the next copy of the module finds most of it in the build cache.
func compile(ctx context.Context, dir, pkg string) error {
	program := filepath.Join(dir, path.Base(pkg)+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-o", program, "./"+pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// runTests runs the tests of a package that match run ("": all) in the module
// in dir, and returns the top-level ones in the order they started. The error
// tells of anything but failed tests.
func runTests(ctx context.Context, dir, pkg, run string, env []string, progress io.Writer) ([]*outcome, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-p", pkg, filepath.Join(dir, path.Base(pkg)+".test"),
		"-test.v=test2json", "-test.timeout="+suiteWait.String(), "-test.run="+run)
	cmd.Dir, cmd.Env = filepath.Join(dir, pkg), env
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
		if e.Action == "pass" {
			o.output.Reset()
		}
		_, err := fmt.Fprintln(r.progress, e.Action, o.name)
		return err
	}
	return nil
}
