package quickstart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// runWait bounds one block of commands.
const runWait = 5 * time.Minute

// known says what is done with the blocks of a page.
var known map[string]func(r *reader, t *testing.T, text string)

func init() {
	known = map[string]func(r *reader, t *testing.T, text string){
		"sh test": (*reader).run, "sh test background": (*reader).start, "text output": (*reader).compare,
		"sql test": (*reader).execute, "test": (*reader).control, "typed": (*reader).typeIn,
	}
}

// shell is what a reader takes from one page to the next.
type shell struct {
	folder    string
	variables []string // assignments
}

// reader does what a page says.
type reader struct {
	*shell
	database *url.URL          // of the administrator; nil if the page needs none
	ports    map[string]string // that stand for those of the page
	typed    string            // into the next block
	output   string            // of the last block
	programs []*program
}

type program struct {
	command string
	process *harness.Process
	stopped bool // as the page says
}

// ready is what sqlbrain logs in its two formats, and etcd and kine.
var ready = regexp.MustCompile(`"msg":"ready"|msg=ready|"msg":"ready to serve client requests"|Kine available`)

// stop ends the program, unless the page has stopped it.
func (p *program) stop(t *testing.T) {
	t.Helper()
	switch {
	case p.stopped:
	case strings.HasPrefix(p.command, "etcd "):
		p.process.Kill(t) // etcd ends by the signal, which is no clean end
	default:
		p.process.Stop(t)
	}
}

var assignment = regexp.MustCompile(`(?m)^(?:export )?[A-Z_]+=\S*$`)

var address = regexp.MustCompile(`\b(127\.0\.0\.1|localhost):(\d+)\b`)

// prepare makes the shell's folder the current one, and chooses ports.
func (r *reader) prepare(t *testing.T, steps []step) {
	t.Helper()
	path := os.Getenv("PATH")
	programs := []string{harness.Sqlbrain(t), harness.Etcdctl(t), harness.Etcdutl(t), harness.Etcd(t)}
	if slices.ContainsFunc(steps, func(s step) bool { return strings.HasPrefix(s.text, "kine ") }) {
		programs = append(programs, harness.Kine(t))
	}
	for _, program := range programs {
		path = filepath.Dir(program) + string(os.PathListSeparator) + path
	}
	t.Setenv("PATH", path)
	t.Chdir(r.folder)
	r.ports = make(map[string]string)
	choose := func(port string) {
		if r.ports[port] == "" {
			r.ports[port] = strconv.Itoa(enginetest.FreePort(t))
		}
	}
	if r.database != nil {
		r.ports["3306"] = r.database.Port()
	}
	// The defaults of sqlbrain and of etcdctl.
	choose("2379")
	choose("2380")
	for _, s := range steps {
		for _, found := range address.FindAllStringSubmatch(s.text, -1) {
			choose(found[2])
		}
	}
	t.Setenv("SQLBRAIN_LISTEN_CLIENT_URLS", r.moved("http://127.0.0.1:2379"))
	t.Setenv("SQLBRAIN_LISTEN_PEER_URLS", r.moved("http://127.0.0.1:2380"))
}

// moved returns text with the ports of the test.
func (r *reader) moved(text string) string {
	return address.ReplaceAllStringFunc(text, func(found string) string {
		host, port, _ := strings.Cut(found, ":")
		return host + ":" + cmp.Or(r.ports[port], port) // of another page
	})
}

// etcdctl gives etcdctl the default endpoint of the test. It refuses a flag that a variable sets as well.
const etcdctl = `etcdctl() {
  case "${ETCDCTL_ENDPOINTS-} $* " in
    *" --endpoints "* | [!\ ]*) command etcdctl "$@" ;;
    *) command etcdctl --endpoints 127.0.0.1:2379 "$@" ;;
  esac
}
`

func (r *reader) script(text string) string {
	return "set -euo pipefail\n" + r.moved(etcdctl) + strings.Join(r.variables, "\n") + "\n" + text
}

// run runs commands. Variables that they assign on a line of its own, later ones have too.
func (r *reader) run(t *testing.T, text string) {
	t.Helper()
	command := []string{"bash", "-c", r.script(text)}
	if r.typed != "" { // script runs a file in a terminal
		file := filepath.Join(t.TempDir(), "block")
		require.NoError(t, os.WriteFile(file, []byte(r.script(text)), 0o600))
		command = []string{"script", "--quiet", "--return", "--command", "bash " + file, "/dev/null"}
	}
	out := harness.Run(t, runWait, r.typed, command[0], command[1:]...)
	require.Zero(t, out.Code, "%s\n%s", out.Stdout, out.Stderr)
	r.output, r.typed = out.Stdout, ""
	r.variables = append(r.variables, assignment.FindAllString(text, -1)...)
}

// typeIn types lines into the next block.
func (r *reader) typeIn(_ *testing.T, text string) {
	r.typed = strings.Join(strings.Fields(text), "\n") + "\n"
}

// start starts a server and waits until it is ready.
func (r *reader) start(t *testing.T, text string) {
	t.Helper()
	p := &program{command: text}
	r.programs = append(r.programs, p)
	r.launch(t, p)
}

func (r *reader) launch(t *testing.T, p *program) {
	t.Helper()
	p.process = harness.StartProcess(t, "bash", "-c", r.script("exec "+p.command))
	p.process.Await(t, func(context.Context) error {
		if !ready.MatchString(p.process.LogTail(1 << 20)) {
			return errors.New("it does not log that it is ready")
		}
		return nil
	})
}

// compare requires that the last block printed these lines, in this order.
func (r *reader) compare(t *testing.T, text string) {
	t.Helper()
	rest := strings.Split(r.output, "\n")
	for want := range strings.SplitSeq(text, "\n") {
		for len(rest) > 0 && strings.TrimSpace(rest[0]) != strings.TrimSpace(want) {
			rest = rest[1:]
		}
		require.NotEmpty(t, rest, "%q is not in the output:\n%s", want, r.output)
		rest = rest[1:]
	}
}

// execute executes SQL statements.
func (r *reader) execute(t *testing.T, text string) {
	t.Helper()
	for statement := range strings.SplitSeq(text, ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			enginetest.Exec(t, r.database.String(), statement)
		}
	}
}

// control stops a program, or starts it again.
func (r *reader) control(t *testing.T, text string) {
	t.Helper()
	var what string
	var number int
	_, err := fmt.Sscanf(text, "%s %d", &what, &number)
	require.NoError(t, err, text)
	require.LessOrEqual(t, number, len(r.programs), text)
	p := r.programs[number-1]
	p.stop(t)
	p.stopped = what == "stop"
	if !p.stopped {
		r.launch(t, p)
	}
}

// onServer gives the page a database server of its own, without databases.
func onServer(t *testing.T, p enginetest.Product, s *shell) *reader {
	t.Helper()
	u, err := url.Parse(p.StartServer(t).URL())
	require.NoError(t, err)
	u.Path = "/mysql"
	enginetest.Exec(t, u.String(), "DROP DATABASE sqlbrain")
	return &reader{shell: s, database: u}
}
