package config

// etcdFlags are the flags of etcd that sqlbrain does not have, by what to do instead. A
// test of integration compares them with etcd's own list.
var etcdFlags = byFlag(map[string][]string{
	"members find each other in the database; leave it out": {
		"initial-cluster", "initial-cluster-state", "initial-cluster-token", "discovery", "discovery-token",
		"discovery-endpoints", "discovery-dial-timeout", "discovery-request-timeout", "discovery-keepalive-time",
		"discovery-keepalive-timeout", "discovery-insecure-transport", "discovery-insecure-skip-tls-verify",
		"discovery-cert", "discovery-key", "discovery-cacert", "discovery-user", "discovery-password",
		"discovery-fallback", "discovery-proxy", "discovery-srv", "discovery-srv-name",
	},
	"sqlbrain has no raft; --leader-answer-timeout is how long a silent leader is waited for": {
		"heartbeat-interval", "election-timeout", "initial-election-tick-advance", "pre-vote",
	},
	"sqlbrain has no raft; leave it out": {
		"raft-read-timeout", "raft-write-timeout", "snapshot-count", "snapshot-catchup-entries", "v2-deprecation",
	},
	"there is no quorum: every member that reaches the database can lead; leave it out": {
		"force-new-cluster", "strict-reconfig-check",
	},
	"learners are not implemented; leave it out":  {"max-learners"},
	"downgrade is not implemented; leave it out":  {"downgrade-check-time"},
	"sqlbrain has no feature gates; leave it out": {"feature-gates"},
	"the database keeps the data; leave it out": {
		"wal-dir", "max-snapshots", "max-wals", "memory-mlock", "backend-bbolt-freelist-type", "backend-batch-interval",
		"backend-batch-limit", "bootstrap-defrag-threshold-megabytes",
	},
	"how durable commits are is a setting of the database, see `sqlbrain doctor`": {"unsafe-no-fsync"},
	"members share one table, so there are no copies to compare; leave it out": {
		"corrupt-check-time", "compact-hash-check-time",
	},
	"the compactor chooses its pace itself; leave it out": {
		"compaction-batch-limit", "compaction-sleep-interval",
	},
	"gRPC and HTTP share --listen-client-urls": {"listen-client-http-urls"},
	"the JSON gateway needs no certificate: it does not use the network; leave it out": {
		"client-cert-file", "client-key-file",
	},
	"certificates of clients are not restricted by host name; use users and roles": {"client-cert-allowed-hostname"},
	"make a certificate, and name it with --cert-file and --key-file":              {"auto-tls"},
	"members make their own certificates without it; leave it out":                 {"peer-auto-tls", "self-signed-cert-validity"},
	"members show --peer-cert-file, also when they connect":                        {"peer-client-cert-file", "peer-client-key-file"},
	"members are known by the fingerprint of their certificate; leave it out":      {"peer-skip-client-san-verification"},
	"sockets are opened with the system's defaults; leave it out":                  {"socket-reuse-port", "socket-reuse-address"},
	"--log-format and --log-outputs configure the log; leave it out":               {"logger"},
	"sqlbrain does not rotate its log: write it to stderr, and let the service manager keep it": {
		"enable-log-rotation", "log-rotation-config-json",
	},
	"--warning-unary-request-duration covers it": {"warning-apply-duration"},
})

func byFlag(reasons map[string][]string) map[string]string {
	flags := make(map[string]string)
	for reason, names := range reasons {
		for _, name := range names {
			flags[name] = reason
		}
	}
	return flags
}
