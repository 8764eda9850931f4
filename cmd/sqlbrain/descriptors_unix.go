//go:build unix

package main

import (
	"math"
	"syscall"
)

// mostFiles returns how many files the process may open. Go has raised the limit as far as it may.
func mostFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64 // no limit that is known
	}
	return uint64(limit.Cur) // int64 on FreeBSD
}
