package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"syscall"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

// preflight finds out, before the database is touched, whether the addresses and
// TLS files can be used: a node that was started by mistake must fail on its port
// before the others learn of it. clustered says that there is a peer port.
func preflight(c *config.Config, clustered bool) error {
	if err := checkTLSFiles("", c.CertFile, c.KeyFile, c.TrustedCAFile); err != nil {
		return err
	}
	if err := checkTLSFiles("peer-", c.PeerCertFile, c.PeerKeyFile, c.PeerTrustedCAFile); err != nil {
		return err
	}
	var probes []net.Listener
	defer func() {
		for _, l := range probes {
			_ = l.Close() // nobody was served on it
		}
	}()
	urls := slices.Concat(c.ListenClientURLs, c.ListenMetricsURLs)
	if clustered {
		urls = append(urls, c.ListenPeerURLs...)
	}
	for _, raw := range urls {
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

// checkTLSFiles reads the files of the settings with this prefix.
func checkTLSFiles(prefix, cert, key, ca string) error {
	if cert != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return fmt.Errorf("%scert-file %s, %skey-file %s: %w", prefix, cert, prefix, key, err)
		}
	}
	if ca == "" {
		return nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("%strusted-ca-file: %w", prefix, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return fmt.Errorf("%strusted-ca-file: %s holds no certificate", prefix, ca)
	}
	return nil
}
