//go:build !linux

package harness

import "net"

// originOf is implemented on Linux only.
func originOf(net.Conn, map[int]int) int { return -1 }
