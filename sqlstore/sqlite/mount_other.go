//go:build !linux

package sqlite

// mountPoint is known on Linux only.
func mountPoint(string) bool { return false }
