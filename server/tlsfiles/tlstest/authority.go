// Package tlstest makes certificates and the files that hold them, for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
)

// Authority makes certificates.
type Authority struct {
	// PEM is its own certificate.
	PEM []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority that is not trusted anywhere yet.
func NewAuthority(t *testing.T, name string) *Authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		SubjectKeyId: []byte(name), // which a revocation list names
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &Authority{cert: cert, key: key, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Issue returns a certificate for name at 127.0.0.1, of a server and of a client,
// and its key, in PEM.
func (a *Authority) Issue(t *testing.T, name string) (certPEM, keyPEM []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// Revoke puts a revocation list of a with serial numbers in d. All certificates that Issue makes
// have the number 2.
func (d *Dir) Revoke(t *testing.T, a *Authority, serials ...int64) {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour),
		NextUpdate: time.Now().Add(time.Hour)}
	for _, serial := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: big.NewInt(serial), RevocationTime: time.Now().Add(-time.Minute),
		})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	require.NoError(t, err)
	d.CRLFile = filepath.Join(filepath.Dir(d.CertFile), "crl")
	Replace(t, d.CRLFile, der)
}

// Pool trusts a.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// ClientConfig trusts a, and shows a certificate of as if that is not nil.
func (a *Authority) ClientConfig(t *testing.T, as *Authority) *tls.Config {
	c := &tls.Config{RootCAs: a.Pool()}
	if as != nil {
		c.Certificates = as.ClientNamed(t, "client").Certificates
	}
	return c
}

// ClientNamed trusts a, and shows a certificate of a for name.
func (a *Authority) ClientNamed(t *testing.T, name string) *tls.Config {
	pair, err := tls.X509KeyPair(a.Issue(t, name))
	require.NoError(t, err)
	return &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pair}}
}

// NewServer returns an authority, and files that hold a certificate of it for a server.
func NewServer(t *testing.T) (*Authority, Dir) {
	ca, d := NewAuthority(t, "ca"), NewDir(t)
	d.Write(t, ca, "server")
	return ca, d
}

// RequireClients makes clients need a certificate of a.
func (d *Dir) RequireClients(t *testing.T, a *Authority) {
	d.Trust(t, a)
	d.ClientCertAuth = true
}

// Dir holds TLS files, which a test may replace.
type Dir struct{ tlsfiles.Config }

// NewDir names files that do not exist yet.
func NewDir(t *testing.T) Dir {
	dir := t.TempDir()
	return Dir{tlsfiles.Config{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}}
}

// Trust makes a the trusted authority.
func (d *Dir) Trust(t *testing.T, a *Authority) {
	d.TrustedCAFile = filepath.Join(filepath.Dir(d.CertFile), "ca.pem")
	Replace(t, d.TrustedCAFile, a.PEM)
}

// Write puts a new certificate of a in the files.
func (d *Dir) Write(t *testing.T, a *Authority, name string) {
	cert, key := a.Issue(t, name)
	Replace(t, d.CertFile, cert)
	Replace(t, d.KeyFile, key)
}

// Replace puts a new file in the place of an old one, as certificate managers do.
func Replace(t *testing.T, path string, content []byte) {
	require.NoError(t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}
