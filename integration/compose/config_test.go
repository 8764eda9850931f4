package compose

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// databases are the profiles: what each starts, and in which order.
var databases = map[string]struct {
	database, scheme string
	nodes            []string
	others           []string // that the database is made of
}{
	"tidb":  {"tidb", "tidb", []string{"n1", "n2", "n3"}, []string{"pd", "tikv"}},
	"mysql": {"mysql", "mysql", []string{"mysql-n1", "mysql-n2", "mysql-n3"}, nil},
}

func TestConfig(t *testing.T) {
	p := &project{t: t, name: projectPrefix + "config"}
	all := p.config("--profile", "*")
	require.ElementsMatch(t, slices.Collect(maps.Keys(p.config().Services)), slices.Collect(maps.Keys(p.config("--profile", "tidb").Services)), "TiDB is the default")
	for profile, want := range databases {
		t.Run(profile, func(t *testing.T) {
			p := &project{t: t, name: p.name}
			services := p.config("--profile", profile).Services
			migrate := want.database + "-migrate"
			require.ElementsMatch(t, slices.Concat(want.nodes, want.others, []string{want.database, migrate}), slices.Collect(maps.Keys(services)),
				"nothing of the other profile")
			require.Contains(t, services[migrate].DependsOn, want.database)
			require.Contains(t, services[migrate].Command[1], "tcp("+want.database+":")
			names := map[string]bool{}
			require.NotEmpty(t, services[want.nodes[0]].Build.Context)
			for i, node := range want.nodes {
				s := services[node]
				env := s.Environment
				require.Equal(t, services[want.nodes[0]].Image, s.Image, "the first one's image is the others' too")
				require.Equal(t, []string{want.database, migrate}, slices.Sorted(maps.Keys(s.DependsOn)))
				require.Equal(t, "service_completed_successfully", s.DependsOn[migrate].Condition)
				require.Equal(t, "verify", env["SQLBRAIN_MIGRATE"])
				require.Regexp(t, "^"+want.scheme+"://.*@"+want.database+":", env["SQLBRAIN_DATASTORE"])
				require.Equal(t, "https://"+node+":2380", env["SQLBRAIN_INITIAL_ADVERTISE_PEER_URLS"], "members find each other by the service's name")
				require.Equal(t, "http://127.0.0.1:"+[]string{"2379", "22379", "32379"}[i], env["SQLBRAIN_ADVERTISE_CLIENT_URLS"])
				require.Len(t, s.Ports, 1, "the peer port stays inside")
				require.Equal(t, env["SQLBRAIN_ADVERTISE_CLIENT_URLS"], fmt.Sprintf("http://%s:%s", s.Ports[0].HostIP, s.Ports[0].Published), "clients on the host reach what is advertised")
				require.Equal(t, 2379, s.Ports[0].Target)
				names[env["SQLBRAIN_NAME"]] = true
			}
			require.Len(t, names, 3)
		})
	}
	for name, s := range all.Services {
		for dependency, d := range s.DependsOn {
			require.True(t, d.Required)
			if !strings.HasSuffix(dependency, "-migrate") {
				require.Equal(t, "service_healthy", d.Condition, "%s on %s", name, dependency)
				require.NotEmpty(t, all.Services[dependency].Healthcheck.Test, dependency)
			}
		}
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, "%s has a password that anybody may know", name)
		}
		for _, c := range s.Configs {
			require.NotEmpty(t, all.Configs[c.Source].Content)
			require.Contains(t, strings.Join(s.Command, " "), c.Target)
		}
	}
	require.Contains(t, all.Services, "tikv")
	for _, part := range []string{"tikv", "pd"} {
		require.Equal(t, tag(all, "tidb", "pingcap/tidb"), tag(all, part, "pingcap/"+part), "one release of all")
	}
}

// tag returns the tag of a service's image.
func tag(c config, service, name string) string {
	t, _ := strings.CutPrefix(c.Services[service].Image, name+":")
	return t
}

// The tool that makes the schema is the release that the server was built with, and
// reads the files that the server was built with.
func TestMigrateIsTheServersRelease(t *testing.T) {
	p := &project{t: t, name: projectPrefix + "config"}
	gomod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	require.NoError(t, err)
	m := regexp.MustCompile(`github.com/golang-migrate/migrate/v4 (v\S+)`).FindStringSubmatch(string(gomod))
	require.NotNil(t, m)
	want, err := filepath.Abs(filepath.Join("..", "..", "migrations", "mysql"))
	require.NoError(t, err)
	for _, name := range []string{"tidb-migrate", "mysql-migrate"} {
		s := p.config("--profile", "*").Services[name]
		require.Equal(t, "migrate/migrate:"+m[1], s.Image)
		require.Len(t, s.Volumes, 1)
		require.Equal(t, want, s.Volumes[0].Source)
		require.True(t, s.Volumes[0].ReadOnly)
		require.Contains(t, s.Command, "-path="+s.Volumes[0].Target)
	}
}

func TestEveryImageAndPortCanBeReplaced(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docker-compose.yml"))
	require.NoError(t, err)
	p := &project{t: t, name: projectPrefix + "config", env: map[string]string{}}
	for _, m := range regexp.MustCompile(`\$\{(\w+):-`).FindAllStringSubmatch(string(text), -1) {
		if p.env[m[1]] = "replaced"; strings.HasSuffix(m[1], "_PORT") {
			p.env[m[1]] = "12345"
		}
	}
	for name, s := range p.config("--profile", "*").Services {
		require.Equal(t, "replaced", s.Image, name)
		for _, port := range s.Ports {
			require.Equal(t, "12345", port.Published, name)
		}
	}
}
