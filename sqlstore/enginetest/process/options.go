package process

// User is a user of this machine.
type User struct{ UID, GID uint32 }

// Options say how a program runs.
type Options struct {
	Dir string // the working directory; empty for the caller's
	Log string // the file that its output is appended to
	As  *User  // the user it runs as; nil for the caller's
}
