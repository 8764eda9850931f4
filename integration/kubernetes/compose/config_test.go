package compose

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/dns"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/sqlbrain/sqlbrain/sqlstore"
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

// setting returns the variable of the environment that is a setting.
func setting(flag string) string {
	return "SQLBRAIN_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func TestConfig(t *testing.T) {
	p := &project{t: t, name: projectPrefix + "config"}
	all := p.config("--profile", "*")
	require.ElementsMatch(t, slices.Collect(maps.Keys(p.config().Services)),
		slices.Collect(maps.Keys(p.config("--profile", "tidb").Services)), "TiDB is the default")
	for profile, want := range databases {
		t.Run(profile, func(t *testing.T) {
			p := &project{t: t, name: p.name}
			services := p.config("--profile", profile).Services
			migrate := want.database + "-migrate"
			require.ElementsMatch(t, slices.Concat(want.nodes, want.others, []string{want.database, migrate}),
				slices.Collect(maps.Keys(services)),
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
				require.Equal(t, "verify", env[setting("migrate")])
				require.Equal(t, []string{env[setting("snapshot-dir")]}, s.Tmpfs, "nothing else of a member can be written")
				require.Regexp(t, "^"+want.scheme+"://.*@"+want.database+":", env[setting("datastore")])
				if u, err := sqlstore.ParseURL(env[setting("datastore")]); want.database == "mysql" {
					require.NoError(t, err)
					require.Equal(t, volumeAt(services["mysql"], path.Dir(u.Socket)), volumeAt(s, path.Dir(u.Socket)),
						"else MySQL would be sent the password over the network")
				}
				require.Equal(t, "https://"+node+":2380", env[setting("initial-advertise-peer-urls")],
					"members find each other by the service's name")
				require.Equal(t, "http://127.0.0.1:"+[]string{"2379", "22379", "32379"}[i], env[setting("advertise-client-urls")])
				require.Len(t, s.Ports, 1, "the peer port stays inside")
				require.Equal(t, env[setting("advertise-client-urls")],
					fmt.Sprintf("http://%s:%s", s.Ports[0].HostIP, s.Ports[0].Published),
					"clients on the host reach what is advertised")
				require.Equal(t, 2379, s.Ports[0].Target)
				names[env[setting("name")]] = true
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
			if len(s.Command) > 0 { // else the program looks for it there
				require.Contains(t, strings.Join(s.Command, " "), c.Target)
			}
		}
	}
	require.Contains(t, all.Services, "tikv")
	for _, part := range []string{"tikv", "pd"} {
		require.Equal(t, tag(all, "tidb", "pingcap/tidb"), tag(all, part, "pingcap/"+part), "one release of all")
	}
}

// volumeAt returns the source of the volume that a service has at target.
func volumeAt(s service, target string) string {
	at := slices.IndexFunc(s.Volumes, func(v serviceVolume) bool { return v.Target == target })
	if at < 0 {
		return s.Image + " has none"
	}
	return s.Volumes[at].Source
}

func TestSQLiteConfig(t *testing.T) {
	p := &project{t: t, name: projectPrefix + "config"}
	services := p.config("--profile", "sqlite").Services
	require.Equal(t, []string{"sqlite-n1"}, slices.Sorted(maps.Keys(services)), "SQLite allows one server")
	s := services["sqlite-n1"]
	require.NotEmpty(t, s.Build.Context)
	require.NotContains(t, s.Environment, setting("datastore"))
	require.Len(t, s.Volumes, 1)
	require.Equal(t, s.Environment[setting("data-dir")], s.Volumes[0].Target, "the data outlives the container")
	require.Equal(t, s.Environment[setting("advertise-client-urls")],
		fmt.Sprintf("http://%s:%s", s.Ports[0].HostIP, s.Ports[0].Published))
}

// Prometheus scrapes the nodes of every profile, and loads the alerts. Grafana loads the dashboard and asks Prometheus.
func TestMonitoringConfig(t *testing.T) {
	p := &project{t: t, name: projectPrefix + "config"}
	all := p.config("--profile", "monitoring")
	require.Equal(t, []string{"grafana", "prometheus"}, slices.Sorted(maps.Keys(all.Services)),
		"it is added to another profile")
	prometheus, grafana := all.Services["prometheus"], all.Services["grafana"]

	// The rule file is looked for next to the settings.
	require.Len(t, prometheus.Configs, 1)
	dir := t.TempDir()
	settings := filepath.Join(dir, filepath.Base(prometheus.Configs[0].Target))
	require.NoError(t, os.WriteFile(settings, []byte(all.Configs[prometheus.Configs[0].Source].Content), 0o600))
	c, err := promconfig.LoadFile(settings, false, promslog.NewNopLogger())
	require.NoError(t, err)
	require.Len(t, c.RuleFiles, 1)
	rel, err := filepath.Rel(dir, c.RuleFiles[0])
	require.NoError(t, err)
	rules := filepath.Join(filepath.Dir(prometheus.Configs[0].Target), rel)
	at := slices.IndexFunc(prometheus.Volumes, func(v serviceVolume) bool { return v.Target == rules })
	require.NotEqual(t, -1, at, "%s is not mounted", rules)
	_, errs := rulefmt.ParseFile(prometheus.Volumes[at].Source, false, model.LegacyValidation)
	require.Empty(t, errs)

	require.Len(t, c.ScrapeConfigs, 1)
	scrape := c.ScrapeConfigs[0]
	require.Contains(t, scrape.JobName, "sqlbrain", "alerts look for it")
	require.Len(t, scrape.ServiceDiscoveryConfigs, 1)
	names, ok := scrape.ServiceDiscoveryConfigs[0].(*dns.SDConfig)
	require.True(t, ok)
	for profile, nodes := range map[string][]string{"tidb": databases["tidb"].nodes, "mysql": databases["mysql"].nodes,
		"sqlite": {"sqlite-n1"}} {
		services := p.config("--profile", profile).Services
		for _, node := range nodes {
			require.Equal(t, names.Names, services[node].Networks["default"].Aliases, node)
			require.Equal(t, names.Port, services[node].Ports[0].Target, node)
		}
	}

	var datasources struct{ Datasources []struct{ Type, URL string } }
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	for _, c := range grafana.Configs {
		content := []byte(all.Configs[c.Source].Content)
		switch path.Base(path.Dir(c.Target)) {
		case "datasources":
			require.NoError(t, yaml.Unmarshal(content, &datasources))
		case "dashboards":
			require.NoError(t, yaml.Unmarshal(content, &dashboards))
		}
	}
	require.Len(t, datasources.Datasources, 1)
	require.Equal(t, "prometheus", datasources.Datasources[0].Type)
	require.Equal(t, fmt.Sprintf("http://prometheus:%d", prometheus.Ports[0].Target), datasources.Datasources[0].URL)
	require.Len(t, dashboards.Providers, 1)
	require.Len(t, grafana.Volumes, 1)
	require.Equal(t, dashboards.Providers[0].Options.Path, path.Dir(grafana.Volumes[0].Target))
	require.FileExists(t, grafana.Volumes[0].Source)
	require.Equal(t, grafana.Volumes[0].Target, grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
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
	gomod, err := os.ReadFile(filepath.Join("..", "..", "..", "go.mod"))
	require.NoError(t, err)
	m := regexp.MustCompile(`github.com/golang-migrate/migrate/v4 (v\S+)`).FindStringSubmatch(string(gomod))
	require.NotNil(t, m)
	want, err := filepath.Abs(filepath.Join("..", "..", "..", "migrations", "mysql"))
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
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docker-compose.yml"))
	require.NoError(t, err)
	p := &project{t: t, name: projectPrefix + "config", env: map[string]string{}}
	for _, m := range regexp.MustCompile(`\$\{SQLBRAIN_(\w+):-`).FindAllStringSubmatch(string(text), -1) {
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
