package config

import (
	"crypto/tls"
	"slices"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
)

// cipherSuite returns the number of a cipher suite; those that are not safe any more are as
// good as others here, as in etcd.
func cipherSuite(name string) (id uint16, ok bool) {
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if suite.Name == name {
			return suite.ID, true
		}
	}
	return 0, false
}

// ClientTLS is what URLs for clients and metrics need.
func (c *Config) ClientTLS() tlsfiles.Config {
	return c.versions(tlsfiles.Config{
		CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.TrustedCAFile, ClientCertAuth: c.ClientCertAuth, CRLFile: c.ClientCRLFile,
	})
}

// PeerTLS is what is configured for members to listen to and to call each other. Versions
// and cipher suites are for clients.
func (c *Config) PeerTLS() tlsfiles.Config {
	return tlsfiles.Config{
		CertFile: c.PeerCertFile, KeyFile: c.PeerKeyFile, TrustedCAFile: c.PeerTrustedCAFile, ClientCertAuth: c.PeerClientCertAuth, CRLFile: c.PeerCRLFile,
		AllowedCNs: c.PeerCertAllowedCN, AllowedHostnames: c.PeerCertAllowedHostname,
	}
}

func (c *Config) versions(files tlsfiles.Config) tlsfiles.Config {
	if c.TLSMinVersion == TLS13 {
		files.MinVersion = tls.VersionTLS13
	}
	if c.TLSMaxVersion == TLS12 {
		files.MaxVersion = tls.VersionTLS12
	}
	for _, name := range c.CipherSuites {
		if id, ok := cipherSuite(name); ok {
			files.CipherSuites = append(files.CipherSuites, id)
		}
	}
	return files
}
