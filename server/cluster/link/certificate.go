package link

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/big"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
)

// Certificate is the certificate and the key that this process presents to the other
// members. They come from the configured files, or are generated at start and kept in
// memory only. Its methods may be called by several goroutines.
type Certificate struct {
	files *tlsfiles.Files // nil: generated at start

	mu    sync.Mutex
	shown *tls.Certificate
	next  *tls.Certificate // read from changed files and not published yet; nil: none
}

// NewCertificate reads the files, or generates a key pair if paths is empty.
func NewCertificate(paths tlsfiles.Config, log *slog.Logger) (*Certificate, error) {
	if paths.Empty() {
		own, err := makeCertificate()
		if err != nil {
			return nil, fmt.Errorf("link: making a certificate: %w", err)
		}
		return &Certificate{shown: own}, nil
	}
	files, err := tlsfiles.Open(paths, log)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	return &Certificate{files: files, shown: &files.Client().Certificates[0]}, nil
}

// makeCertificate returns a self-signed certificate. The other members compare its
// fingerprint and nothing else, so it has no name and does not expire.
func makeCertificate() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "sqlbrain member"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: does not expire
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Fingerprint returns the fingerprint to publish, which is that of the files' newest
// content. The certificate is presented once Published has confirmed its fingerprint.
func (c *Certificate) Fingerprint() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		return fingerprint(c.shown.Certificate[0])
	}
	newest := &c.files.Client().Certificates[0]
	c.next = nil
	if fingerprint(newest.Certificate[0]) != fingerprint(c.shown.Certificate[0]) {
		c.next = newest
	}
	return fingerprint(newest.Certificate[0])
}

// Published confirms that the table of members has this fingerprint.
func (c *Certificate) Published(published string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil && fingerprint(c.next.Certificate[0]) == published {
		c.shown, c.next = c.next, nil
	}
}

func (c *Certificate) current() tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.shown
}

// server returns the configuration of an acceptor's next handshake, without a check
// of fingerprints.
func (c *Certificate) server() *tls.Config {
	config := &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}
	if c.files != nil {
		config = c.files.Server().Clone()
		config.ClientAuth = max(config.ClientAuth, tls.RequireAnyClientCert)
	}
	// A resumed session would outlive the removal of its member.
	config.SessionTicketsDisabled = true
	return c.finish(config)
}

// client returns the configuration of a dialer's next handshake, without a check of
// fingerprints. Chains are verified only if the files name authorities.
func (c *Certificate) client(serverName string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.files != nil {
		config = c.files.Client().Clone()
	}
	config.ServerName = serverName
	return c.finish(config)
}

// finish sets what both sides have in common. The versions and cipher suites that are
// configured for clients do not apply to members.
func (c *Certificate) finish(config *tls.Config) *tls.Config {
	config.Certificates = []tls.Certificate{c.current()}
	config.MinVersion, config.MaxVersion, config.CipherSuites = tls.VersionTLS13, 0, nil
	config.NextProtos = []string{"h2"}
	return config
}

// fingerprint returns the SHA-256 of a certificate, in hexadecimal.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
