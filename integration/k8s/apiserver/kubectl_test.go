package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/programs"
)

const kubectlWait = 2 * time.Minute

const manifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: shop}}
data: {color: %s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {app: shop}}
spec:
  replicas: 1
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: shop, image: "shop:%s"}]}
`

// testKubectl: what people do.
func testKubectl(t *testing.T, s *server) {
	ns, kubeconfig, program := s.namespace(t), s.Kubeconfig(controlplane.Admin), programs.Path(t, "kubectl")
	args := func(line string) []string {
		return append([]string{"--kubeconfig", kubeconfig, "--namespace", ns}, strings.Fields(line)...)
	}
	// kubectl runs a line with an exit code, and returns what it printed.
	kubectl := func(code int, input, line string) string {
		t.Helper()
		out := harness.Run(t, kubectlWait, input, program, args(line)...)
		require.Equal(t, code, out.Code, "%s\n%s%s", line, out.Stdout, out.Stderr)
		return out.Stdout + out.Stderr
	}
	first, second := fmt.Sprintf(manifest, "red", "1"), fmt.Sprintf(manifest, "green", "2")
	require.Equal(t, "configmap/settings created\ndeployment.apps/shop created\n", kubectl(0, first, "apply -f -"))
	require.Equal(t, "configmap/settings unchanged\ndeployment.apps/shop unchanged\n", kubectl(0, first, "apply -f -"))
	require.Contains(t, kubectl(1, second, "diff -f -"), "+  color: green")
	require.Equal(t, "configmap/settings configured\ndeployment.apps/shop configured\n", kubectl(0, second, "apply -f -"))
	kubectl(0, second, "diff -f -")
	require.Contains(t, kubectl(0, second, "apply --server-side --force-conflicts -f -"),
		"deployment.apps/shop serverside-applied")

	kubectl(0, "", "scale deployment/shop --replicas=3")
	kubectl(0, "", "set image deployment/shop shop=shop:3")
	kubectl(0, "", "label deployment/shop tier=front")
	require.Equal(t, "3 shop:3 front", kubectl(0, "",
		"get deployment shop -o jsonpath={.spec.replicas}{'\\u0020'}{.spec.template.spec.containers[0].image}{'\\u0020'}{.metadata.labels.tier}"))
	kubectl(0, "", "wait --for=jsonpath={.data.color}=green configmap/settings --timeout=30s")

	for i := range 12 {
		kubectl(0, "", fmt.Sprintf("create configmap c%02d --from-literal=n=%d", i, i))
	}
	var list corev1.ConfigMapList
	require.NoError(t, json.Unmarshal([]byte(kubectl(0, "", "get configmaps --chunk-size=5 -o json")), &list))
	require.Len(t, list.Items, 13)
	watched := harness.RunUntil(t, kubectlWait, "ADDED      settings", program,
		args("get configmaps --watch --output-watch-events")...)
	require.Contains(t, watched.Stdout, "ADDED      c11")

	require.Contains(t, kubectl(0, "", "delete configmaps --all"), `configmap "c07" deleted`)
	kubectl(0, second, "delete -f - --ignore-not-found")
	require.Contains(t, kubectl(1, "", "get deployment shop"), "NotFound")
	require.Contains(t, kubectl(0, "", "api-resources"), "configmaps")
	require.Contains(t, kubectl(0, "", "get --raw /readyz?verbose"), "[+]etcd ok")
}
