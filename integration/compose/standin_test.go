package compose

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
)

// authorities is where Debian, and with it the image golang, has the certificates of
// public authorities.
const authorities = "/etc/ssl/certs/ca-certificates.crt"

// standIn makes the image name, unless it has been made of the same before.
func (e *engine) standIn(name, madeOf string, fill func(*layer), changes ...string) string {
	e.t.Helper()
	const label = "made-of"
	old, err := e.ImageInspect(e.t.Context(), name)
	if err == nil && old.Config.Labels[label] == madeOf {
		return name
	}
	if runtime.GOOS != "linux" {
		unavailable(e.t, "stand-ins are made of Linux programs: pull the image that %s stands in for", name)
	}
	e.t.Logf("making the image %s", name)
	r, w := io.Pipe()
	imported := make(chan error, 1)
	go func() {
		err := e.importImage(name, r, append(changes, "LABEL "+label+"="+madeOf)...)
		r.CloseWithError(err) // with nil, what would still be written is an error too
		imported <- err
	}()
	defer w.CloseWithError(errors.New("the test ended")) // should fill fail it
	l := &layer{w: tar.NewWriter(w), seen: map[string]bool{}}
	fill(l)
	require.NoError(e.t, errors.Join(l.err, l.w.Close(), w.Close()))
	require.NoError(e.t, <-imported)
	if old.ID != "" {
		e.removeImage(e.t.Context(), old.ID)
	}
	return name
}

// layer is the content of an image. The first error ends the writing.
type layer struct {
	w    *tar.Writer
	seen map[string]bool
	err  error
}

// folder adds the folders on the way to name.
func (l *layer) folder(name string) {
	if name = strings.Trim(path.Clean(name), "/"); name == "" || name == "." || l.seen[name] {
		return
	}
	l.folder(path.Dir(name))
	l.seen[name] = true
	l.header(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755})
}

func (l *layer) header(h *tar.Header) {
	if l.err == nil {
		l.err = l.w.WriteHeader(h)
	}
}

// file adds the file at from, or what a link there leads to, as name.
func (l *layer) file(from, name string) {
	name = strings.Trim(path.Clean(name), "/")
	if l.err != nil || l.seen[name] {
		return
	}
	content, err := os.ReadFile(from)
	if l.err = err; err != nil {
		return
	}
	info, err := os.Stat(from)
	if l.err = err; err != nil {
		return
	}
	l.folder(path.Dir(name))
	l.seen[name] = true
	l.header(&tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: int64(len(content))})
	if l.err == nil {
		_, l.err = l.w.Write(content)
	}
}

// tree adds all files of a folder, but those in the folders named in without.
func (l *layer) tree(from, name string, without ...string) {
	l.folder(name)
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || l.err != nil {
			return errors.Join(err, l.err)
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		switch rel = filepath.ToSlash(rel); {
		case d.IsDir() && slices.Contains(without, rel):
			return fs.SkipDir
		case !d.IsDir():
			l.file(p, path.Join(name, rel))
		}
		return l.err
	})
	l.err = errors.Join(l.err, err)
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// program adds a program with the libraries it loads, where they are.
func (l *layer) program(name string) {
	out, err := exec.Command("ldd", name).CombinedOutput()
	if err != nil {
		l.err = errors.Join(l.err, fmt.Errorf("ldd %s: %w\n%s", name, err, out))
		return
	}
	l.file(name, name)
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		l.file(m[1], m[1])
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
		func(l *layer) {
			l.tree(goroot, "/usr/local/go", "test", "api", "doc", "misc", "pkg/mod")
			// RUN's shell, and what the final stage copies.
			l.program("/bin/sh")
			l.file(authorities, authorities)
			l.folder("/tmp")
			l.tree(e.modules(), "/modules")
			e.compiled(l, "/compiled")
		},
		"ENV PATH=/usr/local/go/bin:/usr/bin:/bin", "ENV GOPATH=/go", "ENV GOTOOLCHAIN=local", "ENV GOCACHE=/compiled",
		"ENV GOPROXY=file:///modules", "ENV GOSUMDB=off") // go.sum is what is checked against
}

// listBinary runs `go list` on the packages that the binary is built of.
func (e *engine) listBinary(format string, env ...string) string {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), "go", "list", "-deps", format, "./cmd/sqlbrain")
	cmd.Dir = filepath.Join("..", "..")
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
func (e *engine) compiled(l *layer, name string) {
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
			l.file(found[0], path.Join(name, entry(filepath.Base(found[0]))))
			l.file(filepath.Join(cache, entry(fields[2]+"-d")), path.Join(name, entry(fields[2]+"-d")))
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
	return e.standIn("sqlbrain-standin/migrate:"+version, fingerprint(content), func(l *layer) {
		l.file(program, "/usr/local/bin/migrate")
		l.file(authorities, authorities)
	}, "ENV PATH=/usr/local/bin", `ENTRYPOINT ["migrate"]`, `CMD ["--help"]`)
}

// fingerprint identifies what an image is made of.
func fingerprint(parts ...[]byte) string {
	sum := sha256.Sum256(bytes.Join(parts, []byte{0}))
	return hex.EncodeToString(sum[:])
}

// output returns what a program prints.
func (e *engine) output(name string, args ...string) string {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(e.t, err, "%s %v: %s", name, args, stderr.String())
	return string(out)
}
