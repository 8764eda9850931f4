package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// published is the directory of the results that documents quote.
const published = "../../docs/benchmarks"

// quoting are the documents that quote the results, and of which systems; none: all.
var quoting = map[string][]string{
	"../../README.md":            {"etcd", "sqlbrain-sqlite", "sqlbrain-mysql", "kine-mysql"},
	"../../docs/measurements.md": nil,
}

// The lines around quoted figures.
const (
	quoteBegin = "<!-- Written by `make bench WHAT=report` from docs/benchmarks/results.json -->\n\n"
	quoteEnd   = "\n<!-- End of what is written -->\n"
)

// quote returns the document at path with the published figures.
func quote(path string, systems []string) (string, error) {
	document, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	f, err := result.Read(filepath.Join(published, results.name+".json"))
	if err != nil {
		return "", err
	}
	before, rest, found := strings.Cut(string(document), quoteBegin)
	_, after, ended := strings.Cut(rest, quoteEnd)
	if f == nil || !found || !ended {
		return "", errors.New(path + " has no place for figures, or there are none")
	}
	return before + quoteBegin + report.Summary(f, systems) + quoteEnd + after, nil
}

// quoteAll writes the published figures into the documents.
func quoteAll() error {
	for path, systems := range quoting {
		document, err := quote(path, systems)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(document), 0o644); err != nil {
			return err
		}
	}
	return nil
}
