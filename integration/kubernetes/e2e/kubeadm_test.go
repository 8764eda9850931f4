package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// kubeadm takes sqlbrain for an external etcd: its certificates serve for it, its
// check of etcd's version passes, and the API server that it describes runs. Phases
// that need a kubelet and container images are not run.
func TestKubeadmExternalEtcd(t *testing.T) {
	programs.NeedsKubernetes(t)
	harness.NeedsDatabase(t)
	k := kubeadm{t: t, dir: t.TempDir(), apiPort: enginetest.FreePort(t), storePort: enginetest.FreePort(t)}
	pki := filepath.Join(k.dir, "pki")
	// Dry runs write here rather than to /etc.
	t.Setenv("KUBEADM_INIT_DRYRUN_DIR", k.dir)

	// As in kubeadm's guide to external etcd, the certificates are its own.
	local := k.config("local.yaml", "local: {dataDir: "+filepath.Join(k.dir, "unused")+"}")
	for _, certificate := range []string{"etcd-ca", "etcd-server", "apiserver-etcd-client"} {
		k.phase(local, "certs", certificate)
	}
	authority := filepath.Join(pki, "etcd", "ca.crt")
	clientCert, clientKey := filepath.Join(pki, "apiserver-etcd-client.crt"),
		filepath.Join(pki, "apiserver-etcd-client.key")
	store := harness.StartProcess(t, harness.Sqlbrain(t), "serve",
		"--datastore", "sqlite://"+filepath.Join(k.dir, "data.db"),
		"--listen-client-urls", k.storeURL(),
		"--cert-file", filepath.Join(pki, "etcd", "server.crt"), "--key-file", filepath.Join(pki, "etcd", "server.key"),
		"--trusted-ca-file", authority, "--client-cert-auth",
	)
	k.awaitStore(store, authority, clientCert, clientKey)

	external := k.config("external.yaml", fmt.Sprintf(
		"external: {endpoints: [%s], caFile: %s, certFile: %s, keyFile: %s}", k.storeURL(), authority, clientCert, clientKey))
	const check = "ExternalEtcdVersion"
	require.NotContains(t, k.preflight(external), check)
	nobody := fmt.Sprintf("external: {endpoints: [https://127.0.0.1:%d], caFile: %s, certFile: %s, keyFile: %s}",
		enginetest.FreePort(t), authority, clientCert, clientKey)
	require.Contains(t, k.preflight(k.config("nobody.yaml", nobody)), check, "kubeadm looks")

	k.phase(external, "certs", "all")
	k.phase(external, "kubeconfig", "super-admin", "--kubeconfig-dir", k.dir)
	k.phase(external, "control-plane", "apiserver", "--dry-run")
	api := harness.StartProcess(t, programs.Path(t, "kube-apiserver"),
		append(k.apiServerFlags(), "--bind-address=127.0.0.1")...)

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(k.dir, "super-admin.conf"))
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := client.RESTClient().Get().RequestURI("/readyz").DoRaw(t.Context())
		require.NoError(c, err)
	}, 3*time.Minute, 200*time.Millisecond)
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "greeting"},
		Data: map[string]string{"text": "hello"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	api.Stop(t)
	store.Stop(t)
}

type kubeadm struct {
	t                  *testing.T
	dir                string
	apiPort, storePort int
}

func (k kubeadm) storeURL() string { return fmt.Sprintf("https://127.0.0.1:%d", k.storePort) }

// config writes a configuration with that etcd and returns its file.
func (k kubeadm) config(name, etcd string) string {
	k.t.Helper()
	path := filepath.Join(k.dir, name)
	content := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.1, bindPort: %d}
nodeRegistration: {name: control-plane, criSocket: "unix://%s/none.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
certificatesDir: %s/pki
controlPlaneEndpoint: 127.0.0.1:%[1]d
etcd: {%[5]s}
`, k.apiPort, k.dir, programs.KubernetesVersion(k.t), k.dir, etcd)
	require.NoError(k.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

const kubeadmWait = 5 * time.Minute

func (k kubeadm) phase(config, phase string, more ...string) {
	k.t.Helper()
	args := append([]string{"init", "phase", phase}, more...)
	out := harness.Run(k.t, kubeadmWait, "", programs.Path(k.t, "kubeadm"), append(args, "--config", config)...)
	require.Zero(k.t, out.Code, "%v\n%s%s", args, out.Stdout, out.Stderr)
}

// preflight returns what kubeadm finds amiss on this machine, which is no
// control plane's.
func (k kubeadm) preflight(config string) string {
	k.t.Helper()
	out := harness.Run(k.t, kubeadmWait, "", programs.Path(k.t, "kubeadm"), "init", "phase", "preflight", "--config",
		config, "--ignore-preflight-errors", "all", "--dry-run")
	require.Zero(k.t, out.Code, "%s%s", out.Stdout, out.Stderr)
	return out.Stdout + out.Stderr
}

func (k kubeadm) apiServerFlags() []string {
	k.t.Helper()
	manifest, err := os.ReadFile(filepath.Join(k.dir, "kube-apiserver.yaml"))
	require.NoError(k.t, err)
	var pod corev1.Pod
	require.NoError(k.t, yaml.UnmarshalStrict(manifest, &pod))
	require.Contains(k.t, pod.Spec.Containers[0].Command, "--etcd-servers="+k.storeURL())
	return pod.Spec.Containers[0].Command[1:]
}

func (k kubeadm) awaitStore(store *harness.Process, authority, certificate, key string) {
	k.t.Helper()
	pool := x509.NewCertPool()
	trusted, err := os.ReadFile(authority)
	require.NoError(k.t, err)
	require.True(k.t, pool.AppendCertsFromPEM(trusted))
	pair, err := tls.LoadX509KeyPair(certificate, key)
	require.NoError(k.t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	require.EventuallyWithT(k.t, func(c *assert.CollectT) {
		require.True(c, store.Running(), store.LogTail(2000))
		response, err := client.Get(k.storeURL() + "/readyz")
		require.NoError(c, err)
		require.NoError(c, response.Body.Close())
		require.Equal(c, http.StatusOK, response.StatusCode)
	}, time.Minute, 50*time.Millisecond)
}
