package atwork

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// step is something done to a cluster, and when it is done.
type step struct {
	name string
	// do makes the requests.
	do func(ctx context.Context, p *plane) error
	// done returns nil when the cluster has become what it should, and until then
	// what is missing. It looks at what watches have shown.
	done func(p *plane) error
	// peak is the step after which there is most to compare.
	peak bool
}

const (
	// clients make requests at a time, as several users and operators do.
	clients = 10
	poll    = 100 * time.Millisecond
)

var steps = []step{
	{"nodes join", joinNodes, allNodesReady, false},
	{"deployments start", makeDeployments, func(p *plane) error { return p.deployed(p.size.replicas(), "v1") }, false},
	{"nothing but heartbeats", watchHeartbeats, func(p *plane) error { return p.deployed(p.size.replicas(), "v1") }, false},
	{"rolling update", updateDeployments, func(p *plane) error { return p.deployed(p.size.replicas(), "v2") }, false},
	{"scale to half", func(ctx context.Context, p *plane) error { return p.scale(ctx, p.half()) }, func(p *plane) error { return p.deployed(p.half(), "v2") }, false},
	{"scale up again", func(ctx context.Context, p *plane) error { return p.scale(ctx, p.size.replicas()) }, func(p *plane) error { return p.deployed(p.size.replicas(), "v2") }, true},
	{"namespaces go", deleteNamespaces, namespacesGone, false},
}

func (p *plane) half() int32 { return max(1, p.size.replicas()/2) }

// await polls until the step is done.
func (p *plane) await(t *testing.T, s step) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), p.size.patience)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	talk := time.NewTicker(time.Minute)
	defer talk.Stop()
	for {
		err := s.done(p)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			require.NoError(t, errors.Join(err, ctx.Err()), "%s", s.name)
		case <-p.api.Process().Exited():
			t.Fatalf("%s: the API server has ended: %v", s.name, err)
		case <-talk.C:
			t.Logf("%s: %v", s.name, err)
		case <-tick.C:
		}
	}
}

// each calls do for 0 ≤ i < n, some at a time.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

func joinNodes(ctx context.Context, p *plane) error {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	return each(ctx, p.size.nodes, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("node-%04d", i)
		cidr := fmt.Sprintf("10.%d.%d.0/24", 128+i/256, i%256)
		_, err := p.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
			}},
			Spec:   corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
			Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources},
		}, metav1.CreateOptions{})
		return err
	})
}

// allNodesReady demands that every node is ready, may be scheduled on, and renews
// its lease.
func allNodesReady(p *plane) error {
	nodes, err := p.seen.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	if len(nodes) != p.size.nodes {
		return fmt.Errorf("%d of %d nodes", len(nodes), p.size.nodes)
	}
	for _, n := range nodes {
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("%s has taints: %v", n.Name, n.Spec.Taints)
		}
		ready := corev1.ConditionFalse
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				ready = c.Status
			}
		}
		if ready != corev1.ConditionTrue {
			return fmt.Errorf("%s is not ready: %v", n.Name, n.Status.Conditions)
		}
		l, err := p.seen.Coordination().V1().Leases().Lister().Leases(corev1.NamespaceNodeLease).Get(n.Name)
		if err != nil {
			return err
		}
		if age, promised := time.Since(l.Spec.RenewTime.Time),
			time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second; age > promised {
			return fmt.Errorf("the lease of %s was renewed %s ago, and promises to be within %s", n.Name, age, promised)
		}
	}
	return nil
}

func (p *plane) namespace(deployment int) string {
	return fmt.Sprintf("team-%03d", deployment%p.size.namespaces)
}

func deploymentName(i int) string { return fmt.Sprintf("app-%04d", i) }

const versionLabel = "version"

func makeDeployments(ctx context.Context, p *plane) error {
	for i := range p.size.namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace(i)}}
		if _, err := p.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return each(ctx, p.size.deployments, func(ctx context.Context, i int) error {
		name, replicas := deploymentName(i), p.size.replicas()
		selector := map[string]string{"app": name}
		_, err := p.client.AppsV1().Deployments(p.namespace(i)).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: selector},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: selector},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name, versionLabel: "v1"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{container("v1")}},
				},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

func container(version string) corev1.Container {
	return corev1.Container{
		Name:  "app",
		Image: "registry.example/app:" + version,
		Env: []corev1.EnvVar{
			{Name: "LOG_LEVEL", Value: "info"},
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
	}
}

// deployed demands that every deployment has as many pods of the version, all of
// them running, and no others.
func (p *plane) deployed(replicas int32, version string) error {
	all, err := p.seen.Apps().V1().Deployments().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	if len(all) != p.size.deployments {
		return fmt.Errorf("%d of %d deployments", len(all), p.size.deployments)
	}
	for _, d := range all {
		s := d.Status
		if *d.Spec.Replicas != replicas || d.Spec.Template.Labels[versionLabel] != version ||
			s.ObservedGeneration != d.Generation ||
			s.Replicas != replicas || s.UpdatedReplicas != replicas || s.AvailableReplicas != replicas {
			return fmt.Errorf("%s of %s with %d replicas: %+v", d.Name, version, replicas, s)
		}
	}
	pods, err := p.seen.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	if want := int(replicas) * p.size.deployments; len(pods) != want {
		return fmt.Errorf("%d pods rather than %d", len(pods), want)
	}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil ||
			pod.Labels[versionLabel] != version {
			return fmt.Errorf("%s/%s on %q: %s %s", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase,
				pod.Labels[versionLabel])
		}
	}
	return nil
}

// watchHeartbeats does nothing for a while but to look at the nodes.
func watchHeartbeats(ctx context.Context, p *plane) error {
	over := time.NewTimer(p.size.idle)
	defer over.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-over.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			if err := allNodesReady(p); err != nil {
				return err
			}
		}
	}
}

func updateDeployments(ctx context.Context, p *plane) error {
	patch := []byte(`{"spec": {"template": {"metadata": {"labels": {"version": "v2"}}, "spec": {"containers": [{"name": "app", "image": "registry.example/app:v2"}]}}}}`)
	return p.patch(ctx, patch)
}

func (p *plane) scale(ctx context.Context, replicas int32) error {
	return p.patch(ctx, fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas))
}

func (p *plane) patch(ctx context.Context, patch []byte) error {
	return each(ctx, p.size.deployments, func(ctx context.Context, i int) error {
		_, err := p.client.AppsV1().Deployments(p.namespace(i)).Patch(ctx, deploymentName(i), types.StrategicMergePatchType,
			patch, metav1.PatchOptions{})
		return err
	})
}

func deleteNamespaces(ctx context.Context, p *plane) error {
	return each(ctx, p.size.namespaces, func(ctx context.Context, i int) error {
		return p.client.CoreV1().Namespaces().Delete(ctx, p.namespace(i), metav1.DeleteOptions{})
	})
}

func namespacesGone(p *plane) error {
	for i := range p.size.namespaces {
		if ns, err := p.seen.Core().V1().Namespaces().Lister().Get(p.namespace(i)); err == nil {
			return fmt.Errorf("%s is there: %v", ns.Name, ns.Status)
		}
	}
	pods, err := p.seen.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		return fmt.Errorf("%d pods are there", len(pods))
	}
	return nil
}
