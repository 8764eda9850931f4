package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sqlbrain/sqlbrain/server/backup"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
)

// check judges all values: each by itself, then those that must fit each other, of the ports if the command takes those.
func (s *Settings) check(ports bool) error {
	checks := append(s.bounds, s.checkMemory, s.checkLog, s.checkNames, s.finish, s.checkDatastore)
	if ports {
		checks = append(checks, s.checkPeerURLs, s.checkTLS)
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Settings) checkNames() error {
	if kind, _, _ := strings.Cut(s.Server.AuthToken, ","); kind != "simple" && kind != "jwt" {
		return s.invalid("auth-token", "%q is no kind of token: use simple, or jwt with its options", kind)
	}
	if s.BackupTo != "" {
		if _, err := backup.OpenPlace(s.BackupTo, nil); err != nil {
			return s.invalid("backup-to", "%w", err)
		}
	}
	if s.Given("backup-recipient") && len(s.BackupRecipients) == 0 {
		return s.invalid("backup-recipient", "names nobody, so the backup would not be encrypted")
	}
	if s.Node.Name == "" {
		return s.invalid("name", "must not be empty")
	}
	if !utf8.ValidString(s.Node.Name) {
		return s.invalid("name", "%q is not UTF-8, so no list of members could hold it", s.Node.Name)
	}
	if s.Tracing.Service == "" {
		return s.invalid("distributed-tracing-service-name", "must not be empty")
	}
	_, port, err := net.SplitHostPort(s.Tracing.Address)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return s.invalid("distributed-tracing-address", "%q is not host:port", s.Tracing.Address)
	}
	return nil
}

// checkPeerURLs refuses addresses at which other members cannot reach this one.
func (s *Settings) checkPeerURLs() error {
	if len(s.Server.ListenClientURLs) == 0 {
		return s.invalid("listen-client-urls", "at least one URL is needed")
	}
	for _, raw := range s.Node.PeerURLs {
		if !reachable(raw) {
			return s.invalid("initial-advertise-peer-urls", "%q is no address at which other members can reach this one", raw)
		}
	}
	if len(s.Node.PeerURLs) > 0 {
		return nil
	}
	for _, raw := range s.Server.PeerURLs {
		if !reachable(raw) {
			return s.invalid("listen-peer-urls", "other members cannot reach this one at %q: --initial-advertise-peer-urls "+
				"is needed as well", raw)
		}
	}
	return nil
}

// reachable reports whether a URL names a host and a port.
func reachable(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || strings.HasPrefix(u.Scheme, "unix") {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Port() != "0" && u.Hostname() != "" && (ip == nil || !ip.IsUnspecified())
}

// listensTLS reports whether any URL listened on for clients is a TLS one.
func (c *Config) listensTLS() bool {
	return slices.ContainsFunc(slices.Concat(c.Server.ListenClientURLs, c.Server.ListenMetricsURLs), func(u string) bool {
		return strings.HasPrefix(u, "https:") || strings.HasPrefix(u, "unixs:")
	})
}

func (s *Settings) checkTLS() error {
	client, peer, tls := &s.Server.TLS, &s.Node.PeerTLS, s.listensTLS()
	switch {
	case len(s.cipherSuites) > 0 && client.MinVersion == tls13.value:
		return s.invalid("cipher-suites", "those of TLS 1.3 cannot be chosen")
	case client.MinVersion > client.MaxVersion:
		return s.invalid("tls-min-version", "%s is newer than %s, %s", tls13.word, s.Origin("tls-max-version"), tls12.word)
	case client.CRLFile != "" && client.TrustedCAFile == "":
		return s.invalid("client-crl-file", "--trusted-ca-file is needed as well")
	case peer.CRLFile != "" && peer.TrustedCAFile == "":
		return s.invalid("peer-crl-file", "--peer-trusted-ca-file is needed as well")
	case len(peer.AllowedCNs) > 0 && len(peer.AllowedHostnames) > 0:
		return s.invalid("peer-cert-allowed-cn", "%s is given as well, and only one of them can be",
			s.Origin("peer-cert-allowed-hostname"))
	case len(peer.AllowedCNs) > 0 && peer.TrustedCAFile == "":
		return s.invalid("peer-cert-allowed-cn", "--peer-trusted-ca-file is needed as well")
	case len(peer.AllowedHostnames) > 0 && peer.TrustedCAFile == "":
		return s.invalid("peer-cert-allowed-hostname", "--peer-trusted-ca-file is needed as well")
	case tls && client.CertFile == "":
		return s.invalid("listen-client-urls", "an https URL needs --cert-file and --key-file")
	case !tls && client.CertFile != "" && client.KeyFile != "":
		return s.invalid("cert-file", "no URL to listen on is https, so that nothing would be encrypted")
	}
	if err := s.checkTLSFiles("", client); err != nil {
		return err
	}
	return s.checkTLSFiles("peer-", peer)
}

// checkTLSFiles judges the files of the settings with this prefix.
func (s *Settings) checkTLSFiles(prefix string, t *tlsfiles.Config) error {
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		return s.invalid(prefix+"cert-file", "--%skey-file is needed as well", prefix)
	case t.KeyFile != "" && t.CertFile == "":
		return s.invalid(prefix+"key-file", "--%scert-file is needed as well", prefix)
	case t.ClientCertAuth && t.TrustedCAFile == "":
		return s.invalid(prefix+"client-cert-auth", "--%strusted-ca-file is needed as well", prefix)
	case t.TrustedCAFile != "" && t.CertFile == "":
		return s.invalid(prefix+"trusted-ca-file", "--%scert-file and --%skey-file are needed as well", prefix, prefix)
	}
	return nil
}

func (s *Settings) checkLog() error {
	if len(s.LogOutputs) == 0 {
		return s.invalid("log-outputs", "at least one is needed")
	}
	if s.Audit.To == "" {
		return s.invalid("audit-log", "must not be empty: use log, off or a file")
	}
	for _, out := range s.LogOutputs {
		if out == "" || out == "systemd/journal" {
			return s.invalid("log-outputs", "%q is not supported: use stderr, stdout or files", out)
		}
	}
	return nil
}
