package compose

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestImage builds the Dockerfile and runs it by itself, over SQLite.
func TestImage(t *testing.T) {
	e := newEngine(t)
	p := newProject(t, e)
	p.run(25*time.Minute, "build", "mysql-n1")
	name := p.env["IMAGE"]
	image, found := e.inspect(name)
	require.True(t, found)
	require.Equal(t, "65532:65532", image.Config.User)
	require.Contains(t, image.Config.ExposedPorts, "2379/tcp")
	require.Contains(t, image.Config.ExposedPorts, "2380/tcp")
	require.NotEmpty(t, image.Config.Healthcheck.Test)
	require.Equal(t, "Apache-2.0", image.Config.Labels["org.opencontainers.image.licenses"])
	require.Equal(t, p.env["VERSION"], image.Config.Labels["org.opencontainers.image.version"])
	t.Logf("the image has %.1f MB", float64(image.Size)/1e6)

	port, label := p.env["N1_PORT"], projectLabel+"="+p.name
	e.docker("volume", "create", "--label="+label, p.name)
	// Docker's own way to ask for health, sooner.
	e.docker("create", "--name="+p.name, "--label="+label, "--health-interval=200ms", "--health-retries=100",
		"--read-only", "--cap-drop=ALL", "--publish=127.0.0.1:"+port+":2379", "--volume="+p.name+":/data", name)
	t.Cleanup(func() { e.removeAll(p.name) }) // before compose looks for what is left
	requireOnlyTheBinary(t, p.name)

	e.docker("start", p.name)
	e.health(p.name)
	_, err := harness.ClientOf(t, "http://127.0.0.1:"+port).Put(t.Context(), "k", "v")
	require.NoError(t, err, "there is no place for the data but the volume")
}

// requireOnlyTheBinary demands that the container holds the static program, and
// nothing that a shell could be started from.
func requireOnlyTheBinary(t *testing.T, container string) {
	t.Helper()
	exporting := exec.CommandContext(t.Context(), "docker", "export", container)
	content, err := exporting.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, exporting.Start())
	defer func() { require.NoError(t, exporting.Wait()) }()
	var executables []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if h.Typeflag != tar.TypeReg || h.Mode&0o111 == 0 || h.Size == 0 { // Docker mounts over empty files
			continue
		}
		executables = append(executables, h.Name)
		if h.Name == "sqlbrain" {
			program, err := io.ReadAll(r)
			require.NoError(t, err)
			binary, err := elf.NewFile(bytes.NewReader(program))
			require.NoError(t, err)
			for _, segment := range binary.Progs {
				require.NotEqual(t, elf.PT_INTERP, segment.Type, "not static")
			}
			t.Logf("the binary has %.1f MB", float64(len(program))/1e6)
		}
	}
	require.Equal(t, []string{"sqlbrain"}, executables)
}
