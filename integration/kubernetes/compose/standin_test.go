package compose

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/stretchr/testify/require"
)

// authorities is where Debian, and with it the image golang, has the certificates of
// public authorities.
const authorities = "/etc/ssl/certs/ca-certificates.crt"

// standIn makes the image name, unless it has been made of the same before.
func (e *engine) standIn(name, madeOf string, fill func(layer), changes ...string) string {
	e.t.Helper()
	const label = "made-of"
	old, found := e.inspect(name)
	if found && old.Config.Labels[label] == madeOf {
		return name
	}
	if runtime.GOOS != "linux" {
		unavailable(e.t, "stand-ins are made of Linux programs: pull the image that %s stands in for", name)
	}
	e.t.Logf("making the image %s", name)
	l := layer{e, e.t.TempDir()}
	fill(l)
	args := "--change=" + strings.Join(append(changes, "LABEL "+label+"="+madeOf), "\n--change=")
	importing := exec.CommandContext(e.t.Context(), "docker",
		append(append([]string{"import"}, strings.Split(args, "\n")...),
			"-", name)...)
	packing := exec.CommandContext(e.t.Context(), "tar", "--create", "--owner=0", "--group=0", "--directory="+l.dir, ".")
	pipe, err := packing.StdoutPipe()
	require.NoError(e.t, err)
	importing.Stdin = pipe
	require.NoError(e.t, packing.Start())
	out, err := importing.CombinedOutput()
	require.NoError(e.t, err, "%s", out)
	require.NoError(e.t, packing.Wait())
	if found {
		e.docker("image", "rm", old.ID)
	}
	return name
}

// layer is the content of an image, in a folder.
type layer struct {
	e   *engine
	dir string
}

// folder adds a folder that all may write to.
func (l layer) folder(name string) {
	require.NoError(l.e.t, os.MkdirAll(filepath.Join(l.dir, name), 0o755))
	require.NoError(l.e.t, os.Chmod(filepath.Join(l.dir, name), 0o777))
}

// copy adds the file or folder at from, or what a link there leads to, as name.
func (l layer) copy(from, name string) {
	to := filepath.Join(l.dir, name)
	require.NoError(l.e.t, os.MkdirAll(filepath.Dir(to), 0o755))
	l.e.output("cp", "--recursive", "--dereference", "--no-target-directory", from, to)
}

// script adds a program of a shell.
func (l layer) script(name, text string) {
	to := filepath.Join(l.dir, name)
	require.NoError(l.e.t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(l.e.t, os.WriteFile(to, []byte(text), 0o755)) //nolint:gosec // a program
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// program adds a program with the libraries it loads, where they are.
func (l layer) program(name string) {
	l.copy(name, name)
	l.libraries(name)
}

// libraries adds those that a program loads.
func (l layer) libraries(name string) {
	for _, m := range library.FindAllStringSubmatch(l.e.output("ldd", name), -1) {
		l.copy(m[1], m[1])
	}
}

// goImage returns the image that the Dockerfile is to build in.
func (e *engine) goImage() string {
	const real = "golang:1.26"
	if e.hasImage(real) {
		return real
	}
	// Not go.sum: that does not show which modules are used.
	modules := e.listBinary("-f={{with .Module}}{{.Path}} {{.Version}}{{end}}")
	goroot := strings.TrimSpace(e.output("go", "env", "GOROOT"))
	return e.standIn("sqlbrain-standin/golang:1.26", fingerprint([]byte(runtime.Version()), []byte(modules)),
		func(l layer) {
			l.copy(goroot, "/usr/local/go")
			// RUN's shell, and what the final stage copies.
			l.program("/bin/sh")
			l.copy(authorities, authorities)
			l.folder("/tmp")
			l.copy(e.modules(), "/modules")
			e.compiled(l, "/compiled")
		},
		"ENV PATH=/usr/local/go/bin:/usr/bin:/bin", "ENV GOPATH=/go", "ENV GOTOOLCHAIN=local", "ENV GOCACHE=/compiled",
		"ENV GOPROXY=file:///modules", "ENV GOSUMDB=off") // go.sum is what is checked against
}

// listBinary runs `go list` on the packages that the binary is built of.
func (e *engine) listBinary(format string, env ...string) string {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), "go", "list", "-deps", format, "./cmd/sqlbrain")
	cmd.Dir = filepath.Join("..", "..", "..")
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(e.t, err, stderr.String())
	return string(out)
}

// modules gathers the modules that the binary is built of, as a proxy serves them.
func (e *engine) modules() string {
	e.t.Helper()
	dir := e.t.TempDir()
	have := "file://" + filepath.ToSlash(strings.TrimSpace(e.output("go", "env", "GOMODCACHE"))) + "/cache/download"
	e.listBinary("-f={{.ImportPath}}", "GOMODCACHE="+dir, "GOFLAGS=-modcacherw", "GOSUMDB=off",
		"GOPROXY="+have+","+strings.TrimSpace(e.output("go", "env", "GOPROXY")))
	return filepath.Join(dir, "cache", "download")
}

// compiled adds what this machine's Go has compiled of the packages that the binary is
// built of, in the way of the Dockerfile, to be the image's build cache: without it
// the first build takes minutes. Missing packages are compiled by the build.
func (e *engine) compiled(l layer, name string) {
	ids := e.listBinary("-f={{.BuildID}}", "GOFLAGS=-export -trimpath", "CGO_ENABLED=0")
	cache := strings.TrimSpace(e.output("go", "env", "GOCACHE"))
	entry := func(id string) string { return path.Join(id[:2], id) }
	for id := range strings.Lines(ids) {
		// It begins with the first half of the hash of what was compiled, and how. The
		// entry of the whole hash, …-a, names that of the output, …-d.
		action, _, _ := strings.Cut(id, "/")
		hash, err := base64.URLEncoding.DecodeString(action)
		if err != nil || len(hash) == 0 {
			continue
		}
		found, err := filepath.Glob(filepath.Join(cache, entry(hex.EncodeToString(hash))+"*-a"))
		if err != nil || len(found) != 1 {
			continue
		}
		text, err := os.ReadFile(found[0])
		if fields := strings.Fields(string(text)); err == nil && len(fields) > 2 {
			l.copy(found[0], path.Join(name, entry(filepath.Base(found[0]))))
			l.copy(filepath.Join(cache, entry(fields[2]+"-d")), path.Join(name, entry(fields[2]+"-d")))
		}
	}
}

// migrateImage returns the image with golang-migrate's command.
func (e *engine) migrateImage() string {
	version := strings.TrimSpace(e.output("go", "list", "-m", "-f", "{{.Version}}",
		"github.com/golang-migrate/migrate/v4"))
	if real := "migrate/migrate:" + version; e.hasImage(real) {
		return real
	}
	program := buildMigrate(e.t)
	content, err := os.ReadFile(program)
	require.NoError(e.t, err)
	return e.standIn("sqlbrain-standin/migrate:"+version, fingerprint(content), func(l layer) {
		l.copy(program, "/usr/local/bin/migrate")
		l.copy(authorities, authorities)
	}, "ENV PATH=/usr/local/bin", `ENTRYPOINT ["migrate"]`, `CMD ["--help"]`)
}

// tidbImage returns an image that stands in for TiDB's: the server, over the store that is part of it.
func (e *engine) tidbImage(server string) string {
	content, err := os.ReadFile(server) //nolint:gosec // who runs the test names it
	require.NoError(e.t, err)
	const start = "#!/bin/sh\nexec /tidb-server \"$@\" --store=unistore --path=/data --temp-dir=/tmp\n"
	return e.standIn("sqlbrain-standin/tidb:8", fingerprint(content, []byte(start)), func(l layer) {
		l.program("/bin/sh")
		l.program("/usr/bin/curl") // asks for its health
		l.copy(server, "/tidb-server")
		l.libraries(server)
		l.script("/start", start)
		l.folder("/tmp")
	}, `ENTRYPOINT ["/start"]`)
}

// idleImage returns an image that does nothing until it is stopped, and says that it is healthy.
func (e *engine) idleImage() string {
	const start = "#!/bin/sh\ntrap 'exit 0' TERM\nsleep infinity &\nwait\n"
	return e.standIn("sqlbrain-standin/idle:1", fingerprint([]byte(start)), func(l layer) {
		l.program("/bin/sh")
		l.program("/bin/sleep")
		l.script("/usr/bin/curl", "#!/bin/sh\n")
		l.script("/start", start)
	}, "ENV PATH=/usr/bin:/bin", `ENTRYPOINT ["/start"]`)
}

// fingerprint identifies what an image is made of.
func fingerprint(parts ...[]byte) string {
	sum := sha256.Sum256(bytes.Join(parts, []byte{0}))
	return hex.EncodeToString(sum[:])
}
