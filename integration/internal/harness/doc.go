// Package harness starts what tests look at: nodes, clusters of nodes, databases that replicate, and any other program,
// each as a separate process.
//
//	n := harness.StartNode(t, harness.SQLite)                 // one node
//	c := harness.StartCluster(t, harness.ClusterConfig{})     // three over one database, or a real etcd of three
//	db := harness.StartReplicated(t, harness.Group)           // three database servers, named by db.URL()
//
// Invariants:
//
//   - A node is ready only when it answers a Get, not when its port is open.
//   - No process outlives the test binary, however that ends (on Linux).
//   - Every wait is bounded.
//   - A failed test shows the logs of its processes.
//
// With SQLBRAIN_INTEGRATION_TARGET=etcd every node is a real etcd. The tests hold there too, except those about
// databases. Databases come from package enginetest: a private server, or the one that the environment names.
//
// Between the nodes of a cluster, and between each node and the database, there may be a Network: a Proxy for each
// way. A member advertises one peer URL to all others, so one proxy in front of it could not distinguish them. The
// listener at that URL asks the kernel which process opened a connection, and passes it to the proxy of that way.
//
// Databases that replicate are a Group Replication of MySQL in single-primary mode and a Galera cluster of MariaDB.
// They are as durable as production ones, with the products' defaults unless a test asks for others. Where the plugin
// group_replication, or libgalera_smm.so and its state transfer by rsync, are missing, enginetest.Need decides.
//
// Start reading at node.go, then cluster.go, network.go and replicated.go; process.go and build.go are below them.
package harness
