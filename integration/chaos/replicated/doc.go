// Package replicated drives three nodes of sqlbrain over databases of three
// servers that replicate to each other, Group Replication and Galera, while the
// database's servers are killed and frozen under load: nothing that was acknowledged
// is lost, revisions are contiguous, and watches on every node are exact.
//
//   - failover_test.go: the primary ends, and how long writes fail
//   - paths_test.go: another server of the database for each node
//
// Option -v prints the measurements:
//
//	go test -v ./chaos/replicated -run 'TestGalera|TestGroupReplication'
package replicated
