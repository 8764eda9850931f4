package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sqlbrain/sqlbrain/server/tracing"
)

// invalid words the error of a value that cannot be used.
func (s *Settings) invalid(name, format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{cmp.Or(s.origins[name], "--"+name)}, args...)...)
}

// check judges all values; those derived from others are computed on the way.
func (s *Settings) check() error {
	for _, check := range []func() error{
		s.checkNumbers, s.checkDurations, s.checkURLs, s.checkTLS, s.checkElection, s.checkRetention, s.checkLog, s.checkTracing, s.checkDatastore,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if kind, _, _ := strings.Cut(s.AuthToken, ","); kind != "simple" && kind != "jwt" {
		return s.invalid("auth-token", "%q is no kind of token: use simple, or jwt with its options", kind)
	}
	if s.Name == "" {
		return s.invalid("name", "must not be empty")
	}
	return nil
}

func (s *Settings) checkNumbers() error {
	// gRPC's message sizes are int32; half a MiB more than the request is let in.
	const maxRequest = math.MaxInt32 - 512*1024
	for _, n := range []struct {
		name          string
		value         int64
		least, atMost int64
	}{
		{"max-request-bytes", int64(s.MaxRequestBytes), 1, maxRequest},
		{"max-txn-ops", int64(s.MaxTxnOps), 1, math.MaxInt32},
		{"auth-token-ttl", int64(s.AuthTokenTTL), 0, math.MaxInt64 / int64(time.Second)},
		{"bcrypt-cost", int64(s.BcryptCost), int64(bcrypt.MinCost), int64(bcrypt.MaxCost)},
		{"max-concurrent-streams", int64(s.MaxConcurrentStreams), 1, math.MaxUint32},
		{"datastore-max-open-conns", int64(s.DatastoreMaxOpenConns), 0, 1 << 16},
		{"quota-backend-bytes", s.QuotaBackendBytes, 0, math.MaxInt64},
		{"watch-ring-events", int64(s.WatchRingEvents), 1, 1 << 30},
		{"watch-ring-bytes", int64(s.WatchRingBytes), 1, math.MaxInt64},
		{"watch-queue-events", int64(s.WatchQueueEvents), 1, 1 << 30},
		{"watch-queue-bytes", int64(s.WatchQueueBytes), 1, math.MaxInt64},
		{"batch-max-requests", int64(s.BatchMaxRequests), 1, 1 << 20},
		{"batch-max-rows", int64(s.BatchMaxRows), 1, 1 << 20},
		{"batch-max-bytes", int64(s.BatchMaxBytes), 1, 1 << 30},
		{"queue-length", int64(s.QueueLength), 1, 1 << 24},
		{"index-cache-entries", int64(s.IndexCacheEntries), 1, 1 << 30},
		{"object-cache-bytes", int64(s.ObjectCacheBytes), 0, math.MaxInt64},
		{"memory-limit-bytes", s.MemoryLimitBytes, 0, math.MaxInt64},
		{"distributed-tracing-sampling-rate", int64(s.DistributedTracingSamplingRate), 0, tracing.PerMillion},
	} {
		switch {
		case n.value < n.least:
			return s.invalid(n.name, "%d is too small, at least %d is needed", n.value, n.least)
		case n.value > n.atMost:
			return s.invalid(n.name, "%d is too large, at most %d is possible", n.value, n.atMost)
		}
	}
	if least := s.leastMemory(); s.MemoryLimitBytes > 0 && s.MemoryLimitBytes < least {
		return s.invalid("memory-limit-bytes", "%d is too small for what --watch-ring-bytes, --object-cache-bytes and --index-cache-entries keep, at least %d is needed",
			s.MemoryLimitBytes, least)
	}
	return nil
}

// leastMemory is what the caches take, and a process that works with them, in bytes.
func (s *Settings) leastMemory() int64 {
	const (
		indexEntry = 256
		process    = 240 << 20
	)
	caches := float64(s.WatchRingBytes) + float64(s.ObjectCacheBytes) + indexEntry*float64(s.IndexCacheEntries)
	return process + int64(min(caches, math.MaxInt64/2))
}

func (s *Settings) checkDurations() error {
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"request-timeout", s.RequestTimeout, time.Millisecond},
		{"stop-timeout", s.StopTimeout, time.Millisecond},
		{"commit-timeout", s.CommitTimeout, time.Millisecond},
		{"grpc-keepalive-min-time", s.GRPCKeepAliveMinTime, time.Millisecond},
		{"grpc-keepalive-interval", s.GRPCKeepAliveInterval, 0},
		{"grpc-keepalive-timeout", s.GRPCKeepAliveTimeout, 0},
		{"watch-progress-notify-interval", s.WatchProgressNotifyInterval, time.Millisecond},
		{"warning-unary-request-duration", s.WarnUnaryDuration, time.Millisecond},
		{"leader-elect-lease-duration", s.LeaderElectLeaseDuration, time.Second},
		{"leader-elect-renew-deadline", s.LeaderElectRenewDeadline, 2 * time.Millisecond},
		{"leader-elect-retry-period", s.LeaderElectRetryPeriod, time.Millisecond},
	} {
		if d.value < d.least {
			return s.invalid(d.name, "%s is too short, at least %s is needed", d.value, d.least)
		}
	}
	return nil
}

func (s *Settings) checkURLs() error {
	if len(s.ListenClientURLs) == 0 {
		return s.invalid("listen-client-urls", "at least one URL is needed")
	}
	for _, list := range []struct {
		name string
		urls []string
	}{
		{"listen-client-urls", s.ListenClientURLs},
		{"advertise-client-urls", s.AdvertiseClientURLs},
		{"listen-metrics-urls", s.ListenMetricsURLs},
		{"listen-peer-urls", s.ListenPeerURLs},
		{"initial-advertise-peer-urls", s.InitialAdvertisePeerURLs},
	} {
		for _, raw := range list.urls {
			if problem := urlProblem(raw); problem != "" {
				return s.invalid(list.name, "%q %s", raw, problem)
			}
		}
	}
	return s.checkPeerURLs()
}

// checkPeerURLs sees to it that the other members are told addresses that they can
// reach.
func (s *Settings) checkPeerURLs() error {
	for _, raw := range s.InitialAdvertisePeerURLs {
		if !reachable(raw) {
			return s.invalid("initial-advertise-peer-urls", "%q is no address at which other members can reach this one", raw)
		}
	}
	if len(s.InitialAdvertisePeerURLs) > 0 {
		return nil
	}
	for _, raw := range s.ListenPeerURLs {
		if !reachable(raw) {
			return s.invalid("listen-peer-urls", "%q is no address that other members can be told: --initial-advertise-peer-urls is needed as well", raw)
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

func urlProblem(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "is not a URL"
	}
	switch u.Scheme {
	case "unix", "unixs":
		if u.Host+u.Path == "" {
			return "needs a path"
		}
		return ""
	case "http", "https":
	default:
		return "must begin with http://, https://, unix:// or unixs://"
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return "needs a port, as in http://127.0.0.1:2379"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > math.MaxUint16 {
		return "has a port that is not between 0 and 65535"
	}
	if path.Clean("/"+u.Path) != "/" || u.RawQuery != "" || u.User != nil {
		return "must end behind the port"
	}
	return ""
}

// encrypted reports whether any of urls is a TLS one.
func encrypted(urls ...string) bool {
	return slices.ContainsFunc(urls, func(u string) bool {
		return strings.HasPrefix(u, "https:") || strings.HasPrefix(u, "unixs:")
	})
}

// TLS reports whether any URL listened on for clients is a TLS one.
func (c *Config) TLS() bool {
	return encrypted(c.ListenClientURLs...) || encrypted(c.ListenMetricsURLs...)
}

func (s *Settings) checkTLS() error {
	for _, name := range s.CipherSuites {
		if _, ok := cipherSuite(name); !ok {
			return s.invalid("cipher-suites", "%q is no cipher suite", name)
		}
	}
	switch {
	case len(s.CipherSuites) > 0 && s.TLSMinVersion == TLS13:
		return s.invalid("cipher-suites", "those of TLS 1.3 cannot be chosen")
	case s.TLSMinVersion > s.TLSMaxVersion:
		return s.invalid("tls-min-version", "%s is newer than --tls-max-version, %s", s.TLSMinVersion, s.TLSMaxVersion)
	case s.ClientCRLFile != "" && s.TrustedCAFile == "":
		return s.invalid("client-crl-file", "--trusted-ca-file is needed as well")
	case s.PeerCRLFile != "" && s.PeerTrustedCAFile == "":
		return s.invalid("peer-crl-file", "--peer-trusted-ca-file is needed as well")
	}
	switch {
	case len(s.PeerCertAllowedCN) > 0 && len(s.PeerCertAllowedHostname) > 0:
		return s.invalid("peer-cert-allowed-cn", "--peer-cert-allowed-hostname is given as well, and only one of them can be")
	case len(s.PeerCertAllowedCN) > 0 && s.PeerTrustedCAFile == "":
		return s.invalid("peer-cert-allowed-cn", "--peer-trusted-ca-file is needed as well")
	case len(s.PeerCertAllowedHostname) > 0 && s.PeerTrustedCAFile == "":
		return s.invalid("peer-cert-allowed-hostname", "--peer-trusted-ca-file is needed as well")
	case s.TLS() && s.CertFile == "":
		return s.invalid("listen-client-urls", "an https URL needs --cert-file and --key-file")
	case !s.TLS() && s.CertFile != "" && s.KeyFile != "":
		return s.invalid("cert-file", "no URL to listen on is https, so that nothing would be encrypted")
	}
	if err := s.checkTLSFiles("", s.CertFile, s.KeyFile, s.TrustedCAFile, s.ClientCertAuth); err != nil {
		return err
	}
	return s.checkTLSFiles("peer-", s.PeerCertFile, s.PeerKeyFile, s.PeerTrustedCAFile, s.PeerClientCertAuth)
}

// checkTLSFiles judges the settings with this prefix.
func (s *Settings) checkTLSFiles(prefix, cert, key, ca string, auth bool) error {
	switch {
	case cert != "" && key == "":
		return s.invalid(prefix+"cert-file", "--%skey-file is needed as well", prefix)
	case key != "" && cert == "":
		return s.invalid(prefix+"key-file", "--%scert-file is needed as well", prefix)
	case auth && ca == "":
		return s.invalid(prefix+"client-cert-auth", "--%strusted-ca-file is needed as well", prefix)
	case ca != "" && cert == "":
		return s.invalid(prefix+"trusted-ca-file", "--%scert-file and --%skey-file are needed as well", prefix, prefix)
	}
	return nil
}

// checkElection says in terms of the flags what client-go would refuse.
func (s *Settings) checkElection() error {
	switch lease, renew, retry := s.LeaderElectLeaseDuration, s.LeaderElectRenewDeadline, s.LeaderElectRetryPeriod; {
	case lease%time.Second != 0:
		return s.invalid("leader-elect-lease-duration", "%s is not a whole number of seconds", lease)
	case renew >= lease:
		return s.invalid("leader-elect-renew-deadline", "%s must be below --leader-elect-lease-duration, %s", renew, lease)
	case retry*6/5 >= renew:
		return s.invalid("leader-elect-retry-period", "1.2 times %s must be below --leader-elect-renew-deadline, %s", retry, renew)
	}
	return nil
}

// checkRetention reads the retention as etcd does.
func (s *Settings) checkRetention() error {
	s.periodicRetention, s.retainedRevisions = 0, 0
	const name = "auto-compaction-retention"
	n, err := strconv.ParseInt(s.AutoCompactionRetention, 10, 64)
	switch {
	case err == nil && n < 0:
		return s.invalid(name, "%d is negative", n)
	case s.AutoCompactionMode == CompactRevision && err != nil:
		return s.invalid(name, "%q is not a number of revisions", s.AutoCompactionRetention)
	case s.AutoCompactionMode == CompactRevision:
		s.retainedRevisions = n
		return nil
	case err == nil && n > int64(math.MaxInt64/time.Hour):
		return s.invalid(name, "%d hours are too many", n)
	case err == nil:
		s.periodicRetention = time.Duration(n) * time.Hour
		return nil
	}
	d, err := time.ParseDuration(s.AutoCompactionRetention)
	if err != nil || d < 0 {
		return s.invalid(name, "%q is neither a number of hours nor a duration like 5m", s.AutoCompactionRetention)
	}
	s.periodicRetention = d
	return nil
}

func (s *Settings) checkTracing() error {
	if s.DistributedTracingServiceName == "" {
		return s.invalid("distributed-tracing-service-name", "must not be empty")
	}
	_, port, err := net.SplitHostPort(s.DistributedTracingAddress)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return s.invalid("distributed-tracing-address", "%q is not host:port", s.DistributedTracingAddress)
	}
	return nil
}

func (s *Settings) checkLog() error {
	if len(s.LogOutputs) == 0 {
		return s.invalid("log-outputs", "at least one is needed")
	}
	if s.AuditLog == "" {
		return s.invalid("audit-log", "must not be empty: use log, off or a file")
	}
	for _, out := range s.LogOutputs {
		if out == "" || out == "systemd/journal" {
			return s.invalid("log-outputs", "%q is not supported: use stderr, stdout or files", out)
		}
	}
	return nil
}
