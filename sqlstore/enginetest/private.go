package enginetest

import "testing"

// Directory returns a new directory for servers that a test starts by itself. It
// is removed when t ends, or, if this process is killed, by the next one that
// makes one.
func Directory(t testing.TB) string {
	t.Helper()
	d, err := makeDirectory()
	if err != nil {
		Need(t, err, ErrNoEngine)
	}
	t.Cleanup(func() {
		if err := d.remove(); err != nil {
			t.Error(err)
		}
	})
	return d.path
}
