package tidb

import (
	"bufio"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

// collection is a set of statements. Those that differ in the number of their
// rows or keys only are one.
type collection struct {
	mu   sync.Mutex
	text map[string]string // one of each, by its shape
	// seen counts them all.
	seen int
}

var (
	manyRows = regexp.MustCompile(`\(\?,\?\)(,\(\?,\?\))+`)
	manyKeys = regexp.MustCompile(`\(\?(,\?)+\)`)
	manyOr   = regexp.MustCompile(`( UNION ALL \(SELECT \? AS n, .*? LIMIT 1\))+`)
	literals = regexp.MustCompile(`_binary'(\\.|[^'\\])*'|'(\\.|[^'\\])*'|\b\d+\b`)
)

// add adds a statement as it was sent.
func (c *collection) add(text string) {
	shape := manyRows.ReplaceAllString(text, "(?,?),(?,?)")
	shape = manyKeys.ReplaceAllString(shape, "(?,?)")
	shape = manyOr.ReplaceAllString(shape, " UNION ALL …")
	if len(shape) > 4000 || strings.Contains(shape, "_binary'") {
		shape = literals.ReplaceAllString(shape, "?")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	if c.text == nil {
		c.text = map[string]string{}
	}
	// The shortest one is the one to print; the longest parses no differently.
	if old, ok := c.text[shape]; !ok || len(text) < len(old) {
		c.text[shape] = text
	}
}

// plan is a faultdriver.Plan that injects nothing and collects.
func (c *collection) plan(s faultdriver.Statement) faultdriver.Fault {
	if s.Text != "" {
		c.add(s.Text)
	}
	return faultdriver.Fault{}
}

// logged is a line of MariaDB's general log, or the first of several.
var logged = regexp.MustCompile(`^(?:\d{6} [ \d]\d:\d\d:\d\d\t|\t\t| {2,}|\t) *\d+ (Query|Prepare|Execute|Connect|Init DB|Quit|Close stmt|Reset stmt|Long Data|Statistics|Ping|Field List|Shutdown|Reset connection|Set option|Binlog Dump|Error)\b\t?(.*)$`)

// addLog adds the statements of a general log. It returns how many there were.
func (c *collection) addLog(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	in := bufio.NewReader(f)
	var text strings.Builder
	collecting := false
	flush := func() {
		if collecting {
			c.add(strings.TrimSuffix(text.String(), "\n"))
			n++
		}
		text.Reset()
		collecting = false
	}
	for {
		line, err := in.ReadString('\n')
		if m := logged.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			flush()
			// Execute repeats, with values, what Prepare had with placeholders.
			collecting = m[1] == "Query" || m[1] == "Prepare"
			text.WriteString(m[2] + "\n")
		} else if collecting {
			text.WriteString(line)
		}
		if errors.Is(err, io.EOF) {
			flush()
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
