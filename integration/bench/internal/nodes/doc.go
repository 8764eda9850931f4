// Package nodes measures a server as a Kubernetes cluster of many nodes uses it: each node's Lease object is updated
// every few seconds, Events come and expire, and thousands of watchers wait for them.
package nodes
