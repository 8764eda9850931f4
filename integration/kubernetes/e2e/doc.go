// Package e2e runs Kubernetes' own programs on sqlbrain: kube-apiserver and kubeadm as released.
//
// The programs are built in ../../programs/kubernetes when they are first
// needed, which takes minutes, and are kept in the user's cache directory. To use
// others, name their directory in SQLBRAIN_INTEGRATION_PROGRAMS.
//
//	make kubernetes SUITE=e2e             # in the root; sets the flag -k8s, without which the tests are skipped
//	go test -run TestKubeadm . -k8s -v -artifacts -outputdir /tmp/logs   # keeps the logs of a failure
//
// Start reading at kubeadm_test.go and internal/controlplane.
package e2e
