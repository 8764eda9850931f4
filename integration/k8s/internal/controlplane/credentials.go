package controlplane

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// User is who a client is to the API server.
type User struct{ Name, Group string }

// The users that an API server knows by a token. Admin may do everything.
var (
	Admin             = User{"admin", "system:masters"}
	controllerManager = User{"system:kube-controller-manager", ""}
	scheduler         = User{"system:kube-scheduler", ""}
)

var users = []User{Admin, controllerManager, scheduler}

// Credentials are the certificate, the service account key and the tokens that
// the API servers of one cluster share.
type Credentials struct {
	dir    string
	tokens map[User]string
}

// NewCredentials makes credentials, which are gone when t ends.
func NewCredentials(t testing.TB) *Credentials {
	t.Helper()
	c := &Credentials{dir: t.TempDir(), tokens: make(map[User]string)}
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
	var lines strings.Builder
	for i, u := range users {
		c.tokens[u] = rand.Text()
		fmt.Fprintf(&lines, "%s,%s,%d,%q\n", c.tokens[u], u.Name, i, u.Group)
	}
	for name, content := range map[string][]byte{
		certificateFile: certificate,
		keyFile:         key,
		accountKeyFile:  account,
		tokenFile:       []byte(lines.String()),
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

// config is the client configuration of a user for the API server at url.
func (c *Credentials) config(u User, url string) *rest.Config {
	return &rest.Config{
		Host:            url,
		BearerToken:     c.tokens[u],
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.path(certificateFile)},
		// Tests wait for the server, not for a rate that the client holds itself to.
		QPS: -1,
	}
}

// kubeconfig writes the same for a program, and returns the file.
func (c *Credentials) kubeconfig(t testing.TB, u User, url string) string {
	t.Helper()
	const name = "cluster"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthority: c.path(certificateFile)}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.tokens[u]}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}
