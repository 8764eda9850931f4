package harness

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// originOf returns which of the processes opened a connection that was accepted
// here, or -1 if none of them did or the process has ended. The kernel's table of
// connections names the inode of the other end's socket; the process that opened the
// connection has that inode among its open files.
func originOf(conn net.Conn, pids map[int]int) int {
	inode := inodeOf(conn.RemoteAddr(), conn.LocalAddr())
	if inode == "" {
		return -1
	}
	want := "socket:[" + inode + "]"
	for i, pid := range pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			continue
		}
		for _, f := range files {
			if to, err := os.Readlink(f); err == nil && to == want {
				return i
			}
		}
	}
	return -1
}

// inodeOf returns the inode of the socket that is local here and remote there.
func inodeOf(local, remote net.Addr) string {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	from, to := hexAddress(local), hexAddress(remote)
	for line := range strings.Lines(string(table)) {
		const localField, remoteField, inodeField = 1, 2, 9
		f := strings.Fields(line)
		if len(f) > inodeField && f[localField] == from && f[remoteField] == to {
			return f[inodeField]
		}
	}
	return ""
}

// hexAddress writes an IPv4 address as the kernel's table does.
func hexAddress(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	b := ap.Addr().Unmap().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(b[:]), ap.Port())
}
