// Package replicated starts databases of three servers that replicate to each
// other, on this machine: a Group Replication of MySQL in single-primary mode,
// and a Galera cluster of MariaDB. Their servers can be killed, frozen and
// started again.
//
//	db := replicated.Start(t, replicated.Group)
//	url := db.URL()         // names all three: mysql://user:password@a,b,c/database
//	db.Kill(db.Primary())
//
// MySQL is the program that SQLBRAIN_TEST_MYSQLD names, or mysqld in PATH, with the
// plugin group_replication; Galera is MariaDB's mariadbd with libgalera_smm.so
// and what its state transfer by rsync needs. Where one is missing, a test is
// skipped and says so; with SQLBRAIN_REQUIRE_ENGINES=1 it fails instead.
//
// The servers are as durable as production ones, and their settings are the
// products' defaults unless a test asks for others. No server outlives the test
// process.
//
// Start reading at database.go; group.go and galera.go are the two products.
package replicated
