package config

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Config is the values of all settings. The fields are named after the flags.
type Config struct {
	ConfigFile string

	Name                  string
	ForceJoin             bool
	DataDir               string
	Datastore             string // may hold a password: never print it, see Redact
	DatastorePasswordFile string
	// DatastorePasswordCommand may hold a password too.
	DatastorePasswordCommand string
	DatastoreMaxOpenConns    int
	Migrate                  string // MigrateAuto or MigrateVerify

	ListenClientURLs    []string
	AdvertiseClientURLs []string
	ListenMetricsURLs   []string
	CertFile            string
	KeyFile             string
	TrustedCAFile       string
	ClientCertAuth      bool
	ClientCRLFile       string
	CORS                []string
	HostWhitelist       []string

	AuthToken    string
	AuthTokenTTL int // seconds; 0: the default
	BcryptCost   int

	ListenPeerURLs           []string
	InitialAdvertisePeerURLs []string
	PeerCertFile             string
	PeerKeyFile              string
	PeerTrustedCAFile        string
	PeerClientCertAuth       bool
	PeerCRLFile              string
	PeerCertAllowedCN        []string
	PeerCertAllowedHostname  []string
	PeerInsecure             bool

	TLSMinVersion string // TLS12 or TLS13
	TLSMaxVersion string // TLS12 or TLS13
	CipherSuites  []string

	LeaderElectLeaseDuration time.Duration
	LeaderElectRenewDeadline time.Duration
	LeaderElectRetryPeriod   time.Duration

	MaxRequestBytes       int
	MaxTxnOps             int
	MaxConcurrentStreams  uint32
	ReadConsistency       string // ReadLease or ReadDatabase
	RequestTimeout        time.Duration
	StopTimeout           time.Duration
	GRPCKeepAliveMinTime  time.Duration
	GRPCKeepAliveInterval time.Duration // 0: no pings
	GRPCKeepAliveTimeout  time.Duration // 0: no pings
	EnableGRPCGateway     bool
	SnapshotDir           string // DataDir if empty

	QuotaBackendBytes       int64
	AutoCompactionMode      string // CompactPeriodic or CompactRevision
	AutoCompactionRetention string
	TTLPolicies             []backend.TTLPolicy

	WatchProgressNotifyInterval time.Duration
	WatchRingEvents             int
	WatchRingBytes              int
	WatchQueueEvents            int
	WatchQueueBytes             int

	BatchMaxRequests  int
	BatchMaxRows      int
	BatchMaxBytes     int
	QueueLength       int
	CommitTimeout     time.Duration
	IndexCacheEntries int
	ObjectCacheBytes  int   // 0: off
	MemoryLimitBytes  int64 // 0: none

	WarnUnaryDuration time.Duration
	LogLevel          string
	LogFormat         string // FormatJSON, FormatConsole or FormatText
	LogOutputs        []string
	AuditLog          string // off, log, or a file
	Metrics           string // MetricsBasic or MetricsExtensive
	EnablePprof       bool
	Console           bool
	ConsoleWrite      bool

	EnableDistributedTracing       bool
	DistributedTracingAddress      string
	DistributedTracingServiceName  string
	DistributedTracingInstanceID   string // empty: the member's name
	DistributedTracingSamplingRate int    // of a million

	periodicRetention time.Duration
	retainedRevisions int64
}

// The words that some settings choose from.
const (
	MigrateAuto      = "auto"
	MigrateVerify    = "verify"
	ReadLease        = "lease"
	ReadDatabase     = "database"
	CompactPeriodic  = "periodic"
	CompactRevision  = "revision"
	TLS12            = "TLS1.2"
	TLS13            = "TLS1.3"
	MetricsBasic     = "basic"
	MetricsExtensive = "extensive"
	FormatJSON       = "json"
	FormatConsole    = "console"
	FormatText       = "text" // the same as console
)

// PeriodicRetention is what periodic auto compaction keeps; 0 if that is off.
func (c *Config) PeriodicRetention() time.Duration { return c.periodicRetention }

// RetainedRevisions is what auto compaction by revision keeps; 0 if that is off.
func (c *Config) RetainedRevisions() int64 { return c.retainedRevisions }

// Settings is a Config with the flags that fill it.
type Settings struct {
	Config
	flags   *pflag.FlagSet
	url     *sqlstore.URL
	command *passwordCommand  // nil if there is none
	origins map[string]string // of the values that are not defaults, by flag name
}

// New returns all settings at their defaults.
func New() *Settings {
	s := &Settings{flags: pflag.NewFlagSet("sqlbrain", pflag.ContinueOnError), origins: map[string]string{}}
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
