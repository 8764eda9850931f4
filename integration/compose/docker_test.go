package compose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// projectPrefix begins the names of the tests' projects; the process id follows.
const projectPrefix = "sqlbrain-test-"

const projectLabel = "com.docker.compose.project"

// engine is the Docker engine. t is skipped if there is none.
type engine struct {
	*client.Client
	t *testing.T
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := c.Ping(ctx); err != nil {
		unavailable(t, "no Docker engine answers: start one (apt-get install docker.io; dockerd) or name it with DOCKER_HOST: %v", err)
	}
	e := &engine{c, t}
	e.removeAbandoned()
	return e
}

// hasImage reports whether the engine has an image of that name.
func (e *engine) hasImage(name string) bool {
	_, err := e.ImageInspect(e.t.Context(), name)
	return err == nil
}

// remains lists what of a project is left.
func (e *engine) remains(ctx context.Context, project string) (left []string) {
	e.each(ctx, filters.NewArgs(filters.Arg("label", projectLabel+"="+project)),
		func(kind, id, _ string) { left = append(left, kind+" "+id) })
	return left
}

// each calls f for every container, network and volume that the filter lets pass.
func (e *engine) each(ctx context.Context, filter filters.Args, f func(kind, id, project string)) {
	containers, err := e.ContainerList(ctx, container.ListOptions{All: true, Filters: filter})
	require.NoError(e.t, err)
	for _, c := range containers {
		f("container", c.ID, c.Labels[projectLabel])
	}
	networks, err := e.NetworkList(ctx, network.ListOptions{Filters: filter})
	require.NoError(e.t, err)
	for _, n := range networks {
		f("network", n.ID, n.Labels[projectLabel])
	}
	volumes, err := e.VolumeList(ctx, volume.ListOptions{Filters: filter})
	require.NoError(e.t, err)
	for _, v := range volumes.Volumes {
		f("volume", v.Name, v.Labels[projectLabel])
	}
}

// removeAll removes what has the label of a project.
func (e *engine) removeAll(project string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.t.Context()), eventually.Patience)
	defer cancel()
	e.each(ctx, filters.NewArgs(filters.Arg("label", projectLabel+"="+project)), func(kind, id, _ string) {
		require.NoError(e.t, e.remove(ctx, kind, id))
	})
}

func (e *engine) remove(ctx context.Context, kind, id string) error {
	switch kind {
	case "container":
		return e.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	case "network":
		return e.NetworkRemove(ctx, id)
	default:
		return e.VolumeRemove(ctx, id, true)
	}
}

// removeAbandoned removes the leftovers of killed runs, if the engine is this machine's,
// whose processes are known. It ignores errors, because another run may be doing the
// same; the next run tries again.
func (e *engine) removeAbandoned() {
	if !strings.HasPrefix(e.DaemonHost(), "unix://") {
		return
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), eventually.Patience)
	defer cancel()
	e.each(ctx, filters.NewArgs(filters.Arg("label", projectLabel)), func(kind, id, project string) {
		if abandoned(project) {
			e.t.Logf("removing the %s %s of the abandoned project %s: %v", kind, id, project, e.remove(ctx, kind, id))
		}
	})
	images, err := e.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(
		filters.Arg("reference", "sqlbrain:"+projectPrefix+"*"))})
	require.NoError(e.t, err)
	for _, i := range images {
		for _, name := range i.RepoTags {
			if abandoned(strings.TrimPrefix(name, "sqlbrain:")) {
				_, err := e.ImageRemove(ctx, name, image.RemoveOptions{PruneChildren: true})
				e.t.Logf("removing the abandoned image %s: %v", name, err)
			}
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

// removeImage removes an image by its name, if it is there.
func (e *engine) removeImage(ctx context.Context, name string) {
	if _, err := e.ImageRemove(ctx, name, image.RemoveOptions{PruneChildren: true}); err != nil &&
		!errdefs.IsNotFound(err) {
		e.t.Errorf("remove image %s: %v", name, err)
	}
}

// importImage makes an image of one layer.
func (e *engine) importImage(name string, layer io.Reader, changes ...string) error {
	out, err := e.ImageImport(e.t.Context(), image.ImportSource{Source: layer, SourceName: "-"}, name,
		image.ImportOptions{Changes: changes})
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(out)
	if err = errors.Join(err, out.Close()); err == nil && strings.Contains(string(answer), `"error"`) {
		err = errors.New(string(answer))
	}
	return err
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

// health waits until the container is healthy.
func (e *engine) health(id string, limit time.Duration) {
	e.t.Helper()
	eventually.Nil(e.t, limit, func(ctx context.Context) error {
		c, err := e.ContainerInspect(ctx, id)
		switch {
		case err != nil:
			return err
		case c.State.Health == nil:
			return fmt.Errorf("%s has no health check", c.Name)
		case c.State.Health.Status != container.Healthy:
			return fmt.Errorf("%s is %s and %s: %v", c.Name, c.State.Status, c.State.Health.Status, c.State.Health.Log)
		}
		return nil
	})
}
