package model

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limit bounds one run of the checker. It is far more than a run takes, and decides no result.
const limit = 30 * time.Minute

// memory is the most memory of one run, in MB.
const memory = 3000

// Options of gcc: for a short search compiling takes longer than searching.
const (
	exhaustive = "-O1"
	quick      = "-O0"
)

// checked is what Spin reported about one model.
type checked struct {
	errors int
	states int
	steps  int // of the counterexample: statements of Promela
	output string
}

// run runs a program in dir. The checker's exit code does not say whether it found an error.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// check visits the states of a model that was made with defines, such as "TERMS=2", until it finds an error. A
// search that was not exhaustive fails the test. optimize is gcc's option.
func check(t *testing.T, file, optimize string, defines []string) checked {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, sources); err != nil {
		t.Fatal(err)
	}
	args := []string{"-o3", "-a"} // -o3: each statement is listed by itself if it is not reached
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	if out := run(t, dir, "spin", append(args, file)...); strings.Contains(out, "Error") {
		t.Fatalf("spin:\n%s", out)
	}
	run(t, dir, "gcc", optimize, "-w", "-DSAFETY", "-DVECTORSZ=1024", fmt.Sprintf("-DMEMLIM=%d", memory), "-o", "pan",
		"pan.c")
	out := run(t, dir, filepath.Join(dir, "pan"), "-m1000000", "-E") // -E: an end without a step to take is no error
	c := checked{output: out, errors: number(t, out, `errors: (\d+)`), states: number(t, out, `(\d+) states, stored`)}
	if c.errors > 0 {
		if !strings.Contains(out, "assertion violated") {
			t.Fatalf("an error of the model itself:\n%s", out)
		}
		c.steps = number(t, out, `at depth (\d+)`)
		return c
	}
	for _, incomplete := range []string{"max search depth too small", "Search not completed", "out of memory", "truncat",
		"aborted"} {
		if strings.Contains(out, incomplete) {
			t.Fatalf("the search was not exhaustive:\n%s", out)
		}
	}
	if !strings.Contains(out, "Full statespace search") {
		t.Fatalf("no search of the full state space:\n%s", out)
	}
	return c
}

func number(t *testing.T, out, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("%q is missing in:\n%s", pattern, out)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
