package kine

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags are the flags of kine. Their zero value is not usable; see New.
type Flags struct {
	listen, endpoint, logFormat, metrics    string
	database                                tlsFiles
	serverCert, serverKey, trustedCA        string
	maxIdle, maxOpen, jitter                int
	maxLifetime, maxIdleTime, progress      time.Duration
	slowSQL, slowSQLWarning, compactTimeout time.Duration
	profiling, metricsIgnoreTLS, debug      bool
	etcdVersion, peerBind, peerAdvertise    string
	compactInterval                         time.Duration
	compactKeep, compactBatch, pollBatch    int64
	s3                                      [9]string

	set     *pflag.FlagSet
	origins map[string]string // where a flag's value comes from, if it is not the default
	unknown []string          // notes on variables that are no flag's
}

// flag is one row of the table: a flag of kine, and what it is here.
type flag struct {
	bind func(name string)
	// env are its variables, the first that is set counts.
	env []string
	// settings are those of sqlbrain that it sets, for the reference; "" has none of that kind.
	settings string
	// why says why the flag has no effect; "" for one that has.
	why  string
	name string
}

// The reasons why flags have no effect.
const (
	whyS3    = "it belongs to kine's T4 driver, which is not supported"
	whySQL   = "slow statements are not logged; requests that take long are, see SQLBRAIN_WARNING_UNARY_REQUEST_DURATION"
	whyIdle  = "idle connections are kept until their idle time is over"
	whyEtcd  = "sqlbrain reports the version of etcd with which it is compatible"
	whyPace  = "the compactor removes history in small steps, and chooses their size and pace itself"
	whyPoll  = "members get commits from the leader and do not poll the table"
	whyTimer = "only the leader compacts, so that compactions of several members cannot coincide"
)

// New returns the flags at kine's defaults.
func New() *Flags {
	f := &Flags{set: pflag.NewFlagSet("kine", pflag.ContinueOnError), origins: map[string]string{}}
	f.set.SortFlags = false
	for _, row := range f.table() {
		row.bind(row.name)
		if row.why != "" {
			f.set.Lookup(row.name).Usage += "; has no effect here: " + row.why
		}
	}
	return f
}

// Bind adds the flags to fs.
func (f *Flags) Bind(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.AddFlagSet(f.set)
}

// defines makes of a method like pflag's StringVar one whose result needs the name only.
func defines[T any](define func(field *T, name string, value T, help string)) func(*T, T, string) func(name string) {
	return func(field *T, value T, help string) func(string) {
		return func(name string) { define(field, name, value, help) }
	}
}

// table returns all flags of kine 0.16, in its order.
func (f *Flags) table() []flag {
	text, number, large := defines(f.set.StringVar), defines(f.set.IntVar), defines(f.set.Int64Var)
	boolean, duration := defines(f.set.BoolVar), defines(f.set.DurationVar)
	rows := []flag{
		{name: "listen-address", settings: "listen-client-urls",
			bind: text(&f.listen, "0.0.0.0:2379", "`address` to serve etcd clients on: host:port or unix://path")},
		{name: "endpoint", settings: "datastore",
			bind: text(&f.endpoint, "", "`URL` of the database: mysql://user:pw@tcp(host:3306)/name or sqlite://path "+
				"(default sqlite://./db/state.db)")},
		{name: "ca-file", settings: "datastore (tls-ca)",
			bind: text(&f.database.ca, "", "`file` of the certificates to verify the database with")},
		{name: "cert-file", settings: "datastore (tls-cert)",
			bind: text(&f.database.cert, "", "`file` of the certificate shown to the database")},
		{name: "key-file", settings: "datastore (tls-key)", bind: text(&f.database.key, "", "`file` of its key")},
		{name: "skip-verify", settings: "datastore (tls=skip-verify)",
			bind: boolean(&f.database.skipVerify, false, "do not verify the database's certificate")},
		{name: "log-format", settings: "log-format", bind: text(&f.logFormat, "plain", "form of the log: `plain` or json")},
		{name: "metrics-bind-address", settings: "listen-metrics-urls",
			bind: text(&f.metrics, ":8080", "`address` to serve /metrics and health checks on; 0: none")},
		{name: "server-cert-file", settings: "cert-file",
			bind: text(&f.serverCert, "", "`file` of the certificate shown to etcd clients")},
		{name: "server-key-file", settings: "key-file", bind: text(&f.serverKey, "", "`file` of its key")},
		{name: "trusted-ca-file", settings: "trusted-ca-file, client-cert-auth",
			bind: text(&f.trustedCA, "", "`file` of the certificates to verify those of clients with, which are then demanded")},
		{name: "datastore-max-idle-connections", why: whyIdle,
			bind: number(&f.maxIdle, 20, "most idle connections to the database")},
		{name: "datastore-max-open-connections", settings: "datastore-max-open-conns",
			bind: number(&f.maxOpen, 0, "most connections to the database that read (0: chosen by the engine)")},
		{name: "datastore-connection-max-lifetime", settings: "(no flag)",
			bind: duration(&f.maxLifetime, 0, "longest time that a connection to the database is used (0: 30m)")},
		{name: "datastore-connection-max-idle-time", settings: "(no flag)",
			bind: duration(&f.maxIdleTime, 2*time.Minute, "longest time that a connection to the database is idle (0: 1m)")},
		{name: "slow-sql-threshold", why: whySQL,
			bind: duration(&f.slowSQL, time.Second, "statements that take longer are logged")},
		{name: "slow-sql-warning-threshold", why: whySQL,
			bind: duration(&f.slowSQLWarning, 5*time.Second, "statements that take longer are logged as warnings")},
		{name: "metrics-enable-profiling", settings: "enable-pprof",
			bind: boolean(&f.profiling, false, "serve profiles under /debug/pprof/")},
		{name: "metrics-ignore-tls-config", settings: "listen-metrics-urls (http)",
			bind: boolean(&f.metricsIgnoreTLS, false, "serve metrics without TLS")},
		{name: "watch-progress-notify-interval", settings: "watch-progress-notify-interval",
			bind: duration(&f.progress, 5*time.Second, "idle watchers that ask for it get the revision this often")},
		{name: "emulated-etcd-version", why: whyEtcd, bind: text(&f.etcdVersion, "3.6.11", "`version` of etcd to report")},
		{name: "compact-interval", settings: "auto-compaction-retention",
			bind: duration(&f.compactInterval, defaultCompactInterval,
				"history to keep, compacted about as often (0: only clients compact)")},
		{name: "compact-interval-jitter", why: whyTimer, bind: number(&f.jitter, 0, "`percent` by which intervals vary")},
		{name: "compact-timeout", why: whyPace, bind: duration(&f.compactTimeout, 5*time.Second,
			"bound on a step of a compaction")}, {name: "compact-min-retain", settings: "(no flag)",
			bind: large(&f.compactKeep, 1000, "revisions that a compaction by --compact-interval keeps at least")},
		{name: "compact-batch-size", why: whyPace, bind: large(&f.compactBatch, 1000, "revisions of a step of a compaction")},
		{name: "poll-batch-size", why: whyPoll, bind: large(&f.pollBatch, 500, "revisions to poll at a time")},
		{name: "peer-bind-address", settings: "listen-peer-urls",
			bind: text(&f.peerBind, "", "`host:port` to serve the other members on (default: the address from which the "+
				"database is reached, a free port)")},
		{name: "peer-advertise-address", settings: "initial-advertise-peer-urls",
			bind: text(&f.peerAdvertise, "", "`host:port` at which the other members reach this one (default: what is "+
				"listened on)")},
	}
	for i, s3 := range []struct{ name, env string }{
		{"s3-bucket", ""}, {"s3-folder", ""}, {"s3-endpoint", ""}, {"s3-region", "AWS_REGION AWS_DEFAULT_REGION"},
		{"s3-access-key", "AWS_ACCESS_KEY_ID"}, {"s3-secret-key", "AWS_SECRET_ACCESS_KEY"},
		{"s3-session-token", "AWS_SESSION_TOKEN"},
		{"s3-profile", "AWS_PROFILE"}, {"s3-ca-bundle", "AWS_CA_BUNDLE"},
	} {
		rows = append(rows, flag{name: s3.name, env: strings.Fields(s3.env), why: whyS3, bind: text(&f.s3[i], "", "of T4")})
	}
	rows = append(rows, flag{name: "debug", settings: "log-level=debug", bind: boolean(&f.debug, false, "log details")})
	for i := range rows {
		if len(rows[i].env) == 0 {
			rows[i].env = []string{"KINE_" + strings.ToUpper(strings.ReplaceAll(rows[i].name, "-", "_"))}
		}
	}
	return rows
}

// Load completes the flags, after the command line was parsed, from the environment (KEY=value pairs). An empty
// variable counts as not set.
func (f *Flags) Load(environ []string) error {
	env := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	if env["KINE_SCHEMA_MIGRATION"] != "" {
		f.unknown = append(f.unknown, "KINE_SCHEMA_MIGRATION has no effect: it concerns kine's table")
	}
	for _, row := range f.table() {
		given := f.set.Lookup(row.name)
		if given.Changed {
			f.origins[row.name] = "--" + row.name
			continue
		}
		for _, name := range row.env {
			// AWS' variables are set for many programs, and have no effect.
			if env[name] == "" || !strings.HasPrefix(name, "KINE_") {
				continue
			}
			if err := given.Value.Set(env[name]); err != nil {
				return fmt.Errorf("%s: invalid value: must be a %s", name, given.Value.Type())
			}
			f.origins[row.name] = name
		}
	}
	return nil
}

// Arguments returns the arguments of a command line of kine with two dashes in front of each name of a flag. kine also
// takes one.
func (f *Flags) Arguments(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && len(name) > 1 && f.set.Lookup(name) != nil {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}
