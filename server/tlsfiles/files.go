package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
)

// Config names PEM files.
type Config struct {
	CertFile, KeyFile string
	// TrustedCAFile holds the authorities of the other side's certificates. As in
	// etcd, a listener demands certificates of its clients if it is given. A client
	// trusts the system's authorities without it.
	TrustedCAFile string
	// ClientCertAuth requires client certificates; it needs TrustedCAFile.
	ClientCertAuth bool
	// CRLFile holds a revocation list, DER or PEM: a listener refuses clients that show a certificate
	// with one of its serial numbers, from any issuer, as in etcd.
	CRLFile string
	// AllowedCNs and AllowedHostnames restrict which certificates of the trusted
	// authorities are accepted, by listeners and clients: those with one of the common names, or those
	// that are valid for one of the names or addresses. Only one of the two may be given.
	AllowedCNs, AllowedHostnames []string

	// MinVersion is the oldest version of TLS that is spoken; 0 is 1.2.
	MinVersion uint16
	// MaxVersion is the newest one; 0 is the newest that Go knows.
	MaxVersion uint16
	// CipherSuites are those of TLS 1.2; none is Go's choice.
	CipherSuites []uint16
}

// Empty reports whether no file is named.
func (c Config) Empty() bool {
	return c.CertFile == "" && c.KeyFile == "" && c.TrustedCAFile == "" && c.CRLFile == "" && !c.ClientCertAuth &&
		len(c.AllowedCNs) == 0 && len(c.AllowedHostnames) == 0
}

// Files makes the tls.Config of each handshake from the files. Its methods may be
// called by several goroutines.
type Files struct {
	paths Config
	log   *slog.Logger

	mu     sync.Mutex
	stamps []os.FileInfo // of the files that loaded was made from
	loaded configs
	failed string // why they could not be read again, as logged; empty: they could
}

// configs are what the files' content makes.
type configs struct{ server, client *tls.Config }

// Open reads the files. A change that cannot be read later is logged, and what
// was read before stays in use.
func Open(paths Config, log *slog.Logger) (*Files, error) {
	if paths.CertFile == "" || paths.KeyFile == "" {
		return nil, errors.New("TLS needs both a certificate file and a key file")
	}
	if paths.ClientCertAuth && paths.TrustedCAFile == "" {
		return nil, errors.New("client certificate authentication needs a trusted CA file")
	}
	if paths.CRLFile != "" && paths.TrustedCAFile == "" {
		return nil, errors.New("a revocation list of client certificates needs a trusted CA file")
	}
	if (len(paths.AllowedCNs) > 0 || len(paths.AllowedHostnames) > 0) && paths.TrustedCAFile == "" {
		return nil, errors.New("a list of allowed certificates needs a trusted CA file")
	}
	if len(paths.AllowedCNs) > 0 && len(paths.AllowedHostnames) > 0 {
		return nil, errors.New("either common names or host names of certificates can be restricted")
	}
	paths.MinVersion = max(paths.MinVersion, tls.VersionTLS12)
	f := &Files{paths: paths, log: log}
	stamps, err := f.stat()
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	if f.loaded, err = f.load(); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	f.stamps = stamps
	return f, nil
}

// Listener is the configuration of a listener: it takes the files' newest
// content, and the versions and cipher suites, for every handshake.
func (f *Files) Listener() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.Server(), nil },
	}
}

// Server returns the configuration for a listener's next handshake, of the files'
// newest content. It must not be changed.
func (f *Files) Server() *tls.Config { return f.current().server }

// Client returns the configuration for a client's next handshake, of the files'
// newest content: it shows the certificate and trusts the authorities. It must not be
// changed.
func (f *Files) Client() *tls.Config { return f.current().client }

func (f *Files) current() configs {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamps, err := f.stat()
	if err == nil && unchanged(stamps, f.stamps) {
		return f.loaded
	}
	var loaded configs
	if err == nil {
		loaded, err = f.load()
	}
	if err != nil {
		// Files that are being replaced may not fit together for a moment.
		if err.Error() != f.failed {
			f.log.Warn("TLS files could not be read again; the old ones stay in use", "error", err)
		}
		f.failed = err.Error()
		return f.loaded
	}
	f.failed = ""
	f.log.Info("TLS files were read again", "cert_file", f.paths.CertFile)
	f.loaded, f.stamps = loaded, stamps
	return f.loaded
}

func (f *Files) load() (configs, error) {
	cert, err := tls.LoadX509KeyPair(f.paths.CertFile, f.paths.KeyFile)
	if err != nil {
		return configs{}, fmt.Errorf("certificate %s with key %s: %w", f.paths.CertFile, f.paths.KeyFile, err)
	}
	c := configs{
		server: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			CipherSuites: f.paths.CipherSuites,
			Certificates: []tls.Certificate{cert},
			NextProtos:   []string{"h2", "http/1.1"},
			// A resumed session would outlive the removal of its client's authority.
			SessionTicketsDisabled: true,
		},
		client: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			CipherSuites: f.paths.CipherSuites,
			Certificates: []tls.Certificate{cert},
		},
	}
	for _, config := range []*tls.Config{c.server, c.client} {
		config.MinVersion = max(config.MinVersion, f.paths.MinVersion)
		config.MaxVersion = f.paths.MaxVersion
	}
	if f.paths.TrustedCAFile != "" {
		trusted, err := os.ReadFile(f.paths.TrustedCAFile)
		if err != nil {
			return configs{}, err
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(trusted) {
			return configs{}, fmt.Errorf("no certificate in %s", f.paths.TrustedCAFile)
		}
		c.server.ClientCAs = authorities
		c.server.ClientAuth = tls.RequireAndVerifyClientCert
		c.client.RootCAs = authorities
	}
	if f.paths.CRLFile != "" {
		revoked, err := readRevoked(f.paths.CRLFile)
		if err != nil {
			return configs{}, err
		}
		c.server.VerifyConnection = func(s tls.ConnectionState) error {
			for _, cert := range s.PeerCertificates {
				if revoked[cert.SerialNumber.String()] {
					return fmt.Errorf("the certificate %q with the serial number %x is revoked", cert.Subject.CommonName,
						cert.SerialNumber)
				}
			}
			return f.paths.checkAllowed(s)
		}
	} else {
		c.server.VerifyConnection = f.paths.checkAllowed
	}
	c.client.VerifyConnection = f.paths.checkAllowed
	return c, nil
}

// checkAllowed refuses a verified certificate that is not among those allowed.
func (c Config) checkAllowed(s tls.ConnectionState) error {
	if len(c.AllowedCNs) == 0 && len(c.AllowedHostnames) == 0 {
		return nil
	}
	if len(s.VerifiedChains) == 0 {
		return errors.New("a certificate of the trusted authorities is needed")
	}
	cert := s.VerifiedChains[0][0]
	if slices.Contains(c.AllowedCNs, cert.Subject.CommonName) {
		return nil
	}
	for _, name := range c.AllowedHostnames {
		if cert.VerifyHostname(name) == nil {
			return nil
		}
	}
	return fmt.Errorf("the certificate %q, valid for %q, is not among those allowed", cert.Subject.CommonName,
		cert.DNSNames)
}

// readRevoked returns the serial numbers of a revocation list.
func readRevoked(path string) (map[string]bool, error) {
	der, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(der); block != nil {
		der = block.Bytes
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, fmt.Errorf("no revocation list in %s: %w", path, err)
	}
	revoked := make(map[string]bool)
	for _, entry := range list.RevokedCertificateEntries {
		revoked[entry.SerialNumber.String()] = true
	}
	return revoked, nil
}

func (f *Files) stat() ([]os.FileInfo, error) {
	var infos []os.FileInfo
	for _, path := range []string{f.paths.CertFile, f.paths.KeyFile, f.paths.TrustedCAFile, f.paths.CRLFile} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func unchanged(a, b []os.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}
