package model

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// sources are the models. As a part of the test's binary they are a part of what Go knows a result of the tests by.
//
//go:embed *.pml replay.h
var sources embed.FS

// ErrNoTools says that Spin or a C compiler is missing.
var ErrNoTools = errors.New("the model needs Spin and a C compiler: apt-get install spin gcc")

// findTools returns ErrNoTools if a program is missing.
func findTools() error {
	for _, name := range []string{"spin", "gcc", "cpp"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("no %s in PATH: %w", name, ErrNoTools)
		}
	}
	return nil
}

// Replay is the model as a program that takes the steps of recorded runs. Use NewReplay.
type Replay struct{ dir string }

// NewReplay builds the model in dir, an empty directory that must exist while the Replay is used. lease is the longest
// read lease on the clock of the steps: timing.ReadLease if that is the clock of the leases.
func NewReplay(ctx context.Context, dir string, lease time.Duration) (*Replay, error) {
	if err := findTools(); err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, err
	}
	r := &Replay{dir: dir}
	define := fmt.Sprintf("-DLEASE=%d", lease.Microseconds())
	if out, err := r.run(ctx, dir, "spin", define, "-a", "replay.pml"); err != nil ||
		bytes.Contains(out, []byte("Error")) {
		return nil, fmt.Errorf("spin: %w\n%s", cmp.Or(err, errors.New("an error of the model")), out)
	}
	if out, err := r.run(ctx, dir, "gcc", "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-DMEMLIM=3000",
		define, "-o", "pan", "pan.c"); err != nil {
		return nil, fmt.Errorf("gcc: %w\n%s", err, out)
	}
	return r, nil
}

func (r *Replay) run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

// Account says what of a run was validated.
type Account struct {
	Steps   int // of the run
	Records int // that the model took
	Reads   int // that were among them
}

// Refusal is the first step of a run that the model does not allow, whatever the database did in between.
type Refusal struct {
	Step steptrace.Step
	// At is the time since the first step of the run.
	At time.Duration
	// Before are the last steps before it.
	Before []steptrace.Step
	// Reasons say what the model demands there. Several are for different courses of events.
	Reasons []string
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("the model does not allow what %s does at %s: it %s\n  %s\nbefore:",
		r.Step.Node, r.At.Round(time.Microsecond), Describe(r.Step), strings.Join(r.Reasons, "\n  or "))
	for _, s := range r.Before {
		text += fmt.Sprintf("\n  %s %s %s", r.At-(r.Step.At-s.At), s.Node, Describe(s))
	}
	return text
}

// Validate takes the steps of a run in the model. Steps must be in the order of time, as Read returns them. Errors:
// *Refusal, or that the run could not be validated.
func (r *Replay) Validate(ctx context.Context, steps []steptrace.Step) (Account, error) {
	t, err := newTable(steps)
	if err != nil {
		return Account{}, err
	}
	dir, err := os.MkdirTemp(r.dir, "run")
	if err != nil {
		return Account{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "records"), t.text(), 0o600); err != nil {
		return Account{}, err
	}
	// statements of Promela
	depth := 10000 + 80*len(t.records)
	// -w: a small table of states, which grows
	out, err := r.run(ctx, dir, filepath.Join(r.dir, "pan"), "-E", "-w16", fmt.Sprintf("-m%d", depth))
	if err != nil {
		return Account{}, fmt.Errorf("the search failed: %w\n%s", err, out)
	}
	a := Account{Steps: len(steps), Records: len(t.records), Reads: t.reads}
	result := out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:]
	if string(bytes.TrimSpace(result)) == "accepted" {
		return a, nil
	}
	for _, incomplete := range []string{"max search depth too small", "Search not completed", "out of memory", "aborted"} {
		if bytes.Contains(out, []byte(incomplete)) {
			return a, fmt.Errorf("the search was not exhaustive:\n%s", out)
		}
	}
	numbers := strings.Fields(string(result))
	if len(numbers) < 3 || numbers[0] != "refused" {
		return a, fmt.Errorf("the search gave no result:\n%s", out)
	}
	return a, t.refusal(steps, numbers[1:])
}

// contextSteps is how many steps before the one that was refused are reported.
const contextSteps = 20

// refusal explains the report of replay.h: the number of a record and reasons.
func (t *table) refusal(steps []steptrace.Step, numbers []string) error {
	at, err := strconv.Atoi(numbers[0])
	if err != nil || at < 0 || at >= len(t.records) {
		return fmt.Errorf("the search reports record %q", numbers[0])
	}
	step := t.records[at].step
	r := &Refusal{Step: steps[step], At: t.records[at].at - t.records[0].at, Before: steps[max(0, step-contextSteps):step]}
	token, err := sources.ReadFile("fence.pml")
	if err != nil {
		return err
	}
	lines := strings.Split(string(token), "\n")
	for _, n := range numbers[1:] {
		switch reason, err := strconv.Atoi(n); {
		case err != nil || reason > len(lines):
			return fmt.Errorf("the search reports the reason %q", n)
		case reason > 0:
			r.Reasons = append(r.Reasons, fmt.Sprintf("fence.pml:%d: %s", reason, strings.TrimSpace(lines[reason-1])))
		default:
			r.Reasons = append(r.Reasons, conditions[-reason])
		}
	}
	return r
}

// conditions are what replay.pml demands of a step, by the numbers there.
var conditions = map[int]string{
	1:  "the node has not finished the commit before",
	2:  "the node does not lead",
	3:  "the node did not write, or take, the value of the fence row that it builds on",
	4:  "the value of the fence row is not the next one",
	5:  "the node already leads",
	6:  "the node waits for no answer",
	7:  "the fence row cannot have been as the statement expects, so the statement cannot have been carried out",
	8:  "the statement was carried out",
	9:  "the fence row was as the statement expects, so the statement cannot have conflicted",
	10: "the node has not taken the fence row, or gave up",
	11: "the read lease of the leader before may still be valid",
	12: "the node does not show everything that was committed before its term",
	13: "the node has not found out that it must raise the attempt number",
	14: "the fence row cannot have held that value in the meantime",
	15: "no commit of the node is known to be written and not shown",
	16: "no other node has shown that revision, and it was not found in the table long enough before",
	17: "some client could know a newer revision when the read began",
	18: "the node does not show that revision",
	19: "the read lease was not valid in the meantime",
	20: "the node does not show yet what its look has found",
	21: "a node has a valid read lease, and does not show everything that any client can know",
	22: "more statements are on their way than the model follows",
}

// Describe says in words what a step does.
func Describe(s steptrace.Step) string {
	value := func(c coder.FenceToken) string {
		text := fmt.Sprintf("revision %d, term %d, sequence %d", c.Revision, c.Term, c.Sequence)
		switch {
		case c.IsResigned():
			text += ", resigned"
		case c.Attempt > 0:
			text += fmt.Sprintf(", attempt %d", c.Attempt)
		}
		return text
	}
	switch s.Kind {
	case steptrace.Open:
		return fmt.Sprintf("starts, and has found revision %d", s.Revision)
	case steptrace.Take:
		return fmt.Sprintf("takes the fence row (%s) after sequence %d", value(s.Token), s.Expected.Sequence)
	case steptrace.Commit:
		return fmt.Sprintf("sends a commit (%s) after sequence %d", value(s.Token), s.Expected.Sequence)
	case steptrace.Raise:
		return fmt.Sprintf("sends a raise (%s) after sequence %d", value(s.Token), s.Expected.Sequence)
	case steptrace.Resign:
		return fmt.Sprintf("resigns (%s) after sequence %d", value(s.Token), s.Expected.Sequence)
	case steptrace.Answer:
		return fmt.Sprintf("learns that its statement is %s", s.Result)
	case steptrace.Lead:
		return fmt.Sprintf("begins to lead (%s)", value(s.Token))
	case steptrace.Resolve:
		return fmt.Sprintf("resolves a commit, and has found %s", value(s.Token))
	case steptrace.Verify:
		return fmt.Sprintf("has looked at the fence row, and found %s", value(s.Token))
	case steptrace.Find:
		return fmt.Sprintf("has found revision %d in the table", s.Revision)
	case steptrace.Show:
		return fmt.Sprintf("makes revision %d readable", s.Revision)
	case steptrace.Shown:
		return fmt.Sprintf("has made revision %d readable", s.Revision)
	case steptrace.Read:
		return fmt.Sprintf("has answered a read, begun %s before, at revision %d", (s.At - s.Began).Round(time.Microsecond),
			s.Revision)
	default:
		return string(s.Kind)
	}
}

// Read reads files of steps, of one or several nodes each, and returns their steps in the order of time. The clocks of
// the nodes must be the same. The last line of a process that was killed may be incomplete, and is then left out.
func Read(files ...string) ([]steptrace.Step, error) {
	var all []steptrace.Step
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
		for i, line := range lines {
			s, err := decode(line)
			switch {
			case err == nil:
				all = append(all, s)
			case i < len(lines)-1:
				return nil, fmt.Errorf("%s, line %d: %w", name, i+1, err)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b steptrace.Step) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}

// decode decodes a line. It may begin with an incomplete one of a process that was killed before another one wrote.
func decode(line []byte) (s steptrace.Step, err error) {
	if err = json.Unmarshal(line, &s); err == nil {
		return s, nil
	}
	if i := bytes.LastIndex(line, []byte(`{"node":`)); i > 0 {
		s = steptrace.Step{}
		if json.Unmarshal(line[i:], &s) == nil {
			return s, nil
		}
	}
	return s, err
}

// ReadLease is the read lease of real nodes, see NewReplay.
const ReadLease = timing.ReadLease
