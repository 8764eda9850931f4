//go:build !linux && !darwin && !freebsd

package sqlite

// fileSystem does not know.
func fileSystem(string) (free, total int64, err error) { return 0, 0, nil }

// allocated does not know either.
func allocated(string) int64 { return 0 }
