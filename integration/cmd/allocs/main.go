// Command allocs compares what requests allocate with a recorded baseline: two files with the
// output of go test -bench. It fails if a benchmark allocates more than a tenth more, in number
// or in bytes. Times are printed, and not compared.
package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// tolerance is by which part a figure may be above the baseline.
const tolerance = 0.1

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: allocs BASELINE NEW")
	}
	var files [2]results
	for i, path := range args {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		files[i], err = read(f)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if failures := compare(out, files[0], files[1]); len(failures) > 0 {
		return fmt.Errorf("%s\nIf that is intended: make bench-allocs ACCEPT=1", strings.Join(failures, "\n"))
	}
	return nil
}

// results are the figures of each run of a benchmark, by its name and their unit.
type results map[string]map[string][]float64

// processors is what Go appends to the name of a benchmark.
var processors = regexp.MustCompile(`-\d+$`)

// read reads the output of go test -bench -benchmem.
func read(in io.Reader) (results, error) {
	all := make(results)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || len(fields)%2 != 0 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := processors.ReplaceAllString(fields[0], "")
		if all[name] == nil {
			all[name] = make(map[string][]float64)
		}
		for i := 2; i < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			all[name][fields[i+1]] = append(all[name][fields[i+1]], value)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no results of benchmarks")
	}
	return all, nil
}

// median returns the median of the runs, false if there were none.
func (r results) median(name, unit string) (float64, bool) {
	values := slices.Sorted(slices.Values(r[name][unit]))
	if len(values) == 0 {
		return 0, false
	}
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2, true
}

// compare prints the medians of both, and returns what is wrong with now.
func compare(out io.Writer, baseline, now results) (failures []string) {
	names := maps.Clone(baseline)
	maps.Copy(names, now)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tallocs/op\tbaseline\tB/op\tbaseline\tns/op")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprint(table, name)
		for _, unit := range []string{"allocs/op", "B/op"} {
			before, known := baseline.median(name, unit)
			after, measured := now.median(name, unit)
			fmt.Fprintf(table, "\t%.0f\t%.0f", after, before)
			switch {
			case !measured:
				failures = append(failures, fmt.Sprintf("%s: %s were not measured", name, unit))
			case !known:
				failures = append(failures, fmt.Sprintf("%s: the baseline has no %s", name, unit))
			case after > before*(1+tolerance):
				failures = append(failures, fmt.Sprintf("%s: %.0f %s are %.0f%% more than %.0f", name, after, unit,
					100*(after/before-1), before))
			}
		}
		took, _ := now.median(name, "ns/op")
		fmt.Fprintf(table, "\t%.0f\n", took)
	}
	_ = table.Flush()
	return failures
}
