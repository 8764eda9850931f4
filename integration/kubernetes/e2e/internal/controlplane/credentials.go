package controlplane

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Credentials are the certificate, the service account key and an administrator's token that
// the API servers of one cluster share.
type Credentials struct{ dir, token string }

// NewCredentials makes credentials, which are gone when t ends.
func NewCredentials(t testing.TB) *Credentials {
	t.Helper()
	c := &Credentials{dir: t.TempDir(), token: rand.Text()}
	if err := c.create(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Credentials) create() error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)},
		[]string{"localhost"})
	if err != nil {
		return err
	}
	account, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		certificateFile: certificate,
		keyFile:         key,
		accountKeyFile:  account,
		tokenFile:       fmt.Appendf(nil, "%s,admin,0,system:masters\n", c.token),
	} {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

const (
	certificateFile = "apiserver.crt" // holds the authority that signed it, too
	keyFile         = "apiserver.key"
	accountKeyFile  = "service-account.key"
	tokenFile       = "tokens.csv"
)

func (c *Credentials) path(name string) string { return filepath.Join(c.dir, name) }
