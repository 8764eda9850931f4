package compose

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// shellImage returns the base image of the target kine.
func (e *engine) shellImage() string {
	const real = "alpine:3.22"
	if e.hasImage(real) {
		return real
	}
	programs := []string{"/bin/sh", "/bin/cp", "/bin/chmod"}
	var content [][]byte
	for _, name := range programs {
		text, err := os.ReadFile(name)
		require.NoError(e.t, err)
		content = append(content, text)
	}
	return e.standIn("sqlbrain-standin/alpine:3.22", fingerprint(content...), func(l layer) {
		for _, name := range programs {
			l.program(name)
		}
		l.folder("/tmp")
	}, "ENV PATH=/usr/bin:/bin")
}

// TestKineImage builds the target kine, runs the command of Kamaji's init container in it, and then kine's default.
func TestKineImage(t *testing.T) {
	e := newEngine(t)
	dir := t.TempDir() // is removed after the project, which needs it
	p := newProject(t, e)
	folder, err := filepath.Abs(root)
	require.NoError(t, err)
	p.file = filepath.Join(dir, "compose.yml")
	require.NoError(t, os.WriteFile(p.file, []byte(`services:
  kine:
    image: `+p.env["IMAGE"]+`
    build:
      context: `+folder+`
      target: kine
      args: {GO_IMAGE: "`+p.env["GO_IMAGE"]+`", KINE_BASE: "`+e.shellImage()+`", VERSION: v0-of-the-test}
`), 0o600))
	p.run(25*time.Minute, "build", "kine")
	name := p.env["IMAGE"]
	image, found := e.inspect(name)
	require.True(t, found)
	require.Equal(t, "65534:65534", image.Config.User)
	require.Equal(t, []string{"/bin/kine"}, image.Config.Entrypoint)
	t.Cleanup(func() { e.removeAll(p.name) })

	// The files come from a secret, and the user of the image can read the copies.
	secret, certs := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(secret, "ca.crt"), []byte("x"), 0o600))
	for path, mode := range map[string]os.FileMode{secret: 0o755, filepath.Join(secret, "ca.crt"): 0o644, certs: 0o777} {
		require.NoError(t, os.Chmod(path, mode))
	}
	e.docker("run", "--rm", "--entrypoint=sh", "--volume="+secret+":/kine:ro", "--volume="+certs+":/certs", name,
		"-c", "cp /kine/*.* /certs && chmod -R 600 /certs/*.*")
	info, err := os.Stat(filepath.Join(certs, "ca.crt"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	e.docker("run", "--rm", "--entrypoint=/bin/sqlbrain", name, "version")

	port := p.env["N1_PORT"]
	e.docker("run", "--detach", "--name="+p.name, "--label="+projectLabel+"="+p.name,
		"--publish=127.0.0.1:"+port+":2379", name)
	c := harness.ClientOf(t, "http://127.0.0.1:"+port)
	eventually.Nil(t, eventually.Deadline, func(ctx context.Context) error {
		_, err := c.Put(ctx, "k", "v")
		return err
	})
	require.NoError(t, c.Close())
	e.docker("stop", p.name)
	require.Zero(t, e.ended(p.name))
}
