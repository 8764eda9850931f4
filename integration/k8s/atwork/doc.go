// Package atwork runs a whole cluster on sqlbrain and, for comparison, on etcd: the API
// server, the controllers and the scheduler are Kubernetes' own, the nodes are
// KWOK's. Nodes join, deployments are made, updated and scaled, namespaces are
// deleted, and everything is checked: pods run, node leases are fresh, what the API
// server holds is what the store holds, key by key.
//
// It reports how long each step took to converge, and what CPU and memory the programs needed.
//
//	SQLBRAIN_K8S=1 go test ./k8s/atwork -v    # small, minutes; -nodes, -pods and -stores make it larger
//	make kubernetes SUITE=cluster NODES=500 PODS=10000     # in the root
//
// Start reading at atwork_test.go, then steps_test.go.
package atwork
