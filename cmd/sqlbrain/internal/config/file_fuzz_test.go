package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzFile: no settings file makes Load panic, and no error about one shows the
// password in its datastore's URL.
func FuzzFile(f *testing.F) {
	const marker = "S3cr3tOfTests"
	f.Add("max-txn-ops: 1\n")
	f.Add("listen-client-urls: [http://127.0.0.1:1]\nttl-policy: [/a/=1h]")
	f.Add("name: [a, b]")
	f.Add("&a [*a]")
	f.Add("? {a: b}\n: c")
	f.Add("tls: !!null\n---\nx")
	f.Add("datastore: b\n")
	f.Add("max-txn-ops: many\nname: \"\\xff\"")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		// Files that are named are not to be read or run.
		if strings.Contains(text, "password") || strings.Contains(text, marker) {
			return
		}
		path := filepath.Join(dir, "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte("datastore: mysql://u:"+marker+"@h:1/d\n"+text), 0o600))
		s, err := load([]string{"--config-file", path}, nil)
		require.NotContains(t, fmt.Sprint(err, s.Describe()), marker, "%q", text)
	})
}
