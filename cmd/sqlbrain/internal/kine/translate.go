package kine

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

// defaultCompactInterval is the history that is kept if neither a flag nor a setting says otherwise. It is what
// kube-apiserver keeps by default. kine leaves compaction to kube-apiserver, but those of Kamaji do not compact.
const defaultCompactInterval = 5 * time.Minute

// defaultSocket is the listen address of a kine whose own is empty.
const defaultSocket = "unix://kine.sock"

// Apply makes settings of the flags: presets, which come before sqlbrain's own variables, of the flags that were given,
// and defaults of the others. It returns notes on flags that were given and have no effect. Call it after Load, and
// before that of s.
func (f *Flags) Apply(s *config.Settings) (notes []string, err error) {
	for _, row := range f.table() {
		if origin := f.origins[row.name]; origin != "" && row.why != "" {
			notes = append(notes, fmt.Sprintf("%s has no effect: %s", origin, row.why))
		}
	}
	notes = append(notes, f.unknown...)
	a := &applying{f: f, s: s, notes: notes}
	a.datastore()
	a.clients()
	a.peers()
	a.logs()
	a.compaction()
	a.duration("watch-progress-notify-interval", "watch-progress-notify-interval", f.progress)
	a.set("", "snapshot-dir", os.TempDir())
	return a.notes, a.err
}

// applying is a call of Apply. After an error it does nothing.
type applying struct {
	f     *Flags
	s     *config.Settings
	notes []string
	err   error
}

// origin returns where the value of a flag comes from; "" for its default.
func (a *applying) origin(name string) string { return a.f.origins[name] }

func (a *applying) fail(name string, err error) {
	if a.err == nil {
		a.err = fmt.Errorf("%s: %w", a.said(name), err)
	}
}

// said is how to call a flag in an error.
func (a *applying) said(name string) string {
	if origin := a.origin(name); origin != "" {
		return origin
	}
	return "--" + name
}

// set sets a setting to the value of kine's flag name, "" for none.
func (a *applying) set(name, setting, value string) {
	if a.err == nil {
		a.err = a.s.Preset(setting, a.origin(name), value)
	}
}

// duration sets a setting to that of a flag, which must be above 0.
func (a *applying) duration(name, setting string, d time.Duration) {
	if d <= 0 {
		a.fail(name, errors.New("must be above 0"))
		return
	}
	a.set(name, setting, d.String())
}

func (a *applying) datastore() {
	d, err := parseEndpoint(a.f.endpoint, a.f.database)
	if err != nil {
		a.fail("endpoint", err)
		return
	}
	a.notes = append(a.notes, d.notes...)
	a.set("endpoint", "datastore", d.url)
	if a.f.endpoint == "" && a.origin("ca-file")+a.origin("cert-file")+a.origin("key-file")+a.origin("skip-verify") != "" {
		a.notes = append(a.notes, "the flags for TLS to the database have no effect on SQLite")
	}
	if a.origin("datastore-max-open-connections") != "" {
		a.set("datastore-max-open-connections", "datastore-max-open-conns", fmt.Sprint(max(a.f.maxOpen, 0)))
	}
	a.s.Store.MaxLifetime = max(a.f.maxLifetime, 0)
	a.s.Store.MaxIdleTime = max(a.f.maxIdleTime, 0)
}

// clients sets where etcd clients, and those of metrics, are served.
func (a *applying) clients() {
	f := a.f
	secure := f.serverCert != "" && f.serverKey != ""
	switch {
	case f.serverCert != "" && !secure:
		a.fail("server-cert-file", errors.New("--server-key-file is needed as well"))
	case f.serverKey != "" && !secure:
		a.fail("server-key-file", errors.New("--server-cert-file is needed as well"))
	case f.trustedCA != "" && !secure:
		a.fail("trusted-ca-file", errors.New("--server-cert-file and --server-key-file are needed as well"))
	case secure:
		a.set("server-cert-file", "cert-file", f.serverCert)
		a.set("server-key-file", "key-file", f.serverKey)
	}
	if f.trustedCA != "" {
		a.set("trusted-ca-file", "trusted-ca-file", f.trustedCA)
		a.set("trusted-ca-file", "client-cert-auth", "true")
	}
	raw, err := listenURL(cmp.Or(f.listen, defaultSocket), secure)
	if err != nil {
		a.fail("listen-address", err)
		return
	}
	a.set("listen-address", "listen-client-urls", raw)
	if f.profiling {
		a.set("metrics-enable-profiling", "enable-pprof", "true")
	}
	if f.metrics == "0" {
		return
	}
	raw, err = listenURL(cmp.Or(f.metrics, ":8080"), secure && !f.metricsIgnoreTLS)
	if err == nil && strings.HasPrefix(raw, "unix") {
		err = errors.New("must be host:port, or 0 for none")
	}
	if err != nil {
		a.fail("metrics-bind-address", err)
		return
	}
	a.set("metrics-bind-address", "listen-metrics-urls", raw)
}

// listenURL returns the URL for an address of kine, [scheme://]host:port or unix://path. As in kine, every scheme but
// unix means TCP.
func listenURL(address string, secure bool) (string, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		scheme, rest = "", address
	}
	if scheme == "unix" {
		if rest == "" {
			return "", errors.New("unix:// needs a path")
		}
		if strings.ContainsAny(rest, `%?#,"`) {
			return "", errors.New(
				"the path of the socket contains one of the characters % ? # , and \", which are not supported")
		}
		if secure {
			return "unixs://" + rest, nil
		}
		return "unix://" + rest, nil
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return "", errors.New("must be host:port or unix://path")
	}
	if host == "" {
		host = "0.0.0.0"
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}
	if secure {
		u.Scheme = "https"
	}
	return u.String(), nil
}

// peers sets where the other members are served, and the member's name. Without flags, PeerListener finds an address.
func (a *applying) peers() {
	bind, err := listenURL(a.f.peerBind, true)
	if err != nil && a.f.peerBind != "" {
		a.fail("peer-bind-address", err)
	}
	advertise, err := listenURL(a.f.peerAdvertise, true)
	if err != nil && a.f.peerAdvertise != "" {
		a.fail("peer-advertise-address", err)
	}
	host, _, _ := net.SplitHostPort(a.f.peerBind)
	switch ip := net.ParseIP(host); {
	case a.f.peerBind == "" && a.f.peerAdvertise != "":
		a.fail("peer-advertise-address", errors.New("--peer-bind-address is needed as well"))
	case a.f.peerBind != "" && a.f.peerAdvertise == "" && (host == "" || ip != nil && ip.IsUnspecified()):
		a.fail("peer-bind-address", errors.New("it is every address of this host: name one, or set "+
			"--peer-advertise-address as well"))
	}
	if a.f.peerBind != "" {
		a.set("peer-bind-address", "listen-peer-urls", bind)
	}
	if a.f.peerAdvertise != "" {
		a.set("peer-advertise-address", "initial-advertise-peer-urls", advertise)
	}
	if host, err = os.Hostname(); err != nil && a.err == nil {
		a.err = err
	}
	// Several processes of a host differ in their addresses. A process that is started again has the same name.
	a.set("", "name", host+" "+a.f.listen)
}

func (a *applying) logs() {
	switch a.f.logFormat {
	case "plain":
		a.set("log-format", "log-format", "console")
	case "json":
		a.set("log-format", "log-format", "json")
	default:
		a.fail("log-format", errors.New("must be plain or json"))
	}
	if a.f.debug {
		a.set("debug", "log-level", "debug")
	}
}

// compaction has the leader compact as kine does: to the revision of an interval ago, unless fewer than so many
// revisions would be left.
func (a *applying) compaction() {
	a.set("compact-interval", "auto-compaction-retention", max(a.f.compactInterval, 0).String())
	if a.f.compactKeep < 0 {
		a.fail("compact-min-retain", errors.New("must not be negative"))
	}
	a.s.Replica.AutoCompaction.Keep = a.f.compactKeep
}
