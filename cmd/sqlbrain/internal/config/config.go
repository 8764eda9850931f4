package config

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/tlsutil"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/cluster/node"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Config is the configuration of the process: its own, and those of its components. Flags fill
// the fields; what a flag cannot express (stores, loggers, metrics) is left to the caller.
type Config struct {
	ConfigFile string

	DataDir         string
	Datastore       string // may hold a password: never print it, see Redact
	PasswordFile    string
	PasswordCommand string // may hold a password too
	PasswordFrom    string // one of cloudtoken.Providers
	Migrate         bool   // bring the schema up to date; else only check it

	LogLevel   slog.Level
	LogJSON    bool
	LogOutputs []string

	BackupTo         string   // a URL that backup.OpenPlace takes; empty: none
	BackupRecipients []string // see backup.Recipients
	BackupKeep       time.Duration
	BackupKeepBases  int

	EnableTracing bool
	ProtocolTrace string // file; empty: none
	MemoryLimit   int64  // bytes; 0: none

	Store   sqlstore.Options
	Replica replica.Config
	Node    node.Config // its Replica is not used: Replica is
	Server  server.Config
	Audit   audit.Config
	Tracing tracing.Config
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		DataDir:    "sqlbrain.data",
		BackupKeep: 7 * 24 * time.Hour, BackupKeepBases: 1,
		LogOutputs: []string{"stderr"},
		Replica:    replica.DefaultConfig(),
		Node:       node.DefaultConfig(),
		Server:     server.DefaultConfig(),
		Audit:      audit.Config{To: audit.ToLog},
		Tracing:    tracing.DefaultConfig(),
	}
}

// Settings is a Config with the flags that fill it.
type Settings struct {
	Config
	flags   *pflag.FlagSet
	bounds  []func() error // each judges the value of one flag
	url     *sqlstore.URL
	asked   *asked            // gives the password; nil if the URL or a file does
	origins map[string]string // of the values that are not defaults, by flag name
	ignored []string          // variables of the environment that look like settings

	// These flags fill a Config by way of finish.
	cipherSuites []string
	retention    string
	tokenTTL     int // seconds
}

// New returns all settings at their defaults.
func New() *Settings {
	s := &Settings{Config: DefaultConfig(), flags: pflag.NewFlagSet("sqlbrain", pflag.ContinueOnError),
		origins: map[string]string{}}
	s.retention, s.tokenTTL = "0", int(s.Replica.TokenTTL/time.Second)
	s.define()
	return s
}

// Bind adds flags of the settings to fs: those named, or all.
func (s *Settings) Bind(fs *pflag.FlagSet, names ...string) {
	fs.SortFlags = false // keep what belongs together together
	if len(names) == 0 {
		fs.AddFlagSet(s.flags)
		return
	}
	for _, name := range append(names, "config-file") {
		fs.AddFlag(s.flags.Lookup(name))
	}
}

// finish fills in the fields that several flags decide, and those that components share.
func (s *Settings) finish() error {
	ttl := time.Duration(s.tokenTTL) * time.Second
	if ttl == 0 {
		ttl = DefaultConfig().Replica.TokenTTL // as in etcd
	}
	s.Replica.TokenTTL, s.Server.AuthTokenTTL = ttl, ttl
	s.Replica.Name, s.Server.Name = s.Node.Name, s.Node.Name
	s.Server.RequestTimeout = s.Replica.RequestTimeout
	if s.Server.SnapshotDir == "" {
		s.Server.SnapshotDir = s.DataDir
	}
	if s.Tracing.Instance == "" {
		s.Tracing.Instance = s.Node.Name
	}
	s.Server.TLS.CipherSuites = nil
	for _, name := range s.cipherSuites {
		id, ok := tlsutil.GetCipherSuite(name)
		if !ok {
			return s.invalid("cipher-suites", "%q is no cipher suite", name)
		}
		s.Server.TLS.CipherSuites = append(s.Server.TLS.CipherSuites, id)
	}
	return s.readRetention()
}

// readRetention reads the retention as etcd does.
func (s *Settings) readRetention() error {
	s.Replica.AutoCompaction.Retention, s.Replica.AutoCompaction.Revisions = 0, 0
	const name = "auto-compaction-retention"
	n, err := strconv.ParseInt(s.retention, 10, 64)
	switch byRevision := s.Replica.AutoCompaction.Mode == "revision"; {
	case err == nil && n < 0:
		return s.invalid(name, "%d is negative", n)
	case byRevision && err != nil:
		return s.invalid(name, "%q is not a number of revisions", s.retention)
	case byRevision:
		s.Replica.AutoCompaction.Revisions = n
		return nil
	case err == nil && n > int64(math.MaxInt64/time.Hour):
		return s.invalid(name, "%d hours are too many", n)
	case err == nil:
		s.Replica.AutoCompaction.Retention = time.Duration(n) * time.Hour
		return nil
	}
	d, err := time.ParseDuration(s.retention)
	if err != nil || d < 0 {
		return s.invalid(name, "%q is neither a number of hours nor a duration like 5m", s.retention)
	}
	s.Replica.AutoCompaction.Retention = d
	return nil
}

// invalid words the error of a value that cannot be used.
func (s *Settings) invalid(name, format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{s.Origin(name)}, args...)...)
}
