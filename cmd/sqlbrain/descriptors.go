package main

import (
	"math"
	"syscall"
)

// ownDescriptors are kept for what is not a client: connections to the database and to other members, files, probes
// on the URLs for metrics. etcd keeps as many.
const ownDescriptors = 150

// clientConnections returns how many connections clients may have if the process may open so many files, and so many
// connections to the database: all but what the process needs itself, but at least half.
func clientConnections(files uint64, database int) int {
	own := uint64(ownDescriptors + max(database, 0))
	return int(min(max(files-min(files, own), files/2), math.MaxInt32))
}

// mostFiles returns how many files the process may open. Go has raised the limit as far as it may.
func mostFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64 // no limit that is known
	}
	return limit.Cur
}
