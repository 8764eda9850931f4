package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

// preflight finds out, before the database is touched, whether the addresses and
// TLS files can be used. It matters because opening the backend takes the
// leadership from the node that has it: a second node started by mistake must
// fail on its port first.
func preflight(c *config.Config) error {
	if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			return fmt.Errorf("cert-file %s, key-file %s: %w", c.CertFile, c.KeyFile, err)
		}
	}
	if c.TrustedCAFile != "" {
		pem, err := os.ReadFile(c.TrustedCAFile)
		if err != nil {
			return fmt.Errorf("trusted-ca-file: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return fmt.Errorf("trusted-ca-file: %s holds no certificate", c.TrustedCAFile)
		}
	}
	var probes []net.Listener
	defer func() {
		for _, l := range probes {
			_ = l.Close() // nobody was served on it
		}
	}()
	for _, raw := range append(append([]string{}, c.ListenClientURLs...), c.ListenMetricsURLs...) {
		u, err := url.Parse(raw)
		if err != nil {
			return fmt.Errorf("listen on %q: not a URL", raw)
		}
		if u.Scheme != "http" && u.Scheme != "https" {
			continue // a socket file; the server tells stale ones from those in use
		}
		l, err := net.Listen("tcp", u.Host)
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("listen on %s: the address is in use", raw)
		}
		if err != nil {
			return fmt.Errorf("listen on %s: %w", raw, err)
		}
		probes = append(probes, l)
	}
	return nil
}
