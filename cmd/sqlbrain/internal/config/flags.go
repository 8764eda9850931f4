package config

import (
	"crypto/tls"
	"log/slog"
	"math"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

var (
	tls12 = option[uint16]{"TLS1.2", tls.VersionTLS12}
	tls13 = option[uint16]{"TLS1.3", tls.VersionTLS13}
)

// define names all settings. Their defaults are the values that the fields have now. Rules that
// concern several settings are in check.go.
func (s *Settings) define() {
	f := s.flags
	f.SortFlags = false

	value(f.StringVar, &s.ConfigFile, "config-file",
		"YAML `file` of settings, its keys are the names of these flags (flags and the environment, "+
			"SQLBRAIN_…, come first)")
	value(f.StringVar, &s.Node.Name, "name", "name of this member")
	value(f.BoolVar, &s.Node.ForceJoin, "force-join",
		"start although another process runs under this member's name; that one stops serving")

	value(f.StringVar, &s.Datastore, "datastore",
		"`URL` of the database: mysql://user:password@host:3306/database, with several hosts host:3306,host:3306 the one "+
			"that takes writes, or sqlite://path (default sqlite://DATA-DIR/sqlbrain.db)")
	value(f.StringVar, &s.PasswordFile, "datastore-password-file",
		"`file` that holds the database's password, instead of the URL; read again for each connection")
	value(f.StringVar, &s.PasswordCommand, "datastore-password-command",
		"shell `command` that prints the database's password, instead of the URL; run for new connections, within 10s, "+
			"what it prints serves for 10s")
	f.Var(optional(&s.PasswordFrom, word("aws"), word("google"), word("azure")), "datastore-password-from",
		"cloud whose IAM gives this workload the database's password: aws (RDS, Aurora), google (Cloud SQL) or azure; "+
			"needs tls=true in the URL")
	number(s, f.IntVar, &s.Store.MaxOpenConns, "datastore-max-open-conns", 0, 1<<16,
		"most connections to the database (0: chosen by the engine)")
	value(f.StringVar, &s.DataDir, "data-dir", "`directory` of the default database")
	f.Var(choice(&s.Migrate, option[bool]{"auto", true}, option[bool]{"verify", false}), "migrate",
		"at start, bring the schema up to date (auto) or only check it (verify)")

	s.urls(&s.Server.ListenClientURLs, "listen-client-urls",
		"`URLs` to serve clients on, gRPC and HTTP: http, https, unix or unixs")
	s.urls(&s.Server.AdvertiseClientURLs, "advertise-client-urls",
		"`URLs` that members tell clients about (default: those listened on)")
	s.urls(&s.Server.ListenMetricsURLs, "listen-metrics-urls",
		"`URLs` to serve /metrics and the health endpoints on as well")
	f.Var((*fileMode)(&s.Server.SocketMode), "socket-mode",
		"`mode` of the files of unix and unixs URLs, octal: 0600 for processes of the same user, 0660 also for "+
			"those of its group")
	value(f.StringVar, &s.Server.TLS.CertFile, "cert-file", "`file` of the TLS certificate")
	value(f.StringVar, &s.Server.TLS.KeyFile, "key-file", "`file` of the TLS key")
	value(f.StringVar, &s.Server.TLS.TrustedCAFile, "trusted-ca-file",
		"`file` of the certificates that sign client certificates")
	value(f.BoolVar, &s.Server.TLS.ClientCertAuth, "client-cert-auth",
		"demand a client certificate; a client without a token is the user that its certificate names")
	value(f.StringVar, &s.Server.TLS.CRLFile, "client-crl-file",
		"`file` of a list of revoked client certificates, DER or PEM")
	f.Var(choice(&s.Server.TLS.MinVersion, tls12, tls13), "tls-min-version",
		"oldest version of TLS that clients may speak; members speak 1.3")
	f.Var(choice(&s.Server.TLS.MaxVersion, tls13, tls12), "tls-max-version",
		"newest version of TLS that clients may speak; members speak 1.3")
	value(f.StringSliceVar, &s.cipherSuites, "cipher-suites",
		"`names` of the cipher suites of TLS 1.2, for clients (default: Go's choice)")
	value(f.StringVar, &s.Server.AuthToken, "auth-token",
		"tokens that users get: simple, or jwt with its options, as in "+
			"jwt,pub-key=`file`,priv-key=file,sign-method=RS512,ttl=10m")
	number(s, f.IntVar, &s.tokenTTL, "auth-token-ttl", 0, int(math.MaxInt64/time.Second),
		"a simple token that is not used is valid for this many `seconds`")
	number(s, f.IntVar, &s.Server.BcryptCost, "bcrypt-cost", bcrypt.MinCost, bcrypt.MaxCost,
		"strength of the hashes of users' passwords, 4 to 31; each step doubles the time that checking one takes. Stored "+
			"hashes above 14 are refused unless this is as high")
	value(f.StringSliceVar, &s.Server.CORS, "cors", "origins that browsers may call from, * for all (etcd's default is *)")
	value(f.StringSliceVar, &s.Server.HostWhitelist, "host-whitelist",
		"names and addresses that HTTP clients without TLS may call, * for all; the console takes the names other than "+
			"*, and its own")

	s.urls(&s.Server.PeerURLs, "listen-peer-urls",
		"`URLs` to serve the other members on, with mutual TLS also if they begin with http; empty for none (not used with "+
			"SQLite, which has one server)")
	s.urls(&s.Node.PeerURLs, "initial-advertise-peer-urls",
		"`URLs` that the other members reach this one at (default: those listened on)")
	value(f.StringVar, &s.Node.PeerTLS.CertFile, "peer-cert-file",
		"`file` of the TLS certificate shown to the other members (default: one that is made at start)")
	value(f.StringVar, &s.Node.PeerTLS.KeyFile, "peer-key-file", "`file` of its TLS key")
	value(f.StringVar, &s.Node.PeerTLS.TrustedCAFile, "peer-trusted-ca-file",
		"`file` of the certificates that must have signed those of the other members")
	value(f.BoolVar, &s.Node.PeerTLS.ClientCertAuth, "peer-client-cert-auth",
		"for command lines of etcd: members always demand each other's certificates")
	value(f.StringVar, &s.Node.PeerTLS.CRLFile, "peer-crl-file",
		"`file` of a list of revoked certificates of members, DER or PEM")
	value(f.StringSliceVar, &s.Node.PeerTLS.AllowedCNs, "peer-cert-allowed-cn",
		"common `names`, one of which the certificates of other members must have")
	value(f.StringSliceVar, &s.Node.PeerTLS.AllowedHostnames, "peer-cert-allowed-hostname",
		"host `names` or addresses, for one of which the certificates of other members must be valid")
	number(s, f.DurationVar, &s.Node.ElectionTimeout, "leader-answer-timeout", timing.Answer, timing.LongestAnswer,
		"how long a leader that another member does not hear may take to answer a challenge in the database, before "+
			"it is replaced")

	number(s, f.IntVar, &s.Server.MaxRequestBytes, "max-request-bytes", 1, server.MaxRequestBytes,
		"largest request that writes, in bytes")
	number(s, f.IntVar, &s.Server.MaxTxnOps, "max-txn-ops", 1, math.MaxInt32, "most operations of a transaction")
	number(s, f.Uint32Var, &s.Server.MaxConcurrentStreams, "max-concurrent-streams", 1, math.MaxUint32,
		"most calls at a time on one connection")
	f.Var(choice(&s.Replica.ConfirmReads, option[bool]{"lease", false}, option[bool]{"database", true}),
		"read-consistency", "how the leader makes sure that nothing newer exists before a linearizable read: by a lease of "+
			"100ms that each commit renews (lease), or by a question to the database for every read (database)")
	number(s, f.DurationVar, &s.Replica.RequestTimeout, "request-timeout", time.Millisecond, math.MaxInt64,
		"bound on a request")
	number(s, f.DurationVar, &s.Server.StopTimeout, "stop-timeout", time.Millisecond, math.MaxInt64,
		"time for requests under way when the server stops")
	number(s, f.DurationVar, &s.Server.KeepAliveMinTime, "grpc-keepalive-min-time", time.Millisecond, math.MaxInt64,
		"clients that ping more often than this are disconnected")
	number(s, f.DurationVar, &s.Server.KeepAliveInterval, "grpc-keepalive-interval", 0, math.MaxInt64,
		"idle clients are pinged this often (0: never)")
	number(s, f.DurationVar, &s.Server.KeepAliveTimeout, "grpc-keepalive-timeout", 0, math.MaxInt64,
		"clients that do not answer a ping for this long are disconnected (0: no pings)")
	value(f.StringVar, &s.Server.SnapshotDir, "snapshot-dir",
		"`directory` for the temporary files of snapshots, which take twice their size (default: DATA-DIR)")
	value(f.BoolVar, &s.Server.EnableGRPCGateway, "enable-grpc-gateway", "serve JSON over HTTP under /v3/")

	number(s, f.Int64Var, &s.Replica.QuotaBytes, "quota-backend-bytes", 0, math.MaxInt64,
		"refuse writes when the table is larger than this (0: no quota; in etcd 0 is 2 GiB)")
	f.Var(choice(&s.Replica.AutoCompaction.Mode, word("periodic"), word("revision")), "auto-compaction-mode",
		"unit of auto-compaction-retention: periodic (time) or revision")
	value(f.StringVar, &s.retention, "auto-compaction-retention",
		"history to keep: periodic: hours, or a `length` like 5m; revision: a number of revisions (0: all)")
	f.Var((*ttlPolicies)(&s.Replica.TTLPolicies), "ttl-policy",
		"keys under PREFIX that are put without a lease live for DURATION, as in /events/=1h; may be repeated")

	value(f.StringVar, &s.BackupTo, "backup-to",
		"`URL` of the place to which the leader writes a continuous backup, file:///DIRECTORY or "+
			"s3://BUCKET/PREFIX: sqlbrain restore --from brings back any moment. All members must see the same directory")
	number(s, f.DurationVar, &s.BackupKeep, "backup-keep", 0, math.MaxInt64,
		"how long each moment of a continuous backup can be restored, counted while it is written; older files are "+
			"removed (0: for ever)")
	number(s, f.IntVar, &s.BackupKeepBases, "backup-keep-bases", 1, math.MaxInt,
		"the newest `bases` of a continuous backup that stay, with the log since, when they are older than backup-keep")
	value(f.StringSliceVar, &s.BackupRecipients, "backup-recipient",
		"encrypt a continuous backup to these `recipients` of age, age1…, or to those in files")

	number(s, f.DurationVar, &s.Replica.Watch.ProgressInterval, "watch-progress-notify-interval", time.Millisecond,
		math.MaxInt64, "idle watchers that ask for it are told the revision this often")
	number(s, f.IntVar, &s.Replica.Watch.RingEvents, "watch-ring-events", 1, 1<<30,
		"recent events kept in memory for watchers")
	number(s, f.IntVar, &s.Replica.Watch.RingBytes, "watch-ring-bytes", 1, math.MaxInt,
		"bytes of recent events kept in memory for watchers")
	number(s, f.IntVar, &s.Replica.Watch.QueueEvents, "watch-queue-events", 1, 1<<30,
		"events queued for one watcher before it reads from the database")
	number(s, f.IntVar, &s.Replica.Watch.QueueBytes, "watch-queue-bytes", 1, math.MaxInt,
		"bytes of events queued for one watcher before it reads from the database")

	number(s, f.IntVar, &s.Replica.Write.BatchRequests, "batch-max-requests", 1, 1<<20, "most requests of one commit")
	number(s, f.IntVar, &s.Replica.Write.BatchRows, "batch-max-rows", 1, 1<<20,
		"most rows of one commit, unless one request has more")
	number(s, f.IntVar, &s.Replica.Write.BatchBytes, "batch-max-bytes", 1, 1<<30,
		"most bytes of one commit, unless one request has more")
	number(s, f.IntVar, &s.Replica.Write.QueueLength, "queue-length", 1, 1<<24,
		"requests that may wait for a commit; more are refused")
	number(s, f.DurationVar, &s.Replica.Write.CommitTimeout, "commit-timeout", time.Millisecond, math.MaxInt64,
		"after this long the outcome of a commit counts as unknown and is looked up")
	number(s, f.IntVar, &s.Replica.Write.IndexCache, "index-cache-entries", 1, 1<<30,
		"keys whose metadata is kept in memory")
	number(s, f.IntVar, &s.Replica.RecordCache, "object-cache-bytes", 0, math.MaxInt,
		"bytes of current keys and values kept in memory, for gets and lists (0: none)")
	number(s, f.Int64Var, &s.MemoryLimit, "memory-limit-bytes", 0, math.MaxInt64,
		"resident memory to stay within, in bytes: caches whose sizes are not given are sized for it, and garbage is "+
			"collected more often near it (0: what the container may use; if that is not limited, caches for 112 MiB)")

	f.Var(choice(&s.LogLevel, option[slog.Level]{"info", slog.LevelInfo}, option[slog.Level]{"debug", slog.LevelDebug},
		option[slog.Level]{"warn", slog.LevelWarn}, option[slog.Level]{"error", slog.LevelError}), "log-level",
		"least severe messages that are logged")
	f.Var(choice(&s.LogJSON, option[bool]{"json", true}, option[bool]{"console", false}, option[bool]{"text", false}),
		"log-format", "form of the log; console and text are the same")
	value(f.StringSliceVar, &s.LogOutputs, "log-outputs", "stderr (or default), stdout, or `files` to append to")
	value(f.StringVar, &s.Audit.To, "audit-log",
		"`where` to record changes of users, roles, members and the like, logins that failed and requests that were denied: log, off, or a file to append to, which is reopened after it was renamed")
	number(s, f.DurationVar, &s.Server.SlowRequest, "warning-unary-request-duration", time.Millisecond, math.MaxInt64,
		"requests that take longer are logged")
	f.Var(choice(&s.Server.ExtensiveMetrics, option[bool]{"basic", false}, option[bool]{"extensive", true}), "metrics",
		"extensive adds a latency histogram of every RPC")
	value(f.BoolVar, &s.Server.EnablePprof, "enable-pprof", "serve profiles under /debug/pprof/")
	value(f.BoolVar, &s.Server.Console, "console",
		"serve a console for browsers under /ui/ on the client URLs: overview, keys and their history, users and roles")
	value(f.BoolVar, &s.Server.ConsoleWrite, "console-write",
		"the console may change keys, users and roles while authentication is off")

	value(f.BoolVar, &s.EnableTracing, "enable-distributed-tracing", "follow requests with OpenTelemetry")
	value(f.StringVar, &s.Tracing.Address, "distributed-tracing-address",
		"`host:port` of the collector that takes spans, OTLP over gRPC, not encrypted")
	value(f.StringVar, &s.Tracing.Service, "distributed-tracing-service-name",
		"service name in spans, the same for all members")
	value(f.StringVar, &s.Tracing.Instance, "distributed-tracing-instance-id",
		"service instance in spans, another for each member (default: --name)")
	number(s, f.IntVar, &s.Tracing.SamplingRate, "distributed-tracing-sampling-rate", 0, tracing.PerMillion,
		"how many of a million requests are followed whose client does not say that they are")

	value(f.StringVar, &s.ProtocolTrace, "trace-protocol",
		"`file` to append the steps of the protocol between members and database to, for tests that validate them; at most 256 MiB, and slow")
	s.markGroups()
}

// value defines a flag that takes any value of its type; set is pflag's method for that type.
func value[T any](set func(*T, string, T, string), field *T, name, help string) {
	set(field, name, *field, help)
}

// number defines a flag whose value is least to most.
func number[T int | int64 | uint32 | time.Duration](s *Settings, set func(*T, string, T, string), field *T,
	name string, least, most T, help string) {
	set(field, name, *field, help)
	small, large := "small", "large"
	if _, ok := any(least).(time.Duration); ok {
		small, large = "short", "long"
	}
	s.bounds = append(s.bounds, func() error {
		switch {
		case *field < least:
			return s.invalid(name, "%v is too %s, at least %v is needed", *field, small, least)
		case *field > most:
			return s.invalid(name, "%v is too %s, at most %v is possible", *field, large, most)
		}
		return nil
	})
}

// urls defines a flag that takes URLs to listen on.
func (s *Settings) urls(field *[]string, name, help string) {
	s.flags.StringSliceVar(field, name, *field, help)
	s.bounds = append(s.bounds, func() error {
		for _, raw := range *field {
			if err := transport.CheckURL(raw); err != nil {
				return s.invalid(name, "%q %w", raw, err)
			}
		}
		return nil
	})
}
