// Package k8s runs Kubernetes' own programs on sqlbrain: kube-apiserver,
// kube-controller-manager and kube-scheduler as released, and KWOK in the place of
// kubelets.
//
// The programs are built in ../programs/kubernetes and ../programs/kwok when they are first
// needed, which takes minutes, and are kept in the user's cache directory. To use
// others, name their directory in SQLBRAIN_INTEGRATION_PROGRAMS.
//
//	make kubernetes SUITE=e2e             # in the root; sets SQLBRAIN_K8S=1, without which the tests are skipped
//	SQLBRAIN_K8S=1 go test -run TestKubeadm . -v -artifacts -outputdir /tmp/logs   # keeps the logs of a failure
//
// atwork runs a whole cluster, and compares with etcd.
//
// Start reading at kubeadm_test.go and internal/controlplane.
package k8s
