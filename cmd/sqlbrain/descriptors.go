package main

import "math"

// ownDescriptors are kept for files. With a limit of 1,024 the process keeps 150 in all for what is not a client or the
// database, as etcd does.
const ownDescriptors = 22

// otherConnections returns how many connections the ports for metrics, and those for other members, may have each if
// the process may open so many files.
func otherConnections(files uint64) int { return int(min(max(files/16, 16), 1024)) }

// clientConnections returns how many connections clients may have if the process may open so many files, and so many
// connections to the database: all but what the process and its other ports need, but at least half.
func clientConnections(files uint64, database int) int {
	own := uint64(ownDescriptors + 2*otherConnections(files) + max(database, 0))
	return int(min(max(files-min(files, own), files/2), math.MaxInt32))
}
