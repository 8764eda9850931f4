// Package system starts what is compared: a server with its storage, on fresh data,
// alone on the machine.
//
// Invariant: every system has a write on disk (fsync) before it acknowledges
// it: etcd's default; SQLite with synchronous=FULL for kine too, whose default
// is less; MySQL and MariaDB with innodb_flush_log_at_trx_commit=1, and
// sync_binlog=1 with a binary log. Other settings are the programs' defaults, but
// for those that a size of data needs, which are named where they are set.
//
// Start reading at system.go.
package system
