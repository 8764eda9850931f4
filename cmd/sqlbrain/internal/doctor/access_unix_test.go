//go:build linux || darwin || freebsd

package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestMayWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "db")
	if err := mayWrite(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := mayWrite(dir); err != nil {
		t.Error(err)
	}
	if err := mayWrite(file); os.Geteuid() != 0 && !errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0 && err != nil {
		t.Errorf("a file for reading only: %v", err)
	}
}
