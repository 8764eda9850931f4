package quickstart

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
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
		"sql test": (*reader).execute, "test": (*reader).control,
	}
}

// reader does what a page says.
type reader struct {
	database *url.URL          // of the administrator; nil if the page needs none
	ports    map[string]string // that stand for those of the page
	exports  []string
	output   string // of the last block
	programs []*program
}

type program struct {
	command string
	process *harness.Process
	stopped bool // as the page says
}

// ready is what sqlbrain logs in its two formats, and etcd.
var ready = regexp.MustCompile(`"msg":"ready"|msg=ready|"msg":"ready to serve client requests"`)

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

var address = regexp.MustCompile(`\b(127\.0\.0\.1|localhost):(\d+)\b`)

// prepare makes an empty folder the current one, and chooses ports.
func (r *reader) prepare(t *testing.T, steps []step) {
	t.Helper()
	path := os.Getenv("PATH")
	for _, program := range []string{harness.Sqlbrain(t), harness.Etcdctl(t), harness.Etcdutl(t), harness.Etcd(t)} {
		path = filepath.Dir(program) + string(os.PathListSeparator) + path
	}
	t.Setenv("PATH", path)
	t.Chdir(t.TempDir())
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
		return host + ":" + r.ports[port]
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
	return "set -euo pipefail\n" + r.moved(etcdctl) + strings.Join(r.exports, "\n") + "\n" + text
}

// run runs commands. What they export, later ones have too.
func (r *reader) run(t *testing.T, text string) {
	t.Helper()
	out := harness.Run(t, runWait, "", "bash", "-c", r.script(text))
	require.Zero(t, out.Code, "%s\n%s", out.Stdout, out.Stderr)
	r.output = out.Stdout
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "export ") {
			r.exports = append(r.exports, line)
		}
	}
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
func onServer(t *testing.T, p enginetest.Product) *reader {
	t.Helper()
	u, err := url.Parse(p.StartServer(t).URL())
	require.NoError(t, err)
	u.Path = "/mysql"
	enginetest.Exec(t, u.String(), "DROP DATABASE sqlbrain")
	return &reader{database: u}
}
