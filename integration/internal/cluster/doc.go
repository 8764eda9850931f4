// Package cluster runs several nodes of the target as one: sqlbrain over one
// database, or a real etcd of as many members. Each node is a separate process that
// can be killed, frozen, stopped and started again.
//
// Between the nodes, and between each node and the database, there may be a
// Network: a toxiproxy for each way, which can be cut, delayed or made to
// swallow everything. A node can thus be partitioned from the database, from the other
// nodes, or from both, while its clients still reach it.
//
// A member advertises one peer URL to all others, so one proxy in front of it
// could not distinguish them. The listener at that URL asks the kernel which process
// opened a connection and passes the connection to the proxy of that way.
//
// Start reading at cluster.go, then network.go.
package cluster
