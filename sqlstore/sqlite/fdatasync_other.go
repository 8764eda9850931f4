//go:build !linux

package sqlite

import "modernc.org/libc"

// syncData flushes the log.
func syncData(tls *libc.TLS, file uintptr, flags int32, _ int) int32 {
	return function[syncFile](walFileOf(file).base.FxSync)(tls, file, flags)
}

func startWriteback(uintptr) {}
