package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dialects.
const (
	DialectMySQL  = "mysql" // MySQL, MariaDB and TiDB
	DialectSQLite = "sqlite"
)

// URL names a database. It prints without its password in every format verb.
type URL struct {
	// Dialect is DialectMySQL or DialectSQLite.
	Dialect string
	// Path is SQLite's file, absolute or relative to the working directory.
	Path string
	// Address is host:port of the server, or of several, with commas between them.
	// User and Database are what to use there.
	Address, User, Database string
	// Socket is the path of the server's Unix socket, used in place of Address; "" for none.
	Socket string

	// Scheme is what the URL begins with, in lower case: such as "tidb".
	Scheme string
	// Timeout bounds dialling, and each read and write of a connection.
	Timeout time.Duration
	// TLS says how connections are encrypted.
	TLS TLS

	password string
	// passwords, if set, returns the password of each new connection.
	passwords func(context.Context) (string, error)
}

// TLS holds the tls parameters of a URL. The files are read when the database is
// opened.
type TLS struct {
	Mode          string // TLSOff, TLSVerify, TLSSkipVerify or TLSPreferred
	CA, Cert, Key string // paths of PEM files, "" for none
	// ServerKey is the path of a PEM file with the server's RSA key, which protects the password
	// without TLS; "" for none.
	ServerKey string
}

// Modes of TLS.
const (
	TLSOff        = ""
	TLSVerify     = "true"
	TLSSkipVerify = "skip-verify"
	TLSPreferred  = "preferred"
)

const (
	defaultTimeout = 30 * time.Second
)

// ErrURL is wrapped by the errors of ParseURL. None of them contains a password.
var ErrURL = errors.New("sqlstore: bad database URL")

// schemes are what URLs may begin with. Without a port, the URL names a file.
var schemes = map[string]struct{ dialect, port string }{
	"sqlite":  {dialect: DialectSQLite},
	"mysql":   {DialectMySQL, "3306"},
	"mariadb": {DialectMySQL, "3306"},
	"tidb":    {DialectMySQL, "4000"},
}

var schemePattern = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*):`)

// ParseURL reads the URL of a database:
//
//	sqlite:///absolute/path
//	sqlite://relative/path
//	mysql://user:password@host:port/database?parameters
//	mysql://user:password@host:port,host:port,host:port/database?parameters
//
// mariadb:// and tidb:// mean mysql://; the port defaults to 3306, TiDB's to
// 4000. Characters with a meaning in URLs are percent-encoded. Of several hosts, which
// replicate to each other, the one that accepts writes is used: see mysql/failover.
// Parameters:
//
//	tls=true|skip-verify|preferred|false
//	            encrypt and verify the server; encrypt without verifying; encrypt
//	            if the server can; do not (the default, unless a file is named)
//	tls-ca=     PEM file of the authorities to verify the server with
//	tls-cert=, tls-key=  PEM files of the client's certificate
//	server-public-key=  PEM file of the server's RSA key, which encrypts the
//	            password without TLS
//	socket=     path of the server's Unix socket, in place of the one host
//	timeout=    bound on dialling and on each read and write of the connection,
//	            as a Go duration; 30s
//
// Any other scheme or parameter is an error.
func ParseURL(raw string) (*URL, error) {
	scheme := schemePattern.FindStringSubmatch(raw)
	if scheme == nil {
		return nil, badURL("it does not begin with sqlite:// or mysql://%s", driverForm(raw))
	}
	name := strings.ToLower(scheme[1])
	if _, known := schemes[name]; !known {
		if !strings.HasPrefix(raw[len(name):], "://") {
			// Perhaps user:password@tcp(…)/…: the user is not for printing either.
			return nil, badURL("it does not begin with sqlite:// or mysql://%s", driverForm(raw))
		}
		return nil, badURL("unknown scheme %q: use sqlite, mysql, mariadb or tidb", name)
	}
	rest, ok := strings.CutPrefix(raw[len(name):], "://")
	if !ok {
		return nil, badURL("%s: is not followed by //", name)
	}
	if schemes[name].port == "" {
		return parseFile(name, rest)
	}
	return parseServer(name, raw)
}

func badURL(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrURL, fmt.Sprintf(format, args...))
}

func parseFile(scheme, rest string) (*URL, error) {
	path, query, _ := strings.Cut(rest, "?")
	path, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return nil, badURL("the path has a broken percent-encoding")
	case path == "" || strings.HasSuffix(path, "/"):
		return nil, badURL("sqlite:// needs the path of a file")
	case path == ":memory:":
		return nil, badURL("SQLite in memory is not supported: it would not outlive its connection")
	case strings.ContainsAny(path, "\x00"):
		return nil, badURL("the path contains a zero byte")
	}
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, badURL("the parameters cannot be parsed")
	}
	for name := range params {
		return nil, badURL("unknown parameter %q: sqlite:// has none", name)
	}
	return &URL{Dialect: schemes[scheme].dialect, Scheme: scheme, Path: path}, nil
}

// driverForm returns what to change in a DSN of Go's MySQL driver, such as kine's --endpoint; "" if raw has no such
// form.
func driverForm(raw string) string {
	switch {
	case strings.Contains(raw, "@tcp("):
		return ": write host:port without tcp(), as in mysql://user:password@host:3306/database"
	case strings.Contains(raw, "@unix("):
		return ": name the socket by a parameter, without unix(), as in mysql://user:password@localhost/database?socket=/path"
	}
	return ""
}

func parseServer(scheme, raw string) (*URL, error) {
	raw, others := splitHosts(raw)
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's error would quote parts of the URL, the password for one.
		return nil, badURL("it cannot be parsed%s",
			cmp.Or(driverForm(raw), "; characters such as / : @ # % in user or password must be percent-encoded"))
	}
	if strings.Contains(u.Host, "(") {
		return nil, badURL("the host cannot be parsed%s", driverForm(raw))
	}
	d := &URL{Dialect: schemes[scheme].dialect, Scheme: scheme, Timeout: defaultTimeout}
	d.User = u.User.Username()
	d.password, _ = u.User.Password()
	d.Database = strings.TrimPrefix(u.Path, "/")
	var problem error
	d.Address, problem = address(scheme, u)
	for _, other := range others {
		o, err := url.Parse(scheme + "://" + other)
		if err != nil || o.User != nil {
			return nil, badURL("one of the hosts cannot be parsed; they are written host:port,host:port")
		}
		next, err := address(scheme, o)
		if slices.Contains(d.Addresses(), next) {
			err = badURL("the host %s is named twice", next)
		}
		problem = cmp.Or(problem, err)
		d.Address += hostSeparator + next
	}
	switch {
	case u.User == nil && d.Address != "":
		// First: what looks like hosts may be a password with a / that was not encoded.
		return nil, badURL("the user is missing")
	case problem != nil:
		return nil, problem
	case d.User == "":
		return nil, badURL("the user is missing")
	case d.Database == "" || strings.Contains(d.Database, "/"):
		return nil, badURL("the path must name one database, as in %s://user:password@host/database", scheme)
	case u.Fragment != "":
		return nil, badURL("it has a fragment; a # in user or password must be written %%23")
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, badURL("the parameters cannot be parsed")
	}
	for name, values := range params {
		if len(values) != 1 {
			return nil, badURL("parameter %q is given more than once", name)
		}
		if err := d.set(name, values[0]); err != nil {
			return nil, err
		}
	}
	if d.Socket != "" && len(others) > 0 {
		return nil, badURL("parameter socket leads to one server, but several hosts are named")
	}
	if err := d.checkTLS(params.Has("tls")); err != nil {
		return nil, err
	}
	return d, nil
}

const hostSeparator = ","

// splitHosts returns raw with the first host only, and the other hosts.
func splitHosts(raw string) (first string, others []string) {
	scheme, rest, _ := strings.Cut(raw, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	begin := strings.LastIndex(rest[:end], "@") + 1
	hosts := strings.Split(rest[begin:end], hostSeparator)
	return scheme + "://" + rest[:begin] + hosts[0] + rest[end:], hosts[1:]
}

// address returns u's host and port.
func address(scheme string, u *url.URL) (string, error) {
	port := u.Port()
	if port == "" {
		port = schemes[scheme].port
	}
	n, err := strconv.Atoi(port)
	switch {
	case u.Hostname() == "":
		return "", badURL("the host is missing")
	case err != nil || n < 1 || n > 65535:
		return "", badURL("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// Addresses are the servers' host:port, in the order of the URL.
func (d *URL) Addresses() []string { return strings.Split(d.Address, hostSeparator) }

// InOrder returns the URL with its hosts in an order that does not depend on how they
// were written.
func (d *URL) InOrder() *URL {
	hosts := d.Addresses()
	slices.Sort(hosts)
	ordered := *d
	ordered.Address = strings.Join(hosts, hostSeparator)
	return &ordered
}

// HasPassword reports whether the URL holds a password.
func (d *URL) HasPassword() bool { return d.password != "" }

func (d *URL) set(name, value string) error {
	switch name {
	case "tls":
		switch value {
		case TLSVerify, TLSSkipVerify, TLSPreferred:
			d.TLS.Mode = value
		case "false":
		default:
			return badURL("parameter tls is %q: use true, skip-verify, preferred or false", value)
		}
	case "tls-ca":
		d.TLS.CA = value
	case "tls-cert":
		d.TLS.Cert = value
	case "tls-key":
		d.TLS.Key = value
	case "server-public-key":
		d.TLS.ServerKey = value
	case "socket":
		if !strings.HasPrefix(value, "/") {
			return badURL("parameter socket is %q: it must be an absolute path", value)
		}
		d.Socket = value
	case "timeout":
		t, err := time.ParseDuration(value)
		if err != nil || t <= 0 {
			return badURL("parameter timeout is %q: use a positive duration such as 30s", value)
		}
		d.Timeout = t
	case "charset", "collation":
		return badURL("parameter %q is not supported: keys and values are binary, and other character sets make "+
			"escaping unsafe", name)
	default:
		return badURL("unknown parameter %q: use tls, tls-ca, tls-cert, tls-key, server-public-key, socket or timeout", name)
	}
	return nil
}

// checkTLS refuses combinations in which a file would be ignored.
func (d *URL) checkTLS(given bool) error {
	t := &d.TLS
	files := t.CA != "" || t.Cert != "" || t.Key != ""
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return badURL("tls-cert and tls-key go together")
	case files && t.Mode == "" && given:
		return badURL("tls=false contradicts the files named for TLS")
	case t.CA != "" && (t.Mode == TLSSkipVerify || t.Mode == TLSPreferred):
		return badURL("tls=%s does not verify the server: tls-ca would be ignored", t.Mode)
	case files && t.Mode == "":
		t.Mode = TLSVerify
	}
	if t.ServerKey != "" && t.Mode != "" {
		return badURL("server-public-key protects the password without TLS; inside TLS only tls=true or tls-ca does")
	}
	return nil
}

// Encrypted reports whether every connection is encrypted, whether or not the server is
// verified. With tls=preferred the server chooses.
func (d *URL) Encrypted() bool { return d.TLS.Mode == TLSVerify || d.TLS.Mode == TLSSkipVerify }

// SetPasswords makes every new connection ask f for its password, in place of the
// one in the URL: for passwords that change, and tokens that expire. f is called
// by several goroutines at once. Its errors are those of a connection that could
// not be made, so that they must not quote a password.
func (d *URL) SetPasswords(f func(context.Context) (string, error)) { d.passwords = f }

// Password returns the password for a new connection: the one in the URL, or that of
// SetPasswords, whose error it returns.
func (d *URL) Password(ctx context.Context) (string, error) {
	if d.passwords != nil {
		return d.passwords(ctx)
	}
	return d.password, nil
}

// String returns the URL with xxxxx in place of the password.
func (d URL) String() string {
	if d.Dialect == DialectSQLite {
		return "sqlite://" + (&url.URL{Path: d.Path}).EscapedPath()
	}
	u := url.URL{Scheme: d.Scheme, Host: d.Address, Path: "/" + d.Database, User: url.User(d.User)}
	if d.password != "" {
		u.User = url.UserPassword(d.User, "xxxxx")
	}
	q := url.Values{}
	for name, value := range map[string]string{"tls": d.TLS.Mode, "tls-ca": d.TLS.CA, "tls-cert": d.TLS.Cert,
		"tls-key": d.TLS.Key, "server-public-key": d.TLS.ServerKey, "socket": d.Socket} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if d.Timeout != defaultTimeout && d.Timeout != 0 {
		q.Set("timeout", d.Timeout.String())
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Redacted is String, under the name that url.URL uses.
func (d URL) Redacted() string { return d.String() }

// GoString is String: %#v must not show the password either.
func (d URL) GoString() string { return d.String() }

// LogValue implements slog.LogValuer.
func (d URL) LogValue() slog.Value { return slog.StringValue(d.String()) }
