// Package snapshot moves data between etcd and sqlbrain by snapshots, both ways, with the
// programs that an operator uses, and compares all that can be asked of both
// servers: keys and hashes at every revision, events, leases, users and roles.
package snapshot
