package compose

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// project is docker-compose.yml with a separate name, ports and images.
type project struct {
	t    *testing.T
	e    *engine // nil if nothing is started
	name string
	file string            // "": docker-compose.yml
	env  map[string]string // without the prefix SQLBRAIN_
	// profile is the one to start; "": those that the arguments name.
	profile string
	path    string // a folder of programs that go before others
}

// newProject returns a project of which nothing remains when t ends. It is built
// and started on e, and with the profile mysql.
func newProject(t *testing.T, e *engine) *project {
	t.Helper()
	p := &project{t: t, e: e, name: fmt.Sprintf("%s%d-%d", projectPrefix, os.Getpid(), rand.IntN(1e6)),
		profile: "mysql", env: map[string]string{"VERSION": "v0-of-the-test"}}
	p.env["IMAGE"] = "sqlbrain:" + p.name
	for _, name := range []string{"N1_PORT", "N2_PORT", "N3_PORT", "MYSQL_PORT"} {
		p.env[name] = freePort(t)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
		defer cancel()
		if t.Failed() {
			out, _ := p.try(ctx, "logs", "--no-color", "--tail=100")
			t.Logf("end of the containers' logs:\n%s", out)
		}
		out, err := p.try(ctx, "down", "--volumes", "--remove-orphans", "--timeout=20")
		require.NoError(t, err, out)
		if e.hasImage(p.env["IMAGE"]) {
			e.docker("image", "rm", p.env["IMAGE"])
		}
		require.Empty(t, e.remains(p.name), "what `down` left")
	})
	p.env["MYSQL_IMAGE"] = e.mysqlImage()
	p.env["GO_IMAGE"] = e.goImage()
	p.env["MIGRATE_IMAGE"] = e.migrateImage()
	return p
}

// freePort returns an unused port of the loopback interface. The UDP port
// of the same number is held until t ends: sqlstore/enginetest's FreePort, in whatever
// process, takes that for "given away".
func freePort(t *testing.T) string {
	t.Helper()
	for range 200 {
		// Below the ports that the system gives to outgoing connections.
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000))
		reservation, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			require.NoError(t, reservation.Close())
			continue
		}
		require.NoError(t, l.Close())
		t.Cleanup(func() { require.NoError(t, reservation.Close()) })
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		return port
	}
	t.Fatal("no free port")
	return ""
}

// root is the folder of the Makefile and docker-compose.yml.
var root = filepath.Join("..", "..", "..")

// try runs Docker Compose and returns what it printed on stdout.
func (p *project) try(ctx context.Context, args ...string) (string, error) {
	compose, err := composeTool()
	if err != nil {
		return "", err
	}
	return p.command(ctx, compose, append([]string{"--project-name", p.name, "--file",
		cmp.Or(p.file, filepath.Join(root, "docker-compose.yml")), "--ansi=never"}, args...)...)
}

// command runs a program in the environment of the project, and returns what it printed.
func (p *project) command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	for _, pair := range os.Environ() {
		// The caller's own settings for docker-compose.yml must not affect the test.
		if name, _, _ := strings.Cut(pair, "="); !strings.HasPrefix(name, "SQLBRAIN_") &&
			!strings.HasPrefix(name, "COMPOSE_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	// bake is buildx's, which need not be installed
	cmd.Env = append(cmd.Env, "COMPOSE_BAKE=false", "COMPOSE_PROJECT_NAME="+p.name, "DOCKER_BUILDKIT=1")
	if p.profile != "" {
		cmd.Env = append(cmd.Env, "COMPOSE_PROFILES="+p.profile)
	}
	if p.path != "" {
		cmd.Env = append(cmd.Env, "PATH="+p.path+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	for name, value := range p.env {
		cmd.Env = append(cmd.Env, "SQLBRAIN_"+name+"="+value)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), errors.Join(ctx.Err(), err),
			stderr.String())
	}
	return stdout.String(), nil
}

// run is try for commands that must succeed within limit. It logs the time.
func (p *project) run(limit time.Duration, args ...string) string {
	p.t.Helper()
	_, err := composeTool() // the first use builds it, which limit is not about
	require.NoError(p.t, err)
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	begin := time.Now()
	out, err := p.try(ctx, args...)
	require.NoError(p.t, err, out)
	p.t.Logf("compose %s: %s", strings.Join(args, " "), time.Since(begin).Round(10*time.Millisecond))
	return out
}

// container inspects the container of a service, running or not.
func (p *project) container(service string) object {
	p.t.Helper()
	c, found := p.e.inspect(strings.TrimSpace(p.run(eventually.Deadline, "ps", "--all", "--quiet", service)))
	require.True(p.t, found, service)
	return c
}

// config is what these tests look at of `docker compose config`.
type config struct {
	Services map[string]service
	Configs  map[string]struct{ Content string }
}

type service struct {
	Image     string
	Command   []string
	Build     struct{ Context, Dockerfile string }
	DependsOn map[string]struct {
		Condition string
		Required  bool
	} `json:"depends_on"`
	Environment map[string]string
	Healthcheck struct{ Test []string }
	Configs     []struct{ Source, Target string }
	Ports       []struct {
		HostIP    string `json:"host_ip"`
		Target    int
		Published string
	}
	Volumes  []serviceVolume
	Tmpfs    []string
	Networks map[string]struct{ Aliases []string }
}

type serviceVolume struct {
	Type, Source, Target string
	ReadOnly             bool `json:"read_only"`
}

// config reads docker-compose.yml as Docker Compose does.
func (p *project) config(args ...string) config {
	p.t.Helper()
	var c config
	require.NoError(p.t, json.Unmarshal([]byte(p.run(eventually.Deadline,
		append(args, "config", "--format=json")...)), &c))
	return c
}
