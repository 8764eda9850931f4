package process

import "os"

// User is a user of this machine.
type User struct{ UID, GID uint32 }

// Options say how a program runs.
type Options struct {
	Dir string // the working directory; empty for the caller's
	Log string // the file that its output is appended to
	As  *User  // the user it runs as; nil for the caller's
	// Network is the network namespace it runs in, which only root may choose, on Linux; nil for the caller's.
	Network *os.File
}
