package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/helmchart"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

const chart = folder + "helm/sqlbrain"

// namespace and the release's name are those of the rendered manifests.
const namespace, release = "storage", "sqlbrain"

// clusterValues make what Kustomize's base makes.
var clusterValues = map[string]any{
	"datastore": map[string]any{
		"url":            "mysql://sqlbrain@db.example:3306/sqlbrain?tls=true",
		"passwordSecret": map[string]any{"name": "sqlbrain-datastore"},
	},
}

// readChart renders the chart and decodes the objects strictly.
func readChart(t *testing.T, values map[string]any) (*manifests, *helmchart.Release) {
	t.Helper()
	r, err := helmchart.Render(t.Context(), chart, release, namespace, values)
	require.NoError(t, err)
	return decode(t, r), r
}

func decode(t *testing.T, r *helmchart.Release) *manifests {
	t.Helper()
	m := newManifests()
	for _, o := range r.Objects {
		m.add(t, o.Kind, o.Name, o.YAML)
	}
	return m
}

// values reads a file of the chart's folder ci.
func values(t *testing.T, name string) map[string]any {
	t.Helper()
	v, err := helmchart.ReadValues(filepath.Join(chart, "ci", name+"-values.yaml"))
	require.NoError(t, err)
	return v
}

func TestChartLint(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, version := range []string{"v1.29.0", "v1.37.0"} {
		kube, err := common.ParseKubeVersion(version)
		require.NoError(t, err)
		for _, file := range files {
			v, err := helmchart.ReadValues(file)
			require.NoError(t, err)
			result := lint.RunAll(chart, v, namespace, lint.WithKubeVersion(kube))
			for _, m := range result.Messages {
				assert.LessOrEqual(t, m.Severity, support.InfoSev, "%s on Kubernetes %s: %s", file, version, m)
			}
		}
	}
}

func TestChartRefusesValues(t *testing.T) {
	const url = "mysql://u@h/d"
	tests := map[string]struct{ values, says string }{
		"unknown value":          {`{replica: 3}`, "replica"},
		"SQLite on two servers":  {`{replicas: 2}`, "SQLite allows one server"},
		"password in the URL":    {`{datastore: {url: "mysql://u:secret@h/d"}}`, "/datastore/url"},
		"another database":       {`{datastore: {url: "postgres://u@h/d"}}`, "/datastore/url"},
		"flag of the chart":      {`{settings: {listen-peer-urls: x}}`, "settings.listen-peer-urls"},
		"flag with dashes":       {`{settings: {--console: true}}`, "--console"},
		"fraction":               {`{settings: {quota-backend-bytes: 1.5}}`, "/settings/quota-backend-bytes"},
		"tag as digest":          {`{image: {digest: v1}}`, "/image/digest"},
		"JWT without keys":       {`{auth: {token: jwt}}`, "auth.jwt.secretName"},
		"argument of the chart":  {`{extraArgs: [--data-dir=/x]}`, "extraArgs: the chart sets --data-dir"},
		"variable of the chart":  {`{extraEnv: [{name: SQLBRAIN_DATA_DIR, value: /x}]}`, "SQLBRAIN_DATA_DIR"},
		"volume without a name":  {`{extraVolumes: [{emptyDir: {}}]}`, "/extraVolumes/0"},
		"what a probe asks":      {`{probes: {liveness: {httpGet: {path: /livez}}}}`, "httpGet"},
		"Ingress without a name": {`{console: {enabled: true, ingress: {enabled: true}}}`, "console.host"},
		"Ingress to nothing":     {`{console: {host: a, ingress: {enabled: true}}}`, "console.enabled"},
		"route without gateway":  {`{console: {enabled: true, host: a, httpRoute: {enabled: true}}}`, "parentRefs"},
		"two passwords": {`{datastore: {url: "` + url + `", passwordSecret: {name: a}, passwordFrom: aws}}`,
			"datastore.passwordFrom"},
		"files without a claim": {`{backup: {to: "file:///backups/log"}}`, "backup.claim"},
		"job without a claim":   {`{backup: {schedule: "@daily"}}`, "backup.claim"},
		"job without the data": {`{backup: {schedule: "@daily", claim: a}, persistence: {accessMode: ReadWriteOncePod}}`,
			"backup.schedule"},
		"backup into the pod":    {`{backup: {to: "file:///data/log", claim: a}}`, "/backup/to"},
		"secret half of a key":   {`{backup: {to: "s3://b/p", recipients: [AGE-SECRET-KEY-1]}}`, "/backup/recipients/0"},
		"no memory is requested": {`{resources: {requests: {memory: null}}}`, "memory"},
		"too little memory":      {`{resources: {requests: {memory: 63Mi}}}`, "resources.requests.memory"},
		"little without a unit":  {`{resources: {requests: {memory: "67108863"}}}`, "resources.requests.memory"},
		"little of a large unit": {`{resources: {requests: {memory: 0.06Gi}}}`, "resources.requests.memory"},
		"nothing can be evicted": {`{datastore: {url: "` + url + `"}, podDisruptionBudget: {minAvailable: 3}}`,
			"podDisruptionBudget.minAvailable"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var v map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(tt.values), &v))
			_, err := helmchart.Render(t.Context(), chart, release, namespace, v)
			assert.ErrorContains(t, err, tt.says)
		})
	}
}

func TestChartTakesMemory(t *testing.T) {
	for _, memory := range []string{"64Mi", "67108864", "0.5Gi", "1Ti"} {
		readChart(t, map[string]any{"resources": map[string]any{"requests": map[string]any{"memory": memory}}})
	}
}

// Every file that a setting names lies in a mounted volume, and every volume is used.
func TestChartMountsWhatItNames(t *testing.T) {
	variables := known(t)
	for _, name := range []string{"sqlite", "mysql", "tidb", "backup"} {
		t.Run(name, func(t *testing.T) {
			m, _ := readChart(t, values(t, name))
			pods := map[string]*corev1.PodSpec{"members": &m.set.Spec.Template.Spec}
			if m.job.Name != "" {
				pods["migration"] = &m.job.Spec.Template.Spec
			}
			if m.backup.Name != "" {
				pods["backups"] = &m.backup.Spec.JobTemplate.Spec.Template.Spec
			}
			for who, pod := range pods {
				mounted := make(map[string]bool)
				for _, v := range pod.Containers[0].VolumeMounts {
					mounted[v.MountPath] = true
				}
				used := make(map[string]bool)
				if who == "members" {
					used["/etc/sqlbrain"] = true // the file of settings
				}
				if who == "backups" {
					used["/backups"] = true // its arguments
				}
				for k, v := range m.environmentOf(t, pod) {
					if strings.HasPrefix(k, "SQLBRAIN_") {
						assert.Contains(t, variables, k, who)
					}
					if k == variable("backup-to") && strings.HasPrefix(v, "file://") {
						v = path.Dir(strings.TrimPrefix(v, "file://"))
					}
					for _, file := range regexp.MustCompile(`(?:^|=)(/[a-z][^,?]*)`).FindAllStringSubmatch(v, -1) {
						dir := file[1]
						if path.Ext(dir) != "" || path.Base(dir) == "password" {
							dir = path.Dir(dir)
						}
						assert.Contains(t, mounted, dir, "%s: %s=%s", who, k, v)
						used[dir] = true
					}
				}
				assert.Equal(t, used, mounted, who)
			}
		})
	}
}

func TestChartOnSQLite(t *testing.T) {
	m, r := readChart(t, values(t, "sqlite"))
	assert.EqualValues(t, 1, *m.set.Spec.Replicas)
	assert.Empty(t, m.job.Name, "the server migrates its own file")
	assert.Empty(t, m.budget.Name, "the only pod could never be evicted")
	assert.Empty(t, m.custom)
	environment := m.environmentOf(t, &m.set.Spec.Template.Spec)
	assert.NotContains(t, environment, variable("datastore"))
	require.Len(t, m.set.Spec.VolumeClaimTemplates, 1)
	claim := m.set.Spec.VolumeClaimTemplates[0]
	assert.Contains(t, m.set.Spec.Template.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: claim.Name, MountPath: environment[variable("data-dir")]})
	assert.Contains(t, r.Notes, "data-sqlbrain-0", "the volume that outlives the release")
	for _, p := range m.policies {
		assert.Empty(t, p.Spec.Egress)
		assert.NotContains(t, openPorts(t, m, m.set.Spec.Template.Labels, m.set.Spec.Template.Labels), "peer")
	}
	for _, s := range m.services {
		for _, p := range s.Spec.Ports {
			assert.NotEqual(t, "peer", p.Name)
		}
	}
}

// sqlbrain takes the chart's file of settings, and serves with it.
func TestChartSettingsStartAServer(t *testing.T) {
	v := values(t, "sqlite")
	v["settings"] = values(t, "mysql")["settings"]
	v["console"] = values(t, "mysql")["console"]
	v["backup"] = values(t, "mysql")["backup"]
	m, _ := readChart(t, v)
	pod := &m.set.Spec.Template.Spec
	assert.Equal(t, "8589934592", m.environmentOf(t, pod)[variable("quota-backend-bytes")], "not in the form of a float")
	text := m.mounted(t, pod, "/etc/sqlbrain/config.yaml")
	text = regexp.MustCompile(`0\.0\.0\.0:\d+`).ReplaceAllStringFunc(text, func(string) string {
		return "127.0.0.1:" + strconv.Itoa(enginetest.FreePort(t))
	})
	text = regexp.MustCompile(`(?m)^(data-dir|snapshot-dir): .*$`).ReplaceAllString(text, "$1: "+t.TempDir())
	text = strings.Replace(text, "s3://backups", "file://"+t.TempDir(), 1)
	clients := regexp.MustCompile(`(?m)^listen-client-urls: (.*)$`).FindStringSubmatch(text)[1]
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	server := harness.StartProcess(t, harness.Sqlbrain(t), "serve", "--config-file", file)
	server.Await(t, func(ctx context.Context) error {
		return exec.CommandContext(ctx, harness.Sqlbrain(t), "health", "--listen-client-urls", clients).Run()
	})
	server.Stop(t)
}

func TestChartWithEverything(t *testing.T) {
	m, r := readChart(t, values(t, "mysql"))
	pod := &m.set.Spec.Template.Spec
	environment := m.environmentOf(t, pod)
	assert.Regexp(t, `^registry\.example/sqlbrain@sha256:[0-9a-f]{64}$`, pod.Containers[0].Image)
	assert.Equal(t, pod.Containers[0].Image, m.job.Spec.Template.Spec.Containers[0].Image)
	assert.EqualValues(t, 3, *m.set.Spec.Replicas)
	assert.EqualValues(t, 2, m.budget.Spec.MinAvailable.IntVal)
	assert.Equal(t, "true", environment[variable("client-cert-auth")])
	assert.Equal(t, "TLS1.3", environment[variable("tls-min-version")])
	assert.Equal(t, "jwt,pub-key=/run/secrets/jwt/jwt.pub,priv-key=/run/secrets/jwt/jwt.key,sign-method=RS256,ttl=5m",
		environment[variable("auth-token")])
	assert.Equal(t, []int{53, 2380, 3306, 3307, 4317, 9000}, reachedPorts(t, m, m.set.Spec.Template.Labels))
	assert.Equal(t, []int{53, 3306, 3307, 4317}, reachedPorts(t, m, m.job.Spec.Template.Labels))
	assert.NotContains(t, r.Notes, "WARNING")
	_, unprotected := readChart(t, clusterValues)
	assert.Contains(t, unprotected.Notes, "WARNING: clients are served in plain text")
	assert.Contains(t, unprotected.Notes, "etcdctl auth enable")

	monitor := m.custom["ServiceMonitor"]["spec"].(map[string]any)
	selector := make(labels.Set)
	for k, v := range monitor["selector"].(map[string]any)["matchLabels"].(map[string]any) {
		selector[k] = v.(string)
	}
	selected := 0
	for _, s := range m.services {
		if selector.AsSelector().Matches(labels.Set(s.Labels)) {
			selected++
			assert.Equal(t, corev1.ClusterIPNone, s.Spec.ClusterIP, "each member is scraped")
			var ports []any
			for _, p := range s.Spec.Ports {
				ports = append(ports, p.Name)
			}
			assert.Contains(t, ports, monitor["endpoints"].([]any)[0].(map[string]any)["port"])
		}
	}
	assert.Equal(t, 1, selected, "a member in two services would be scraped twice")
	job := monitor["endpoints"].([]any)[0].(map[string]any)["relabelings"].([]any)[0].(map[string]any)
	assert.Equal(t, map[string]any{"targetLabel": "job", "replacement": "sqlbrain/storage/sqlbrain"}, job,
		"alerts look for sqlbrain in job")
}

// The members and the migration have what is added to them.
func TestChartAddsToPods(t *testing.T) {
	m, _ := readChart(t, values(t, "mysql"))
	pod, migration := &m.set.Spec.Template.Spec, &m.job.Spec.Template.Spec
	assert.Equal(t, []string{"serve", "--log-level=debug"}, pod.Containers[0].Args)
	for who, pod := range map[string]*corev1.PodSpec{"members": pod, "migration": migration} {
		file := m.environmentOf(t, pod)[variable("client-crl-file")]
		assert.Equal(t, "sqlbrain-crl", volumesOf(t, pod)[path.Dir(file)].Secret.SecretName, who)
	}
	database := t.TempDir()
	run := func(pod *corev1.PodSpec, args ...string) string {
		out, _ := sqlbrain(t, m.environmentOf(t, pod), database, args...).CombinedOutput()
		return string(out)
	}
	assert.Contains(t, run(migration, migration.Containers[0].Args...), "schema version")
	assert.Contains(t, run(&m.backup.Spec.JobTemplate.Spec.Template.Spec, "backup", "--to", database+"/backup"),
		"no server has served it")
	assert.Equal(t, "storage", m.set.Spec.Template.Labels["team"])
	assert.Equal(t, "storage", m.job.Spec.Template.Labels["team"], "Azure's identities need a label")

	assert.EqualValues(t, 1, *m.set.Spec.UpdateStrategy.RollingUpdate.Partition)
	c := pod.Containers[0]
	assert.EqualValues(t, 300, c.StartupProbe.FailureThreshold)
	assert.EqualValues(t, 2, c.StartupProbe.PeriodSeconds, "fields that are not given stay")
	assert.EqualValues(t, 3, c.ReadinessProbe.PeriodSeconds)
	assert.EqualValues(t, 5, *c.LivenessProbe.TerminationGracePeriodSeconds)

	require.Len(t, pod.TopologySpreadConstraints, 1)
	spread := pod.TopologySpreadConstraints[0]
	assert.Equal(t, "rack", spread.TopologyKey)
	assert.Equal(t, []string{"controller-revision-hash"}, spread.MatchLabelKeys)
	standard, _ := readChart(t, clusterValues)
	constraints := standard.set.Spec.Template.Spec.TopologySpreadConstraints
	require.Len(t, constraints, 1)
	assert.Equal(t, corev1.ScheduleAnyway, constraints[0].WhenUnsatisfiable)
	for _, selector := range []*metav1.LabelSelector{spread.LabelSelector, constraints[0].LabelSelector} {
		assert.True(t, selects(t, selector, m.set.Spec.Template.Labels))
		assert.False(t, selects(t, selector, m.job.Spec.Template.Labels))
	}
}

// The migration runs before the release's account exists, so it has its own, with the same identity.
func TestChartAccounts(t *testing.T) {
	m, _ := readChart(t, values(t, "mysql"))
	of := func(m *manifests) (members, migration string) {
		return m.set.Spec.Template.Spec.ServiceAccountName, m.job.Spec.Template.Spec.ServiceAccountName
	}
	members, migration := of(m)
	require.Len(t, m.accounts, 2)
	require.Contains(t, m.accounts, members)
	require.Contains(t, m.accounts, migration)
	for _, a := range m.accounts {
		assert.Contains(t, a.Annotations["eks.amazonaws.com/role-arn"], "role/sqlbrain")
	}
	assert.NotContains(t, m.accounts[members].Annotations, "helm.sh/hook")
	assert.Equal(t, "-5", m.accounts[migration].Annotations["helm.sh/hook-weight"], "before the job")

	m, _ = readChart(t, values(t, "tidb")) // an account that exists, for a token in place of a password
	members, migration = of(m)
	assert.Empty(t, m.accounts)
	assert.Equal(t, []string{"identity", "identity"}, []string{members, migration})
	for _, pod := range []*corev1.PodSpec{&m.set.Spec.Template.Spec, &m.job.Spec.Template.Spec} {
		assert.Equal(t, "aws", m.environmentOf(t, pod)[variable("datastore-password-from")])
	}
	v := values(t, "tidb")
	delete(v, "networkPolicy")
	m, _ = readChart(t, v)
	assert.Equal(t, []int{53, 80, 443, 988, 4000}, reachedPorts(t, m, m.job.Spec.Template.Labels))
	m, _ = readChart(t, clusterValues)
	members, migration = of(m)
	assert.Empty(t, m.accounts)
	assert.Empty(t, members+migration)
}

// An Ingress and an HTTPRoute lead browsers to the console alone, under a name that it answers to.
func TestChartConsole(t *testing.T) {
	m, _ := readChart(t, values(t, "mysql"))
	environment := m.environmentOf(t, &m.set.Spec.Template.Spec)
	assert.Equal(t, "true", environment[variable("console")])
	assert.Equal(t, "false", environment[variable("console-write")])
	assert.Equal(t, "*,console.example", environment[variable("host-whitelist")])

	spec := m.ingress.Spec
	assert.Equal(t, "HTTPS", m.ingress.Annotations["nginx.ingress.kubernetes.io/backend-protocol"])
	assert.Equal(t, "nginx", *spec.IngressClassName)
	assert.Equal(t, []networkingv1.IngressTLS{{Hosts: []string{"console.example"}, SecretName: "console-tls"}}, spec.TLS)
	require.Len(t, spec.Rules, 1)
	assert.Equal(t, "console.example", spec.Rules[0].Host)
	require.Len(t, spec.Rules[0].HTTP.Paths, 1)
	first := spec.Rules[0].HTTP.Paths[0]
	assert.Equal(t, "/ui/", first.Path)
	assert.Equal(t, networkingv1.PathTypePrefix, *first.PathType)
	service := m.services[first.Backend.Service.Name]
	require.NotNil(t, service)
	assert.Equal(t, service.Spec.Ports[0].Name, first.Backend.Service.Port.Name)

	assert.Equal(t, map[string]any{
		"parentRefs": []any{map[string]any{"name": "gateway", "namespace": "infrastructure"}},
		"hostnames":  []any{"console.example"},
		"rules": []any{map[string]any{
			"matches":     []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/ui/"}}},
			"backendRefs": []any{map[string]any{"name": service.Name, "port": float64(service.Spec.Ports[0].Port)}},
		}},
	}, m.custom["HTTPRoute"]["spec"])

	let := false
	for _, rule := range m.policies["sqlbrain"].Spec.Ingress {
		for _, peer := range rule.From {
			if peer.PodSelector == nil && selects(t, peer.NamespaceSelector,
				map[string]string{"kubernetes.io/metadata.name": "ingress-nginx"}) {
				let = true
				assert.Equal(t, "client", rule.Ports[0].Port.String())
			}
		}
	}
	assert.True(t, let, "the policy keeps the Ingress out")

	m, _ = readChart(t, clusterValues)
	assert.Empty(t, m.ingress.Name)
	assert.NotContains(t, m.environmentOf(t, &m.set.Spec.Template.Spec), variable("console"))
	m, _ = readChart(t, map[string]any{"console": map[string]any{"enabled": true, "write": true}})
	assert.Equal(t, "true", m.environmentOf(t, &m.set.Spec.Template.Spec)[variable("console-write")])
}

// Members have the credentials of the bucket, and the CronJob what the migration has, next to the claim.
func TestChartBackups(t *testing.T) {
	m, _ := readChart(t, values(t, "mysql"))
	member, job := m.set.Spec.Template.Spec, m.backup.Spec.JobTemplate.Spec.Template
	environment := m.environmentOf(t, &member)
	assert.Equal(t, "s3://backups/etcd", environment[variable("backup-to")])
	assert.Equal(t, "720h", environment[variable("backup-keep")])
	assert.Equal(t, "3", environment[variable("backup-keep-bases")])
	assert.Len(t, strings.Split(environment[variable("backup-recipient")], ","), 2)
	assert.Equal(t, "https://minio.example:9000", environment["AWS_ENDPOINT_URL"])
	assert.Equal(t, "eu-north-1", environment["AWS_REGION"])
	secrets := make(map[string]string)
	for _, e := range member.Containers[0].Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			assert.Equal(t, "bucket", e.ValueFrom.SecretKeyRef.Name)
			secrets[e.Name] = e.ValueFrom.SecretKeyRef.Key
		}
	}
	assert.Equal(t, map[string]string{"AWS_ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID",
		"AWS_SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY"}, secrets)
	assert.NotContains(t, volumesOf(t, &member), "/backups", "nothing there is a member's")

	database := m.environmentOf(t, &m.job.Spec.Template.Spec)
	require.Contains(t, database, variable("datastore"))
	assert.Subset(t, m.environmentOf(t, &job.Spec), database)
	assert.Equal(t, []string{"backup", "--to", "/backups/$(JOB).db"}, job.Spec.Containers[0].Args)
	assert.Equal(t, "backups", volumesOf(t, &job.Spec)["/backups"].PersistentVolumeClaim.ClaimName)
	assert.Empty(t, job.Spec.InitContainers)
	assert.Equal(t, []int{53, 3306, 3307, 4317}, reachedPorts(t, m, job.Labels))
	for _, from := range []map[string]string{job.Labels, m.set.Spec.Template.Labels} {
		assert.Empty(t, openPorts(t, m, job.Labels, from))
	}
	assert.Empty(t, openPorts(t, m, m.set.Spec.Template.Labels, job.Labels))
	for name, s := range m.services {
		assert.False(t, labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(job.Labels)), name)
	}

	m, _ = readChart(t, values(t, "backup")) // of SQLite: on the server's node, with its file
	member, job = m.set.Spec.Template.Spec, m.backup.Spec.JobTemplate.Spec.Template
	assert.Empty(t, reachedPorts(t, m, m.set.Spec.Template.Labels))
	assert.Empty(t, reachedPorts(t, m, job.Labels))
	assert.Equal(t, "data-"+m.set.Name+"-0", volumesOf(t, &job.Spec)["/data"].PersistentVolumeClaim.ClaimName)
	assert.Equal(t, "/data", m.environmentOf(t, &job.Spec)[variable("data-dir")])
	near := job.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	require.Len(t, near, 1)
	assert.True(t, selects(t, near[0].LabelSelector, m.set.Spec.Template.Labels))
	assert.False(t, selects(t, near[0].LabelSelector, job.Labels))

	v := map[string]any{"backup": map[string]any{"to": "s3://backups"}}
	m, _ = readChart(t, v)
	assert.Equal(t, []int{53, 80, 443, 988}, reachedPorts(t, m, m.set.Spec.Template.Labels))
	assert.NotContains(t, m.environmentOf(t, &m.set.Spec.Template.Spec), "AWS_ACCESS_KEY_ID", "the pod has a role")
	long, err := helmchart.Render(t.Context(), chart, strings.Repeat("a", 53), namespace, values(t, "backup"))
	require.NoError(t, err)
	for _, o := range long.Objects {
		if o.Kind == "CronJob" {
			assert.LessOrEqual(t, len(o.Name), 52)
		}
	}
}

// The init container leaves room for one file more, and removes what is not finished, nothing else.
func TestChartPrunesBackups(t *testing.T) {
	m, _ := readChart(t, values(t, "backup"))
	c := m.backup.Spec.JobTemplate.Spec.Template.Spec.InitContainers[0]
	dir := t.TempDir()
	name := func(minute int) string { return fmt.Sprintf("%s-%d.db", m.backup.Name, 29_900_000+minute) }
	want := []string{"log", "manual.db"}
	killed := []string{"." + name(0) + ".part-123", "sqlbrain-snapshot-123"}
	want = append(want, "."+name(1)+".part-124", "sqlbrain-snapshot-124") // of a job that was made by hand, and runs
	for _, file := range append(killed, want...) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, file), 0o700))
	}
	for _, file := range killed {
		yesterday := time.Now().Add(-25 * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, file), yesterday, yesterday))
	}
	run := func() {
		t.Helper()
		prune := exec.Command(c.Command[0], c.Command[1:]...)
		prune.Dir = dir
		out, err := prune.CombinedOutput()
		require.NoError(t, err, "%s", out)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
		}
		assert.ElementsMatch(t, want, names)
	}
	run() // without files
	for i := range 9 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name(i)), nil, 0o600))
	}
	for i := 3; i < 9; i++ {
		want = append(want, name(i))
	}
	run()
	run()
}

// The chart's rules and dashboard are those of the folders deploy/prometheus and deploy/grafana.
func TestChartHasTheRulesAndTheDashboard(t *testing.T) {
	m, _ := readChart(t, values(t, "mysql"))
	text, err := os.ReadFile(ruleFile)
	require.NoError(t, err)
	var rules map[string]any
	require.NoError(t, yaml.Unmarshal(text, &rules))
	require.NotEmpty(t, rules["groups"])
	v := values(t, "mysql")
	v["metrics"].(map[string]any)["serviceMonitor"] = map[string]any{"enabled": false}
	unknownJob, _ := readChart(t, v)
	assert.Equal(t, rules, unknownJob.custom["PrometheusRule"]["spec"])
	groups := m.custom["PrometheusRule"]["spec"].(map[string]any)["groups"].([]any)
	last := len(groups) - 1
	assert.Equal(t, rules["groups"], groups[:last])
	absent := groups[last].(map[string]any)["rules"].([]any)[0].(map[string]any)
	assert.Equal(t, `absent(up{job="sqlbrain/storage/sqlbrain"})`, absent["expr"], "pods that are gone have no series")

	text, err = os.ReadFile(folder + "grafana/sqlbrain.json")
	require.NoError(t, err)
	board := m.configMaps["sqlbrain-dashboard"]
	require.NotNil(t, board)
	assert.Equal(t, "1", board.Labels["grafana_dashboard"])
	assert.JSONEq(t, string(text), board.Data["sqlbrain.json"])
}

// The pod that restores has the image's user and the migration's database.
func TestChartRestore(t *testing.T) {
	text := readText(t, "deploy/helm/sqlbrain/README.md")
	found := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(text)
	require.NotNil(t, found)
	var pod corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict([]byte(found[1]), &pod))
	m, _ := readChart(t, clusterValues)
	migration := &m.job.Spec.Template.Spec
	assert.Equal(t, m.environmentOf(t, migration), m.environmentOf(t, &pod.Spec))
	assert.Contains(t, volumesOf(t, &pod.Spec), "/run/secrets/datastore")
	assert.NotNil(t, volumesOf(t, &pod.Spec)["/backups"].PersistentVolumeClaim)
	assert.Equal(t, migration.SecurityContext.RunAsUser, pod.Spec.SecurityContext.RunAsUser)
	assert.False(t, *pod.Spec.EnableServiceLinks)
	out, _ := sqlbrain(t, m.environmentOf(t, &pod.Spec), t.TempDir(), pod.Spec.Containers[0].Args...).CombinedOutput()
	assert.Contains(t, string(out), "/backups/FILE.db: no such file")
	for _, p := range m.policies {
		assert.False(t, selects(t, &p.Spec.PodSelector, pod.Labels), p.Name)
	}
}

// A package holds the files that links lead to, and renders as the folder does.
func TestChartPackage(t *testing.T) {
	c, err := loader.Load(chart)
	require.NoError(t, err)
	file, err := chartutil.Save(c, t.TempDir())
	require.NoError(t, err)
	packed, err := helmchart.Render(t.Context(), file, release, namespace, values(t, "mysql"))
	require.NoError(t, err)
	folder, err := helmchart.Render(t.Context(), chart, release, namespace, values(t, "mysql"))
	require.NoError(t, err)
	assert.Equal(t, folder, packed)
}

// Hooks run before any other object of the release exists, and an upgrade can be repeated.
func TestChartMigrationNeedsNothingOfTheRelease(t *testing.T) {
	m, _ := readChart(t, values(t, "mysql"))
	pod := &m.job.Spec.Template.Spec
	assert.Empty(t, pod.Containers[0].EnvFrom)
	for _, v := range pod.Volumes {
		assert.NotNil(t, v.Secret, "%s is made by hand", v.Name)
	}
	policy := m.policies["sqlbrain-migrate"]
	require.NotNil(t, policy)
	assert.True(t, selects(t, &policy.Spec.PodSelector, m.job.Spec.Template.Labels))
	assert.False(t, selects(t, &policy.Spec.PodSelector, m.set.Spec.Template.Labels))
	account := m.accounts[pod.ServiceAccountName]
	require.NotNil(t, account)
	for _, annotations := range []map[string]string{m.job.Annotations, policy.Annotations, account.Annotations} {
		assert.Equal(t, "pre-install,pre-upgrade", annotations["helm.sh/hook"])
		assert.Contains(t, annotations["helm.sh/hook-delete-policy"], "before-hook-creation", "a job cannot be changed")
		assert.NotContains(t, annotations["helm.sh/hook-delete-policy"], "hook-failed", "the log of a failure is needed")
	}
	assert.Equal(t, "0", m.job.Annotations["helm.sh/hook-weight"])
	assert.Equal(t, "-5", policy.Annotations["helm.sh/hook-weight"], "before the job")
}

// A pod that ends serves while nodes still send it new connections. It needs as long again to stop, and Kubernetes 1.29
// knows no pause.
func TestChartStopsPodsLate(t *testing.T) {
	m, _ := readChart(t, nil)
	pod := m.set.Spec.Template.Spec
	require.NotNil(t, pod.Containers[0].Lifecycle)
	assert.EqualValues(t, 5, pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds)
	assert.GreaterOrEqual(t, *pod.TerminationGracePeriodSeconds, int64(5+20))
	m, _ = readChart(t, map[string]any{"terminationGracePeriodSeconds": 5})
	assert.Nil(t, m.set.Spec.Template.Spec.Containers[0].Lifecycle, "it would be refused")
	old, err := helmchart.RenderFor(t.Context(), "v1.29.3", chart, release, namespace, nil)
	require.NoError(t, err)
	assert.Nil(t, decode(t, old).set.Spec.Template.Spec.Containers[0].Lifecycle)
}

func TestChartReplacesPodsWhenSettingsChange(t *testing.T) {
	annotations := func(settings map[string]any) map[string]string {
		m, _ := readChart(t, map[string]any{"settings": settings})
		return m.set.Spec.Template.Annotations
	}
	assert.Equal(t, annotations(nil), annotations(nil))
	assert.NotEqual(t, annotations(nil), annotations(map[string]any{"enable-pprof": true}))
}

// Two releases in one namespace share nothing.
func TestChartReleasesAreApart(t *testing.T) {
	names := make(map[string]bool)
	var sets []labels.Selector
	var pods []labels.Set
	for _, name := range []string{"sqlbrain", "second"} {
		r, err := helmchart.Render(t.Context(), chart, name, namespace, values(t, "mysql"))
		require.NoError(t, err)
		m := newManifests()
		for _, o := range r.Objects {
			assert.False(t, names[o.Kind+"/"+o.Name], "%s %s exists in both", o.Kind, o.Name)
			names[o.Kind+"/"+o.Name] = true
			m.add(t, o.Kind, o.Name, o.YAML)
		}
		sets, pods = append(sets, labels.SelectorFromSet(m.set.Spec.Selector.MatchLabels)),
			append(pods, m.set.Spec.Template.Labels)
	}
	assert.True(t, sets[0].Matches(pods[0]))
	assert.False(t, sets[0].Matches(pods[1]))
	assert.False(t, sets[1].Matches(pods[0]))
}
