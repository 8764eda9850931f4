package config

import (
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/election"
)

// define names all settings, with their defaults. The limits are in check.go.
func (s *Settings) define() {
	f := s.flags
	f.SortFlags = false

	f.StringVar(&s.ConfigFile, "config-file", "", "YAML `file` of settings, its keys are the names of these flags (flags and the environment, SQLBRAIN_…, come first)")
	f.StringVar(&s.Name, "name", "default", "name of this member")
	f.BoolVar(&s.ForceJoin, "force-join", false, "start although another process runs under this member's name; that one stops serving")

	f.StringVar(&s.Datastore, "datastore", "", "`URL` of the database: mysql://user:password@host:3306/database, with several hosts host:3306,host:3306 the one that takes writes, or sqlite://path (default sqlite://DATA-DIR/sqlbrain.db)")
	f.StringVar(&s.DatastorePasswordFile, "datastore-password-file", "", "`file` that holds the database's password, instead of the URL; read again for each connection")
	f.StringVar(&s.DatastorePasswordCommand, "datastore-password-command", "", "shell `command` that prints the database's password, instead of the URL; run for new connections, within 10s, what it prints serves for 10s")
	f.IntVar(&s.DatastoreMaxOpenConns, "datastore-max-open-conns", 0, "most connections to the database (0: chosen by the engine)")
	f.StringVar(&s.DataDir, "data-dir", "sqlbrain.data", "`directory` of the default database")
	f.Var(oneOf(&s.Migrate, MigrateAuto, MigrateVerify), "migrate", "at start, bring the schema up to date (auto) or only check it (verify)")

	f.StringSliceVar(&s.ListenClientURLs, "listen-client-urls", []string{"http://127.0.0.1:2379"}, "`URLs` to serve clients on, gRPC and HTTP: http, https, unix or unixs")
	f.StringSliceVar(&s.AdvertiseClientURLs, "advertise-client-urls", nil, "`URLs` that members tell clients about (default: those listened on)")
	f.StringSliceVar(&s.ListenMetricsURLs, "listen-metrics-urls", nil, "`URLs` to serve /metrics and the health endpoints on as well")
	f.StringVar(&s.CertFile, "cert-file", "", "`file` of the TLS certificate")
	f.StringVar(&s.KeyFile, "key-file", "", "`file` of the TLS key")
	f.StringVar(&s.TrustedCAFile, "trusted-ca-file", "", "`file` of the certificates that sign client certificates")
	f.BoolVar(&s.ClientCertAuth, "client-cert-auth", false, "demand a client certificate; a client without a token is the user that its certificate names")
	f.StringVar(&s.ClientCRLFile, "client-crl-file", "", "`file` of a list of revoked client certificates, DER or PEM")
	f.Var(oneOf(&s.TLSMinVersion, TLS12, TLS13), "tls-min-version", "oldest version of TLS that clients may speak; members speak 1.3")
	f.Var(oneOf(&s.TLSMaxVersion, TLS13, TLS12), "tls-max-version", "newest version of TLS that clients may speak; members speak 1.3")
	f.StringSliceVar(&s.CipherSuites, "cipher-suites", nil, "`names` of the cipher suites of TLS 1.2, for clients (default: Go's choice)")
	f.StringVar(&s.AuthToken, "auth-token", auth.DefaultToken, "tokens that users get: simple, or jwt with its options, as in jwt,pub-key=`file`,priv-key=file,sign-method=RS512,ttl=10m")
	f.IntVar(&s.AuthTokenTTL, "auth-token-ttl", 300, "a simple token that is not used is valid for this many `seconds`")
	f.IntVar(&s.BcryptCost, "bcrypt-cost", auth.DefaultBcryptCost, "strength of the hashes of users' passwords, 4 to 31; each step doubles the time that checking one takes. Stored hashes above 14 are refused unless this is as high")
	f.StringSliceVar(&s.CORS, "cors", nil, "origins that browsers may call from, * for all (etcd's default is *)")
	f.StringSliceVar(&s.HostWhitelist, "host-whitelist", []string{"*"}, "names and addresses that HTTP clients without TLS may call, * for all; the console takes names beside * only, and its own")

	f.StringSliceVar(&s.ListenPeerURLs, "listen-peer-urls", []string{"https://127.0.0.1:2380"}, "`URLs` to serve the other members on, with mutual TLS also if they begin with http; empty for none (not used with SQLite, which has one server)")
	f.StringSliceVar(&s.InitialAdvertisePeerURLs, "initial-advertise-peer-urls", nil, "`URLs` that the other members reach this one at (default: those listened on)")
	f.StringVar(&s.PeerCertFile, "peer-cert-file", "", "`file` of the TLS certificate shown to the other members (default: one that is made at start)")
	f.StringVar(&s.PeerKeyFile, "peer-key-file", "", "`file` of its TLS key")
	f.StringVar(&s.PeerTrustedCAFile, "peer-trusted-ca-file", "", "`file` of the certificates that must have signed those of the other members")
	f.BoolVar(&s.PeerClientCertAuth, "peer-client-cert-auth", false, "for command lines of etcd: members always demand each other's certificates")
	f.StringVar(&s.PeerCRLFile, "peer-crl-file", "", "`file` of a list of revoked certificates of members, DER or PEM")
	f.StringSliceVar(&s.PeerCertAllowedCN, "peer-cert-allowed-cn", nil, "common `names`, one of which the certificates of other members must have")
	f.StringSliceVar(&s.PeerCertAllowedHostname, "peer-cert-allowed-hostname", nil, "host `names` or addresses, for one of which the certificates of other members must be valid")
	f.BoolVar(&s.PeerInsecure, "peer-insecure", false, "accept other members that have not published a certificate, and plain connections: only while members of an older version are replaced")
	f.DurationVar(&s.LeaderElectLeaseDuration, "leader-elect-lease-duration", election.DefaultLeaseDuration, "a leader that is silent, but not known to be gone, is replaced after this long; whole seconds")
	f.DurationVar(&s.LeaderElectRenewDeadline, "leader-elect-renew-deadline", election.DefaultRenewDeadline, "bound on renewing the lock row, below the lease duration")
	f.DurationVar(&s.LeaderElectRetryPeriod, "leader-elect-retry-period", election.DefaultRetryPeriod, "the leader renews the lock row, and others look at it, this often")

	f.IntVar(&s.MaxRequestBytes, "max-request-bytes", 1536*1024, "largest request that writes, in bytes")
	f.IntVar(&s.MaxTxnOps, "max-txn-ops", 128, "most operations of a transaction")
	f.Uint32Var(&s.MaxConcurrentStreams, "max-concurrent-streams", math.MaxUint32, "most calls at a time on one connection")
	f.Var(oneOf(&s.ReadConsistency, ReadLease, ReadDatabase), "read-consistency", "how the leader makes sure that nothing newer exists before a linearizable read: by a lease of 100ms that each commit renews (lease), or by a question to the database for every read (database)")
	f.DurationVar(&s.RequestTimeout, "request-timeout", 7*time.Second, "bound on a request")
	f.DurationVar(&s.StopTimeout, "stop-timeout", 5*time.Second, "what requests under way get when the server stops")
	f.DurationVar(&s.GRPCKeepAliveMinTime, "grpc-keepalive-min-time", 5*time.Second, "clients that ping more often than this are disconnected")
	f.DurationVar(&s.GRPCKeepAliveInterval, "grpc-keepalive-interval", 2*time.Hour, "idle clients are pinged this often (0: never)")
	f.DurationVar(&s.GRPCKeepAliveTimeout, "grpc-keepalive-timeout", 20*time.Second, "clients that do not answer a ping for this long are disconnected (0: no pings)")
	f.StringVar(&s.SnapshotDir, "snapshot-dir", "", "`directory` for the temporary files of snapshots, which take twice their size (default: DATA-DIR)")
	f.BoolVar(&s.EnableGRPCGateway, "enable-grpc-gateway", true, "serve JSON over HTTP under /v3/")

	f.Int64Var(&s.QuotaBackendBytes, "quota-backend-bytes", 0, "refuse writes when the table is larger than this (0: no quota; in etcd 0 is 2 GiB)")
	f.Var(oneOf(&s.AutoCompactionMode, CompactPeriodic, CompactRevision), "auto-compaction-mode", "what auto-compaction-retention counts: periodic (time) or revision")
	f.StringVar(&s.AutoCompactionRetention, "auto-compaction-retention", "0", "history to keep: periodic: hours, or a `length` like 5m; revision: a number of revisions (0: all)")
	f.Var((*ttlPolicies)(&s.TTLPolicies), "ttl-policy", "keys under PREFIX that are put without a lease live for DURATION, as in /events/=1h; may be repeated")

	f.DurationVar(&s.WatchProgressNotifyInterval, "watch-progress-notify-interval", 10*time.Minute, "idle watchers that ask for it are told the revision this often")
	f.IntVar(&s.WatchRingEvents, "watch-ring-events", 1<<16, "recent events kept in memory for watchers")
	f.IntVar(&s.WatchRingBytes, "watch-ring-bytes", 64<<20, "bytes of recent events kept in memory for watchers")
	f.IntVar(&s.WatchQueueEvents, "watch-queue-events", 1024, "events queued for one watcher before it reads from the database")
	f.IntVar(&s.WatchQueueBytes, "watch-queue-bytes", 4<<20, "bytes of events queued for one watcher before it reads from the database")

	f.IntVar(&s.BatchMaxRequests, "batch-max-requests", 256, "most requests of one commit")
	f.IntVar(&s.BatchMaxRows, "batch-max-rows", 1024, "most rows of one commit, unless one request has more")
	f.IntVar(&s.BatchMaxBytes, "batch-max-bytes", 4<<20, "most bytes of one commit, unless one request has more")
	f.IntVar(&s.QueueLength, "queue-length", 8192, "requests that may wait for a commit; more are refused")
	f.DurationVar(&s.CommitTimeout, "commit-timeout", 10*time.Second, "after this long the outcome of a commit counts as unknown and is looked up")
	f.IntVar(&s.IndexCacheEntries, "index-cache-entries", 200_000, "keys whose metadata is kept in memory")
	f.IntVar(&s.ObjectCacheBytes, "object-cache-bytes", 64<<20, "bytes of current keys and values kept in memory, for gets and lists (0: none)")
	f.Int64Var(&s.MemoryLimitBytes, "memory-limit-bytes", 0, "stay below this many bytes of resident memory, by collecting garbage more often (0: no limit)")

	f.Var(oneOf(&s.LogLevel, "info", "debug", "warn", "error"), "log-level", "least severe messages that are logged")
	f.Var(oneOf(&s.LogFormat, FormatJSON, FormatConsole, FormatText), "log-format", "form of the log; console and text are the same")
	f.StringSliceVar(&s.LogOutputs, "log-outputs", []string{"stderr"}, "stderr (or default), stdout, or `files` to append to")
	f.StringVar(&s.AuditLog, "audit-log", audit.ToLog, "`where` to record changes of users, roles, members and the like, logins that failed and requests that were denied: log, off, or a file to append to, which is opened anew when it was renamed")
	f.DurationVar(&s.WarnUnaryDuration, "warning-unary-request-duration", 300*time.Millisecond, "requests that take longer are logged")
	f.Var(oneOf(&s.Metrics, MetricsBasic, MetricsExtensive), "metrics", "extensive adds a latency histogram of every RPC")
	f.BoolVar(&s.EnablePprof, "enable-pprof", false, "serve profiles under /debug/pprof/")
	f.BoolVar(&s.Console, "console", false, "serve a console for browsers under /ui/ on the client URLs: overview, keys and their history, users and roles")
	f.BoolVar(&s.ConsoleWrite, "console-write", false, "the console may change keys, users and roles while authentication is off")

	f.BoolVar(&s.EnableDistributedTracing, "enable-distributed-tracing", false, "follow requests with OpenTelemetry")
	f.StringVar(&s.DistributedTracingAddress, "distributed-tracing-address", "localhost:4317", "`host:port` of the collector that takes spans, OTLP over gRPC, not encrypted")
	f.StringVar(&s.DistributedTracingServiceName, "distributed-tracing-service-name", "sqlbrain", "service name in spans, the same for all members")
	f.StringVar(&s.DistributedTracingInstanceID, "distributed-tracing-instance-id", "", "service instance in spans, another for each member (default: --name)")
	f.IntVar(&s.DistributedTracingSamplingRate, "distributed-tracing-sampling-rate", 0, "how many of a million requests are followed whose client does not say that they are")
}
