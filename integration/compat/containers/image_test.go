package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

const (
	password = "sqlbrain"
	// pullWait bounds the download of an image, startWait what a server may take
	// until it answers.
	pullWait  = 10 * time.Minute
	startWait = 5 * time.Minute
	startPoll = 500 * time.Millisecond
	logShown  = 8 << 10
)

// image is a database server's.
type image struct {
	name string // of the subtest
	ref  string
	// standIn is the image that .ci/images makes where no registry can be reached; "" if Debian has nothing to make one
	// of: the test is skipped there.
	standIn string
	// given is the environment variable that names the server to enginetest.
	given    string
	port     string
	user     *url.Userinfo
	settings map[string]string
	// command are the arguments of the server.
	command []string
}

var images = []image{
	{
		name: "mysql-9", ref: "mysql:9", standIn: "sqlbrain-standin/mysql:9", given: enginetest.EnvMySQLURL, port: "3306/tcp",
		user: url.UserPassword("root", password), settings: map[string]string{"MYSQL_ROOT_PASSWORD": password},
	},
	{
		name: "mysql-8.4", ref: "mysql:8.4", given: enginetest.EnvMySQLURL, port: "3306/tcp",
		user: url.UserPassword("root", password), settings: map[string]string{"MYSQL_ROOT_PASSWORD": password},
	},
	{
		name: "mariadb-11", ref: "mariadb:11", standIn: "sqlbrain-standin/mariadb:11", given: enginetest.EnvMariaDBURL,
		port: "3306/tcp",
		user: url.UserPassword("root", password), settings: map[string]string{"MARIADB_ROOT_PASSWORD": password},
	},
	{
		name: "tidb", ref: "pingcap/tidb:v8.5.3", given: enginetest.EnvTiDB,
		port: "4000/tcp",
		user: url.User("root"), command: []string{"--store=unistore", "--path=/tmp/tidb", "--host=0.0.0.0"},
	},
}

// product is what enginetest calls the server; a TiDB that is given is the only
// product.
func (i image) product() enginetest.Product {
	switch i.given {
	case enginetest.EnvMariaDBURL:
		return enginetest.MariaDB
	case enginetest.EnvMySQLURL:
		return enginetest.MySQL
	default:
		return enginetest.Products()[0]
	}
}

// start starts a container of the image for t, and sets enginetest's variable for it.
func (i image) start(t *testing.T) {
	t.Helper()
	ref, err := i.fetch(t.Context())
	if err != nil {
		i.missing(t, err)
	}
	options := []testcontainers.ContainerCustomizer{
		testcontainers.WithEnv(i.settings),
		testcontainers.WithExposedPorts(i.port),
		testcontainers.WithCmd(i.command...),
		testcontainers.WithLogger(quiet{}),
		// Not the log: a server that is being initialised says that it is ready too,
		// but does not listen. Each attempt has a bound: one that a server swallows
		// while it comes up must not use the whole time.
		testcontainers.WithWaitStrategyAndDeadline(startWait,
			wait.ForSQL(i.port, "mysql", func(host string, port network.Port) string {
				pass, _ := i.user.Password()
				return fmt.Sprintf("%s:%s@tcp(%s)/?timeout=2s&readTimeout=2s", i.user.Username(), pass,
					net.JoinHostPort(host, port.Port()))
			}).WithStartupTimeout(startWait).WithPollInterval(startPoll)),
	}
	c, err := testcontainers.Run(t.Context(), ref, options...)
	t.Cleanup(func() {
		// Its data is of no more use: it need not be shut down in order.
		if err := testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)); err != nil {
			t.Errorf("remove the container: %v", err)
		}
	})
	if c != nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the database server's log ends with\n%s", logTail(c))
			}
		})
	}
	if err != nil {
		t.Fatalf("start %s: %v", ref, err)
	}
	address, err := c.PortEndpoint(t.Context(), i.port, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range []string{enginetest.EnvMariaDBURL, enginetest.EnvMySQLURL, enginetest.EnvTiDB} {
		t.Setenv(env, "")
	}
	u := url.URL{Scheme: "mysql", User: i.user, Host: address, Path: "/"}
	t.Setenv(i.given, u.String())
}

// missing ends t, which needs an image that is not to be had.
func (i image) missing(t *testing.T, err error) {
	t.Helper()
	text := fmt.Sprintf("%v; run Docker and let it pull the image", err)
	if os.Getenv(enginetest.EnvRequire) != "1" || i.standIn == "" && !errors.Is(err, errNoDocker) {
		t.Skip(text)
	}
	t.Fatal(text)
}

var errNoDocker = errors.New("no Docker")

// fetch returns the stand-in if it is here, else the vendor's image, which it pulls if it is not here. Its error wraps
// errNoDocker if nothing answers that would run it.
func (i image) fetch(ctx context.Context) (ref string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	p, err := testcontainers.NewDockerProvider(
		testcontainers.DockerProviderOptionFunc(func(o *testcontainers.DockerProviderOptions) {
			o.Logger = quiet{}
		}))
	if err != nil {
		return "", fmt.Errorf("%w: %v", errNoDocker, err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for _, ref := range []string{i.standIn, i.ref} {
		if ref == "" {
			continue
		}
		_, err := p.Client().ImageInspect(ctx, ref)
		switch {
		case err == nil:
			return ref, nil
		case !errdefs.IsNotFound(err):
			return "", fmt.Errorf("%w: %v", errNoDocker, err)
		}
	}
	if err := p.PullImage(ctx, i.ref); err != nil {
		return "", fmt.Errorf("the image %s cannot be pulled: %w", i.ref, err)
	}
	return i.ref, nil
}

func logTail(c *testcontainers.DockerContainer) string {
	r, err := c.Logs(context.Background())
	if err != nil {
		return err.Error()
	}
	defer r.Close() //nolint:errcheck // it was read only
	all, err := io.ReadAll(r)
	if err != nil {
		return err.Error()
	}
	return string(all[max(0, len(all)-logShown):])
}

// quiet drops the log of testcontainers-go. Errors are returned, not logged.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
