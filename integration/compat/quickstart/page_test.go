package quickstart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// step is one thing that a page has the test do.
type step struct {
	what string // the info string of a block, or the comment up to its first colon
	text string
}

// docs is the folder of the pages. Its name is absolute because the pages have a folder of their own.
var docs = func() string {
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "docs"))
	if err != nil {
		panic(err)
	}
	return dir
}()

var (
	fence   = regexp.MustCompile("^```(.*)$")
	comment = regexp.MustCompile(`(?s)^<!-- (sh test background|sh test|sql test|test|typed|not run)[:\n](.*?)-->$`)
)

// read returns the steps of a page. It fails the test if the page has commands that are neither run nor excused.
func read(t *testing.T, file string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, file))
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	excused := false
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "<!-- ") {
			first := i
			for ; !strings.HasSuffix(lines[i], "-->"); i++ {
				require.Less(t, i+1, len(lines), "%s: a comment without an end", file)
			}
			if found := comment.FindStringSubmatch(strings.Join(lines[first:i+1], "\n")); found != nil {
				excused = found[1] == "not run"
				if !excused {
					steps = append(steps, step{found[1], strings.TrimSpace(found[2])})
				}
			}
			continue
		}
		found := fence.FindStringSubmatch(lines[i])
		if found == nil {
			continue
		}
		first := i + 1
		for i++; lines[i] != "```"; i++ {
			require.Less(t, i+1, len(lines), "%s: a block without an end", file)
		}
		block := step{found[1], strings.Join(lines[first:i], "\n")}
		switch language, _, _ := strings.Cut(block.what, " "); {
		case known[block.what] != nil:
			steps = append(steps, block)
		case language == "sh" || language == "sql":
			require.True(t, excused, "%s: this block is neither run nor has a comment that says why:\n%s", file, block.text)
		}
		excused = false
	}
	return steps
}

// run does what the page says.
func run(t *testing.T, file string, r *reader) {
	t.Helper()
	steps := read(t, file)
	needs(t, steps)
	r.prepare(t, steps)
	for _, s := range steps {
		t.Logf("%s\n%s", s.what, r.moved(s.text))
		known[s.what](r, t, r.moved(s.text))
	}
	for _, p := range r.programs {
		p.stop(t)
	}
}

// needs skips t, or fails it where CI has everything, if a program of the system that the page uses is missing.
func needs(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		program := ""
		switch {
		case s.what == "typed":
			program = "script"
		case strings.HasPrefix(s.text, "openssl "):
			program = "openssl"
		default:
			continue
		}
		if _, err := exec.LookPath(program); err != nil {
			require.NotEqual(t, "1", os.Getenv(enginetest.EnvRequire), "%v", err)
			t.Skip(err)
		}
	}
}

// TestPages: the commands of the pages do what the pages say, on every product of a database server if the page needs
// one. A page leaves nothing in the shell or the folder that keeps the next one from working.
func TestPages(t *testing.T) {
	harness.NeedsDatabase(t)
	s := &shell{folder: t.TempDir()}
	for _, file := range pages(t) {
		t.Run(file, func(t *testing.T) {
			onServers := slices.ContainsFunc(read(t, file), func(s step) bool { return s.what == "sql test" })
			if !onServers {
				run(t, file, &reader{shell: s})
				return
			}
			harness.ForEachServer(t, func(t *testing.T, p enginetest.Product) { run(t, file, onServer(t, p, s)) })
		})
	}
}

// pages returns the pages whose commands are run, from docs.
func pages(t *testing.T) []string {
	t.Helper()
	out := []string{"etcd.md"}
	for _, folder := range []string{"start", "operate"} {
		files, err := filepath.Glob(filepath.Join(docs, folder, "*.md"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, f := range files {
			out = append(out, filepath.Join(folder, filepath.Base(f)))
		}
	}
	return out
}
