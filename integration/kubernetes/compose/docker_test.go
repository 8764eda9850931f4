package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// projectPrefix begins the names of the tests' projects; the process id follows.
const projectPrefix = "sqlbrain-test-"

const projectLabel = "com.docker.compose.project"

// commandWait bounds a command.
const commandWait = 10 * time.Minute

// engine is the Docker engine, by its command. t is skipped if there is none.
type engine struct{ t *testing.T }

func newEngine(t *testing.T) *engine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", "info").CombinedOutput(); err != nil {
		unavailable(t, "no Docker engine answers: start one (apt-get install docker.io; dockerd) or name it with "+
			"DOCKER_HOST: %v\n%s",
			err, out)
	}
	e := &engine{t}
	e.removeAbandoned()
	return e
}

// docker runs the command, which must succeed, and returns what it prints.
func (e *engine) docker(args ...string) string {
	e.t.Helper()
	return strings.TrimSpace(e.output("docker", args...))
}

// output runs a program, which must succeed, and returns what it prints. It does so in cleanups too.
func (e *engine) output(name string, args ...string) string {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.t.Context()), commandWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(e.t, err, "%s %v: %s", name, args, stderr.String())
	return string(out)
}

// object is what these tests look at of a container or an image.
type object struct {
	ID    string
	Size  int64 // of an image
	State struct {
		Running, Restarting   bool
		Status                string
		ExitCode              int
		StartedAt, FinishedAt time.Time
		Health                struct{ Status string }
	}
	Config struct {
		User         string
		Entrypoint   []string
		ExposedPorts map[string]any
		Healthcheck  struct{ Test []string }
		Labels       map[string]string
	}
}

// inspect returns the container or image of that name, and whether there is one.
func (e *engine) inspect(name string) (o object, found bool) {
	e.t.Helper()
	out, err := exec.CommandContext(e.t.Context(), "docker", "inspect", "--format", "{{json .}}", name).Output()
	if err != nil {
		return o, false
	}
	require.NoError(e.t, json.Unmarshal(out, &o))
	return o, true
}

// ended waits until a container has ended, and returns its exit code.
func (e *engine) ended(id string) (code int) {
	e.t.Helper()
	eventually.Nil(e.t, eventually.Deadline, func(context.Context) error {
		o, _ := e.inspect(id)
		if o.State.Running || o.State.Restarting {
			return fmt.Errorf("%s is %s", id, o.State.Status)
		}
		code = o.State.ExitCode
		return nil
	})
	return code
}

// health waits until the container is healthy.
func (e *engine) health(id string) {
	e.t.Helper()
	eventually.Nil(e.t, eventually.Deadline, func(context.Context) error {
		if o, _ := e.inspect(id); o.State.Health.Status != "healthy" {
			return fmt.Errorf("%s is %s and %q", id, o.State.Status, o.State.Health.Status)
		}
		return nil
	})
}

// resources are the kinds of what a project leaves: how to list their names, and to remove one.
var resources = []struct{ list, remove []string }{
	{[]string{"ps", "--all", "--format={{.ID}}"}, []string{"rm", "--force", "--volumes"}},
	{[]string{"network", "ls", "--format={{.ID}}"}, []string{"network", "rm"}},
	{[]string{"volume", "ls", "--format={{.Name}}"}, []string{"volume", "rm", "--force"}},
}

// remains lists what of a project is left, each as the command that removes it.
func (e *engine) remains(project string) (left [][]string) {
	e.t.Helper()
	for _, r := range resources {
		for _, name := range strings.Fields(e.docker(append(r.list, "--filter=label="+projectLabel+"="+project)...)) {
			left = append(left, append(r.remove[:len(r.remove):len(r.remove)], name))
		}
	}
	return left
}

// removeAll removes what has the label of a project.
func (e *engine) removeAll(project string) {
	for _, remove := range e.remains(project) {
		e.docker(remove...)
	}
}

// removeAbandoned removes the leftovers of killed runs, if the engine is this machine's,
// whose processes are known.
func (e *engine) removeAbandoned() {
	if host := os.Getenv("DOCKER_HOST"); host != "" && !strings.HasPrefix(host, "unix://") {
		return
	}
	label := `{{.Label "` + projectLabel + `"}}`
	for _, list := range []string{"ps --all", "network ls", "volume ls"} {
		for _, project := range strings.Fields(e.docker(append(strings.Fields(list), "--format="+label)...)) {
			if abandoned(project) {
				e.removeAll(project)
			}
		}
	}
	for _, name := range strings.Fields(e.docker("image", "ls", "--format={{.Tag}}", "sqlbrain")) {
		if abandoned(name) {
			e.docker("image", "rm", "sqlbrain:"+name)
		}
	}
}

// abandoned reports whether project is one of these tests', and its process is gone.
func abandoned(project string) bool {
	rest, ours := strings.CutPrefix(project, projectPrefix)
	pid, err := strconv.Atoi(strings.Split(rest, "-")[0])
	if !ours || err != nil {
		return false
	}
	process, err := os.FindProcess(pid)
	return err == nil && errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// hasImage reports whether the engine has an image of that name.
func (e *engine) hasImage(name string) bool {
	_, found := e.inspect(name)
	return found
}

// mysqlImage returns the image to take for MySQL.
func (e *engine) mysqlImage() string {
	names := []string{"sqlbrain-standin/mysql:9", "mysql:9"}
	for _, name := range names {
		if e.hasImage(name) {
			return name
		}
	}
	unavailable(e.t, "the engine has none of the images %s: `docker pull mysql:9`, or make the stand-in with .ci/images",
		strings.Join(names, ", "))
	return ""
}
