// Package mysql is the engine for MySQL 8 and later, MariaDB 10.6 and later, and TiDB.
//
// A commit is one conditional upsert where possible (commit.go), else a transaction
// (tx.go). errors.go says what each error number means for a commit. tidb.go and
// replicated.go hold what only TiDB, Galera and Group Replication need. Package
// failover keeps the connections on the primary.
//
// Tests: package engines for what all engines have in common; here plan_test.go (no
// statement scans the table), tidb_test.go, failover_test.go and hosts_test.go.
package mysql
