// Package upgrade upgrades servers from the previous version to this one, and takes them back, under load.
//
// Three members change version one by one, the leader last, and each version leads followers of the other one. The
// whole history is verified, with watches of every member, users, and leases that clients renew through all members.
// previous_test.go chooses the previous version, and builds it from this repository's history.
//
// Start reading at rolling_test.go.
package upgrade
