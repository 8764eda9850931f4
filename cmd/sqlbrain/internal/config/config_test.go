package config_test

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// load parses args as a command line and completes them.
func load(args, environ []string) (*config.Settings, error) {
	s := config.New()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	s.Bind(fs)
	if err := fs.Parse(args); err != nil {
		return s, config.FlagError(fs, err)
	}
	return s, s.Load(environ)
}

func TestDefaultsAreValid(t *testing.T) {
	s, err := load(nil, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"http://127.0.0.1:2379"}, s.Server.ListenClientURLs)
	require.Equal(t, 1572864, s.Server.MaxRequestBytes)
	require.Equal(t, 128, s.Server.MaxTxnOps)
	require.Empty(t, s.Describe())
	require.Equal(t, "sqlite://sqlbrain.data/sqlbrain.db", s.URL().String())

	s, err = load([]string{"--data-dir=/var/lib/a b%20?c"}, nil)
	require.NoError(t, err)
	require.Equal(t, "/var/lib/a b%20?c/sqlbrain.db", s.URL().Path)
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	file := writeFile(t, "name: file\nmax-txn-ops: 1\nlisten-client-urls: [http://127.0.0.1:1]\n")
	args := []string{"--config-file", file}
	env := []string{"SQLBRAIN_NAME=env", "SQLBRAIN_MAX_TXN_OPS=2"}

	s, err := load(append(args, "--name=flag"), env)
	require.NoError(t, err)
	require.Equal(t, "flag", s.Node.Name)
	require.Equal(t, 2, s.Server.MaxTxnOps)
	require.Equal(t, []string{"http://127.0.0.1:1"}, s.Server.ListenClientURLs)
	require.Equal(t, 7*time.Second, s.Replica.RequestTimeout)

	s, err = load(args, nil)
	require.NoError(t, err)
	require.Equal(t, "file", s.Node.Name)
	require.Equal(t, 1, s.Server.MaxTxnOps)

	s, err = load(nil, []string{"SQLBRAIN_CONFIG_FILE=" + file, "SQLBRAIN_NAME="})
	require.NoError(t, err)
	require.Equal(t, "file", s.Node.Name, "an empty variable counts as not set")
}

// Every flag is settable from all three sources with the same text.
func TestEverySettingCanComeFromFlagEnvironmentAndFile(t *testing.T) {
	other := map[string]string{
		"string": "x", "int": "7", "int64": "7", "uint32": "7", "bool": "true", "duration": "11s",
		"auto|verify": "verify", "lease|database": "database", "periodic|revision": "revision", "info|debug|warn|error": "debug",
		"json|console|text": "text", "mode": "0660", "basic|extensive": "extensive", "TLS1.2|TLS1.3": "TLS1.3", "TLS1.3|TLS1.2": "TLS1.2", "PREFIX=DURATION": "/a/=7s",
	}
	defaults, err := load(nil, nil)
	require.NoError(t, err)
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.New().Bind(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		value := other[f.Value.Type()]
		extra := []string{}
		switch f.Name {
		case "backup-to":
			value = "file:///backups"
		case "backup-recipient":
			value = "recipients.txt"
		case "config-file", "datastore-password-file", "datastore-password-command", "datastore-password-from", "cert-file",
			"key-file", "trusted-ca-file", "client-cert-auth", "client-crl-file",
			"peer-cert-file", "peer-key-file", "peer-trusted-ca-file", "peer-client-cert-auth", "peer-crl-file",
			"peer-cert-allowed-cn", "peer-cert-allowed-hostname":
			return // make sense together with others only, see below
		case "listen-client-urls", "advertise-client-urls", "listen-metrics-urls", "listen-peer-urls",
			"initial-advertise-peer-urls":
			value = "http://127.0.0.1:7"
		case "cors", "host-whitelist", "log-outputs":
			value = "y"
		case "memory-limit-bytes":
			value = "1000000000"
		case "cipher-suites":
			value = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
		case "datastore":
			value = "sqlite://x"
		case "enable-grpc-gateway":
			value = "false"
		case "leader-answer-timeout":
			value = "7s"
		case "auto-compaction-retention":
			value = "7"
		case "auth-token":
			value = "jwt,sign-method=HS256,priv-key=x"
		case "distributed-tracing-address":
			value = "x:1"
		}
		require.NotEmpty(t, value, f.Name+" "+f.Value.Type())
		fromFlag, err := load(append(extra, "--"+f.Name+"="+value), nil)
		require.NoError(t, err)
		fromEnv, err := load(extra, []string{config.EnvName(f.Name) + "=" + value})
		require.NoError(t, err)
		fromFile, err := load(append(extra, "--config-file", writeFile(t, f.Name+": "+value)), nil)
		require.NoError(t, err)
		fromFile.ConfigFile = ""
		require.Equal(t, fromFlag.Config, fromEnv.Config, f.Name)
		require.Equal(t, fromFlag.Config, fromFile.Config, f.Name)
		require.NotEqual(t, defaults.Config, fromFlag.Config, f.Name)
		require.Len(t, fromEnv.Describe(), 1)
	})
}

func TestTLSSettingsArePassedOn(t *testing.T) {
	s, err := load([]string{
		"--listen-client-urls=https://127.0.0.1:1", "--cert-file=a", "--key-file=b", "--trusted-ca-file=c",
		"--client-cert-auth", "--client-crl-file=d",
		"--listen-peer-urls=https://127.0.0.1:2", "--peer-cert-file=e", "--peer-key-file=f", "--peer-trusted-ca-file=g",
		"--peer-client-cert-auth", "--peer-crl-file=h",
		"--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "--peer-cert-allowed-cn=i,j",
	}, nil)
	require.NoError(t, err)
	suites := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	require.Equal(t, tlsfiles.Config{CertFile: "a", KeyFile: "b", TrustedCAFile: "c", ClientCertAuth: true, CRLFile: "d",
		CipherSuites: suites, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}, s.Server.TLS)
	require.Equal(t, tlsfiles.Config{CertFile: "e", KeyFile: "f", TrustedCAFile: "g", ClientCertAuth: true, CRLFile: "h",
		AllowedCNs: []string{"i", "j"}}, s.Node.PeerTLS)
	s, err = load([]string{"--tls-min-version=TLS1.3"}, nil)
	require.NoError(t, err)
	require.EqualValues(t, tls.VersionTLS13, s.Server.TLS.MinVersion)
	s, err = load([]string{"--tls-max-version=TLS1.2"}, nil)
	require.NoError(t, err)
	require.EqualValues(t, tls.VersionTLS12, s.Server.TLS.MaxVersion)
	require.Zero(t, s.Node.PeerTLS.MaxVersion, "versions are for clients")
	s, err = load([]string{"--peer-cert-file=e", "--peer-key-file=f", "--peer-trusted-ca-file=g",
		"--peer-cert-allowed-hostname=h"}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"h"}, s.Node.PeerTLS.AllowedHostnames)
}

func TestFilesCanHoldLists(t *testing.T) {
	s, err := load([]string{"--config-file", writeFile(t, `
listen-client-urls:
  - http://127.0.0.1:1
  - unix://a,b
ttl-policy: ["/events/=1h", "/tmp/=5m"]
cors: []
`)}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"http://127.0.0.1:1", "unix://a,b"}, s.Server.ListenClientURLs)
	require.Empty(t, s.Server.CORS)
	require.Len(t, s.Replica.TTLPolicies, 2)
	require.Equal(t, "/tmp/", string(s.Replica.TTLPolicies[1].Prefix))
	require.Equal(t, 5*time.Minute, s.Replica.TTLPolicies[1].TTL)
}

func TestTTLPolicyCanBeRepeated(t *testing.T) {
	s, err := load([]string{"--ttl-policy", "/a=b/=1h", "--ttl-policy", "/c/=90s"}, nil)
	require.NoError(t, err)
	require.Len(t, s.Replica.TTLPolicies, 2)
	require.Equal(t, "/a=b/", string(s.Replica.TTLPolicies[0].Prefix))
}

func TestFilesWithMistakesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"nam: x":                               `:1: unknown setting "nam": did you mean "name"?`,
		"\nlisten_client_url: x":               `:2: unknown setting "listen_client_url": did you mean "listen-client-urls"?`,
		"initial-cluster-token: x":             `:1: unknown setting "initial-cluster-token", which etcd has: members find each other in the database`,
		"name: a\nname: b":                     ":2: name is set in line 1 already",
		"name: [a, b]":                         ":1: name takes one value, not a list",
		"name: {a: b}":                         ":1: name: must be a value or a list of values",
		"cors: [{a: b}]":                       ":1: cors: must be a value or a list of values",
		"name:":                                ":1: name: has no value",
		"max-txn-ops: many":                    `:1: max-txn-ops: invalid value "many": not a number`,
		"request-timeout: 5":                   `:1: request-timeout: invalid value "5": must be a duration`,
		"enable-pprof: perhaps":                `:1: enable-pprof: invalid value "perhaps": must be true or false`,
		"max-txn-ops: 0":                       ":1: max-txn-ops: 0 is too small",
		"ttl-policy: /events/":                 "must be PREFIX=DURATION",
		"name: 'a":                             "config-file",
		"just text":                            "must be a list of `setting: value` lines",
		"name: a\n---\nmax-txn-ops: 7":         ":3: a second document begins here",
		"name: a\n---\nname: 'b":               "config-file",
		"config-file: other":                   `unknown setting "config-file"`,
		"max-concurrent-streams: 999999999999": "value out of range",
	} {
		_, err := load([]string{"--config-file", writeFile(t, text)}, nil)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "\n", text)
	}
	_, err := load([]string{"--config-file", "/does/not/exist.yaml"}, nil)
	require.ErrorContains(t, err, "/does/not/exist.yaml")
	for _, text := range []string{"# nothing\n", "---\nname: a\n", "name: a\n...\n", "name: a\n---\n# nothing\n"} {
		_, err = load([]string{"--config-file", writeFile(t, text)}, nil)
		require.NoError(t, err, text)
	}
}

func TestInvalidValuesAreRefusedByName(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--name=", "--name: must not be empty"},
		{"--name=n\xff", `--name: "n\xff" is not UTF-8`},
		{"--listen-client-urls=unix://s\xff", "is not UTF-8"},
		{"--advertise-client-urls=http://h\xff:2379", `--advertise-client-urls: "http://h\xff:2379" is not UTF-8`},
		{"--max-request-bytes=0", "--max-request-bytes: 0 is too small"},
		{"--max-request-bytes=2147483647", "--max-request-bytes: 2147483647 is too large"},
		{"--max-request-bytes=big", `--max-request-bytes: invalid value "big": not a number`},
		{"--max-txn-ops=-1", "--max-txn-ops"},
		{"--quota-backend-bytes=-1", "--quota-backend-bytes"},
		{"--request-timeout=0s", "--request-timeout: 0s is too short"},
		{"--request-timeout=soon", `--request-timeout: invalid value "soon": must be a duration`},
		{"--grpc-keepalive-interval=-1s", "--grpc-keepalive-interval"},
		{"--migrate=never", `--migrate: invalid value "never": must be one of auto, verify`},
		{"--log-level=fatal", "--log-level"},
		{"--log-outputs=systemd/journal", "--log-outputs"},
		{"--distributed-tracing-address=collector", "--distributed-tracing-address"},
		{"--distributed-tracing-address=http://collector:4317", "--distributed-tracing-address"},
		{"--distributed-tracing-sampling-rate=1000001", "--distributed-tracing-sampling-rate: 1000001 is too large"},
		{"--listen-client-urls=", "--listen-client-urls: at least one"},
		{"--listen-client-urls=127.0.0.1:2379", "--listen-client-urls"},
		{"--listen-client-urls=ftp://127.0.0.1:2379", "must begin with"},
		{"--listen-client-urls=http://127.0.0.1", "needs a port"},
		{"--listen-client-urls=http://127.0.0.1:99999", "--listen-client-urls"},
		{"--listen-metrics-urls=http://127.0.0.1:1/metrics", "must end after the port"},
		{"--advertise-client-urls=unix://", "needs a path"},
		{"--socket-mode=rw", "octal digits"},
		{"--socket-mode=1777", "octal digits"},
		{"--socket-mode=0", "octal digits"},
		{"--cert-file=a", "--cert-file: --key-file is needed as well"},
		{"--key-file=a", "--key-file: --cert-file is needed as well"},
		{"--cert-file=a --key-file=b", "nothing would be encrypted"},
		{"--listen-client-urls=https://127.0.0.1:1", "--cert-file and --key-file"},
		{"--client-cert-auth", "--trusted-ca-file"},
		{"--trusted-ca-file=a", "--cert-file"},
		{"--listen-peer-urls=http://0.0.0.0:2380", "--initial-advertise-peer-urls is needed"},
		{"--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls is needed"},
		{"--listen-peer-urls=http://[::]:2380", "--initial-advertise-peer-urls is needed"},
		{"--initial-advertise-peer-urls=http://0.0.0.0:2380", "--initial-advertise-peer-urls: \"http://0.0.0.0:2380\" is no address"},
		{"--initial-advertise-peer-urls=https://[::]:2380", "is no address at which other members can reach this one"},
		{"--peer-cert-allowed-cn=a", "--peer-cert-allowed-cn: --peer-trusted-ca-file is needed as well"},
		{"--peer-cert-allowed-hostname=a", "--peer-cert-allowed-hostname: --peer-trusted-ca-file is needed as well"},
		{"--peer-cert-allowed-cn=a --peer-cert-allowed-hostname=b", "only one of them can be"},
		{"--peer-cert-file=a", "--peer-cert-file: --peer-key-file is needed as well"},
		{"--listen-peer-urls= --peer-cert-file=a --peer-key-file=b --peer-client-cert-auth", "--peer-trusted-ca-file"},
		{"--memory-limit-bytes=60000000", "--memory-limit-bytes: 60000000 is too small, at least 67108864 is needed"},
		{"--memory-limit-bytes=300000000 --object-cache-bytes=268435456", "--memory-limit-bytes: 300000000 is too small, at least 335544320"},
		{"--memory-limit-bytes=-1", "--memory-limit-bytes: -1 is too small"},
		{"--client-crl-file=a", "--client-crl-file: --trusted-ca-file is needed as well"},
		{"--peer-crl-file=a", "--peer-crl-file: --peer-trusted-ca-file is needed as well"},
		{"--tls-min-version=TLS1.1", "--tls-min-version"},
		{"--tls-max-version=TLS1.1", "--tls-max-version"},
		{"--tls-min-version=TLS1.3 --tls-max-version=TLS1.2", "--tls-min-version: TLS1.3 is newer than --tls-max-version"},
		{"--cipher-suites=TLS_NONE", `--cipher-suites: "TLS_NONE" is no cipher suite`},
		{"--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 --tls-min-version=TLS1.3", "--cipher-suites: those of TLS 1.3 cannot be chosen"},
		{"--leader-answer-timeout=50ms", "--leader-answer-timeout: 50ms is too short"},
		{"--leader-answer-timeout=2562047h", "--leader-answer-timeout: 2562047h0m0s is too long, at most 1h0m0s is possible"},
		{"--auto-compaction-retention=x", "--auto-compaction-retention"},
		{"--auto-compaction-retention=-1", "--auto-compaction-retention"},
		{"--auto-compaction-retention=-1h", "--auto-compaction-retention"},
		{"--auto-compaction-retention=9999999", "too many"},
		{"--auto-compaction-mode=revision --auto-compaction-retention=10m", "not a number of revisions"},
		{"--ttl-policy=/a/=1ms", "at least 1s"},
		{"--ttl-policy=/a/=2540400h", "must be at most 2272727h"},
		{"--ttl-policy==1h", "PREFIX=DURATION"},
		{"--ttl-policy=/a/=1h,/a/=2h", "two policies for /a/"},
		{"--datastore=sqlbrain.db", "--datastore: sqlstore: bad database URL"},
		{"--datastore=sqlite://a --data-dir=b", "--data-dir: has no effect"},
		{"--data-dir=", "--data-dir"},
		{"--datastore=mysql://root@h/d --datastore-password-file=/does/not/exist", "--datastore-password-file"},
		{"--datastore=oracle://a", "unknown scheme"},
		{"--datastore=mysql://h/d --datastore-password-file=/dev/null", "the user is missing"},
		{"--datastore=sqlite://d --datastore-password-file=/dev/null", "names no user"},
		{"--datastore=sqlite://d --datastore-password-command=true", "names no user"},
		{"--datastore=mysql://u@h/d --datastore-password-command=true --datastore-password-file=/dev/null", "--datastore-password-command is given as well"},
		{"--datastore=mysql://u:p@h/d --datastore-password-command=true", "holds a password as well"},
		{"--datastore=mysql://root@h/d --datastore-password-file=/dev/null", "is empty"},
		{"--datastore=mysql://u@h/d?tls=true --datastore-password-from=oracle", "must be one of aws, google, azure"},
		{"--datastore=mysql://u@h/d?tls=true --datastore-password-from=aws", "aws: h does not name a region"},
		{"--datastore=mysql://u@h/d --datastore-password-from=azure", "needs tls=true"},
		{"--datastore=mysql://u@h/d --datastore-password-from=azure --datastore-password-command=true", "--datastore-password-command is given as well"},
		{"--unknown", "unknown flag"},
		{"--listen-client-url=x", "unknown flag: --listen-client-url: did you mean --listen-client-urls?"},
		{"--max_txn_op=1", "did you mean --max-txn-ops?"},
		{"--initial-cluster=n1=http://n1:2380", "--initial-cluster is a flag of etcd that sqlbrain does not have: members find each other in the database"},
		{"-x", "unknown shorthand flag"},
	} {
		_, err := load(strings.Fields(c.args), nil)
		require.ErrorContains(t, err, c.want, c.args)
		require.NotContains(t, err.Error(), "\n", c.args)
	}
	_, err := load(nil, []string{"SQLBRAIN_MAX_TXN_OPS=x"})
	require.ErrorContains(t, err, `SQLBRAIN_MAX_TXN_OPS: invalid value "x"`)
	_, err = load(nil, []string{"SQLBRAIN_MAX_TXN_OPS=0"})
	require.ErrorContains(t, err, "SQLBRAIN_MAX_TXN_OPS: 0 is too small")
}

func TestRetentionIsReadAsInEtcd(t *testing.T) {
	for _, c := range []struct {
		mode, retention string
		period          time.Duration
		revisions       int64
	}{
		{"periodic", "0", 0, 0},
		{"periodic", "8", 8 * time.Hour, 0},
		{"periodic", "5m", 5 * time.Minute, 0},
		{"periodic", "72h30m", 72*time.Hour + 30*time.Minute, 0},
		{"revision", "0", 0, 0},
		{"revision", "1000", 0, 1000},
	} {
		s, err := load([]string{"--auto-compaction-mode", c.mode, "--auto-compaction-retention", c.retention}, nil)
		require.NoError(t, err)
		require.Equal(t, c.period, s.Replica.AutoCompaction.Retention, c)
		require.Equal(t, c.revisions, s.Replica.AutoCompaction.Revisions, c)
	}
}

func TestPasswordFileIsReadForEachConnection(t *testing.T) {
	file := writeFile(t, "p@ss/w:rd %?#\n")
	s, err := load([]string{"--datastore=mysql://root@db:3306/k8s?tls=true", "--datastore-password-file", file}, nil)
	require.NoError(t, err)
	require.Equal(t, "mysql://root@db:3306/k8s?tls=true", s.URL().String())
	require.NotContains(t, strings.Join(s.Describe(), " "), "p@ss")

	_, err = load([]string{"--datastore=mysql://root:geheim@db/k8s", "--datastore-password-file", file}, nil)
	require.ErrorContains(t, err, "holds a password as well")
	require.NotContains(t, err.Error(), "geheim")
}

func TestPasswordsAreHidden(t *testing.T) {
	for _, raw := range []string{
		"mysql://root:geheim@db:3306/k8s",
		"mysql://root:ge/heim@geheim#geheim?geheim@db:3306/k8s",
		"mysql://:geheim@db/k8s",
		"mysql://root:it's-geheim@db/k8s",
		"mysql://o'root:geheim@db/k8s",
		"mysql://root:geheim%zz@db/k8s",
		"mysql://db/k8s?password=geheim&x=y",
		"mysql://db/k8s?x=y&client_secret=geheim",
	} {
		require.NotContains(t, config.Redact(`cannot use "`+raw+`" for this`), "geheim", raw)
		s, err := load([]string{"--datastore", raw}, nil)
		if err != nil {
			require.NotContains(t, err.Error(), "geheim")
		}
		require.NotContains(t, strings.Join(s.Describe(), " "), "geheim")
		require.NotContains(t, s.Redact(raw), "geheim")
	}
	require.Equal(t, "mysql://root@db:3306/k8s", config.Redact("mysql://root@db:3306/k8s"))
	require.Equal(t, "dial tcp 127.0.0.1:3306: refused", config.Redact("dial tcp 127.0.0.1:3306: refused"))

	s, err := load([]string{"--datastore=mysql://root:ge%20heim@db/k8s"}, nil)
	require.NoError(t, err)
	for _, form := range []string{"ge heim", "ge%20heim", "ge+heim"} {
		require.NotContains(t, s.Redact("the server said: "+form), form)
	}
}

// A variable that is likely to be a misspelt setting is refused: without --datastore, for one, a server would start
// empty.
func TestMisspeltVariablesAreRefused(t *testing.T) {
	for variable, want := range map[string]string{
		"SQLBRAIN_DATASTOR":            "SQLBRAIN_DATASTOR is set, but is not a setting: did you mean SQLBRAIN_DATASTORE?",
		"SQLBRAIN_DATASTORE_URL":       "did you mean SQLBRAIN_DATASTORE?",
		"SQLBRAIN_DATASTORE_PASSWORDS": "did you mean SQLBRAIN_DATASTORE_PASSWORD_",
		"SQLBRAIN_LISTEN_CLIENT_URL":   "did you mean SQLBRAIN_LISTEN_CLIENT_URLS?",
		"SQLBRAIN_name":                "did you mean SQLBRAIN_NAME?",
		"SQLBRAIN_MAX-TXN-OPS":         "did you mean SQLBRAIN_MAX_TXN_OPS?",
		"SQLBRAIN_CONFIGFILE":          "did you mean SQLBRAIN_CONFIG_FILE?",
		"SQLBRAIN_INITIAL_CLUSTER":     "SQLBRAIN_INITIAL_CLUSTER is set, but sqlbrain does not have this setting of etcd: members find each other in the database",
	} {
		_, err := load(nil, []string{variable + "=s3cret"})
		require.ErrorContains(t, err, want, variable)
		require.NotContains(t, err.Error(), "s3cret")
		_, err = load(nil, []string{variable + "="})
		require.NoError(t, err, "an empty variable counts as not set")
	}
}

// Other variables are named. Kubernetes sets those of Services, and they must not keep a server from starting.
func TestUnknownVariablesAreNamed(t *testing.T) {
	var others []string
	environ := []string{"PATH=x", "SQLBRAIN_NAME=a"}
	for _, name := range strings.Fields("CORS_PORT HOME METRICS_SERVICE_HOST NAME_SERVICE_HOST NAME_SERVICE_PORT PORT " +
		"PORT_2379_TCP PORT_2379_TCP_ADDR PORT_2379_TCP_PORT PORT_2379_TCP_PROTO SERVICE_HOST SERVICE_PORT " +
		"SERVICE_PORT_CLIENT VERSION") {
		others = append(others, "SQLBRAIN_"+name)
		environ = append(environ, "SQLBRAIN_"+name+"=tcp://10.0.0.1:2379")
	}
	s, err := load(nil, environ)
	require.NoError(t, err)
	require.Equal(t, others, s.IgnoredEnvironment())
	for _, name := range others {
		_, err := load(nil, []string{name + "=x"})
		require.NoError(t, err)
	}
}

// TestServiceLinksAreNotRefused: no Service whose name begins with sqlbrain keeps a server from starting, not even one
// that is named like a setting.
func TestServiceLinksAreNotRefused(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.New().Bind(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		for _, service := range []string{config.EnvName(f.Name), config.EnvName(f.Name[:len(f.Name)-1])} {
			for _, link := range []string{
				"_SERVICE_HOST", "_SERVICE_PORT", "_SERVICE_PORT_PEER", "_PORT", "_PORT_2380_TCP", "_PORT_2380_TCP_PROTO",
				"_PORT_2380_TCP_PORT", "_PORT_53_UDP_ADDR",
			} {
				s, err := load(nil, []string{service + link + "=x"})
				require.NoError(t, err)
				require.Equal(t, []string{service + link}, s.IgnoredEnvironment())
			}
		}
	})
}

// Variables of etcd are treated as its flags are: they set what sqlbrain has too, and the others are refused.
func TestVariablesOfEtcd(t *testing.T) {
	s, err := load(nil, []string{"ETCD_NAME=etcds", "ETCD_MAX_TXN_OPS=7", "ETCD_SERVICE_HOST=10.0.0.1",
		"ETCD_UNSUPPORTED_ARCH=x", "ETCDCTL_API=3"})
	require.NoError(t, err)
	require.Equal(t, "etcds", s.Node.Name)
	require.Equal(t, 7, s.Server.MaxTxnOps)
	require.Equal(t, []string{"ETCD_SERVICE_HOST", "ETCD_UNSUPPORTED_ARCH"}, s.IgnoredEnvironment())

	s, err = load(nil, []string{"SQLBRAIN_NAME=own", "ETCD_NAME=etcds"})
	require.NoError(t, err)
	require.Equal(t, "own", s.Node.Name)

	for environ, want := range map[string]string{
		"ETCD_INITIAL_CLUSTER=n1=http://n1:2380": "ETCD_INITIAL_CLUSTER is set, but sqlbrain does not have this setting of etcd: members find each other in the database; leave it out",
		"ETCD_MAX_TXN_OPS=x":                     `ETCD_MAX_TXN_OPS: invalid value "x": not a number`,
		"ETCD_LISTEN_CLIENT_URLS=127.0.0.1:2379": "ETCD_LISTEN_CLIENT_URLS: ",
	} {
		_, err := load(nil, []string{environ})
		require.ErrorContains(t, err, want)
	}
}

// An error that is about two settings names where each of them comes from.
func TestErrorsNameWhereValuesComeFrom(t *testing.T) {
	file := writeFile(t, "name: a\ndatastore: mysql://u:s3cret@h/d\n")
	for _, c := range []struct {
		args string
		env  []string
		want string
	}{
		{"--data-dir=x", []string{"SQLBRAIN_DATASTORE=sqlite://a"}, "--data-dir: has no effect together with SQLBRAIN_DATASTORE"},
		{"--datastore=sqlite://a", []string{"ETCD_DATA_DIR=x"}, "ETCD_DATA_DIR: has no effect together with --datastore"},
		{"--data-dir=x --config-file=" + file, nil, "--data-dir: has no effect together with " + file + ":2: datastore"},
		{"--config-file=" + file, []string{"SQLBRAIN_DATASTORE_PASSWORD_FILE=/dev/null"}, "SQLBRAIN_DATASTORE_PASSWORD_FILE: the URL of " + file + ":2: datastore holds a password as well"},
		{"", []string{"SQLBRAIN_DATASTORE=mysql://u:s3cret@tcp(h:3306)/d"}, "SQLBRAIN_DATASTORE: sqlstore: bad database URL: it cannot be parsed: write host:port without tcp()"},
	} {
		_, err := load(strings.Fields(c.args), c.env)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// A password that is shown anyway, as the user's or the product's name, must not
// make riddles of messages.
// TestShortPasswordIsHiddenAsAWord: in other words it hides nothing, and messages stay readable.
func TestShortPasswordIsHiddenAsAWord(t *testing.T) {
	for _, password := range []string{"p", "por", "é", "p@", "(p"} {
		s, err := load([]string{"--datastore=mysql://u:" + url.QueryEscape(password) + "@h/d"}, nil)
		require.NoError(t, err)
		const readable = "dial tcp 127.0.0.1:1: connection refused; check host, port and network, and the MySQL " +
			"protocol, café"
		require.Equal(t, readable, s.Redact(readable), password)
		for _, format := range []string{"%s", "u:%s@tcp(h)/d", "the password %q is wrong", "it ends with %s",
			"%s, %[1]s;%[1]s", "f(%s)"} {
			require.Equal(t, fmt.Sprintf(format, "xxxxx"), s.Redact(fmt.Sprintf(format, password)), password)
		}
	}
}

func TestPasswordThatEqualsANameIsHiddenInURLsOnly(t *testing.T) {
	s, err := load([]string{"--datastore=mysql://root:sqlbrain@db/k8s"}, nil)
	require.NoError(t, err)
	require.Equal(t, "mysql://root:xxxxx@db/k8s: run `sqlbrain migrate up`",
		s.Redact("mysql://root:sqlbrain@db/k8s: run `sqlbrain migrate up`"))
}
