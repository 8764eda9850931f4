// Command mutants plants the mutants of package mutants one by one, asks a judge whether it
// finds them, and records the verdicts and docs/mutants.md. It is run in the folder integration.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/mutants"
)

func main() {
	only := flag.String("run", "", "ask only about mutants whose name has this text; several are separated by |")
	judge := flag.String("judge", "unit", "the judge")
	missing := flag.Bool("missing", false, "ask only about mutants that the judge may find, and has not found, or not judged, before")
	own := flag.Bool("own", false, "the judge unit runs only the tests of the package that has the mutant")
	tests := flag.String("tests", "", "the judge unit runs only these tests of the package that has the mutant: a regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "..", *only, *judge, *missing, *own, *tests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, only, judge string, missing, own bool, tests string) error {
	var j mutants.Judge
	for _, known := range mutants.Judges {
		if known.Name == judge {
			j = known.Judge
		}
	}
	if j == nil {
		return fmt.Errorf("no judge %q", judge)
	}
	if judge == "unit" {
		j = mutants.UnitTests{OwnOnly: own || tests != "", Tests: tests}
	}
	verdicts, err := mutants.ReadVerdicts(root)
	if err != nil {
		return err
	}
	for _, m := range mutants.All {
		if !matches(m.Name, only) || missing && (verdicts[m.Name][judge] != "" || mutants.Unseen(judge, m) != "") {
			continue
		}
		began := time.Now()
		by, err := plant(ctx, root, j, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		verdicts.Note(m.Name, judge, by)
		if by == "" {
			by = "NOTHING"
		}
		fmt.Printf("%s: found by %s (%s)\n", m.Name, by, time.Since(began).Round(time.Second))
		if err := verdicts.Write(root); err != nil {
			return err
		}
	}
	return verdicts.Write(root)
}

func matches(name, only string) bool {
	for text := range strings.SplitSeq(only, "|") {
		if strings.Contains(name, text) {
			return true
		}
	}
	return false
}

func plant(ctx context.Context, root string, j mutants.Judge, m mutants.Mutant) (by string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.Plant(root, dir)
	if err != nil {
		return "", err
	}
	return j.Judge(ctx, root, overlay, m)
}
