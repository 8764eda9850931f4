package kine

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// Without a DSN kine connects to this socket, or to this host if it is given TLS files.
	defaultSocketDSN = "root@unix(/var/run/mysqld/mysqld.sock)/"
	defaultHostDSN   = "root@tcp(127.0.0.1)/"
	defaultDatabase  = "kubernetes"
	// defaultTimeout is that of --datastore.
	defaultTimeout = 30 * time.Second
)

// tlsFiles are kine's flags for TLS to the database.
type tlsFiles struct {
	ca, cert, key string
	skipVerify    bool
}

func (t tlsFiles) given() bool { return t.ca != "" || t.cert != "" || t.key != "" }

// ownParams are parameters of kine's driver that concern how kine uses its connections.
var ownParams = []string{
	"charset", "checkConnLiveness", "clientFoundRows", "collation", "columnsWithAlias", "compress", "connectionAttributes",
	"interpolateParams", "loc", "maxAllowedPacket", "multiStatements", "parseTime", "rejectReadOnly", "strict",
	"timeTruncate",
	"allowNativePasswords", "allowCleartextPasswords",
}

var errDSN = errors.New("it cannot be parsed; it must be mysql://user:password@tcp(host:port)/database or " +
	"mysql://user:password@unix(/path)/database")

// parseMySQL reads a DSN of kine's MySQL driver, user:password@tcp(host:port)/database?parameters. Its errors quote
// nothing that may be a part of the password.
func parseMySQL(dsn string, files tlsFiles) (datastore, error) {
	if dsn == "" {
		dsn = defaultSocketDSN
		if files.given() {
			dsn = defaultHostDSN
		}
	}
	// The driver parses the part that may hold anything. It would accept parameters that mean nothing here.
	slash := strings.LastIndexByte(dsn, '/')
	database, query, _ := strings.Cut(dsn[slash+1:], "?")
	cfg, err := mysql.ParseDSN(dsn[:slash+1] + database)
	if slash < 0 || err != nil || cfg.User == "" {
		return datastore{}, errDSN // the driver's error may quote the password
	}
	u := url.URL{Scheme: "mysql", User: url.User(cfg.User), Host: cfg.Addr}
	if cfg.Passwd != "" {
		u.User = url.UserPassword(cfg.User, cfg.Passwd)
	}
	if cfg.DBName == "" {
		cfg.DBName = defaultDatabase
	}
	if strings.Contains(cfg.DBName, "/") {
		return datastore{}, errors.New("the name of the database contains a /, which is not supported")
	}
	u.Path = "/" + cfg.DBName
	params := url.Values{}
	switch cfg.Net {
	case "tcp":
		if host, _, err := net.SplitHostPort(cfg.Addr); err != nil || host == "" {
			return datastore{}, errDSN
		}
	case "unix":
		u.Host = "localhost"
		params.Set("socket", cfg.Addr)
	default:
		return datastore{}, errDSN
	}
	p := dsnParams{out: params}
	if err := p.read(query); err != nil {
		return datastore{}, err
	}
	p.setTimeout()
	if err := p.setTLS(files); err != nil {
		return datastore{}, err
	}
	u.RawQuery = params.Encode()
	return datastore{url: u.String(), notes: p.notes}, nil
}

// dsnParams are the parameters of a DSN, and what becomes of them.
type dsnParams struct {
	out      url.Values // parameters of --datastore
	tls      string     // the DSN's, "" for none
	fallback bool
	timeouts map[string]time.Duration
	notes    []string
}

func (p *dsnParams) read(query string) error {
	p.timeouts = map[string]time.Duration{}
	for param := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(param, "=")
		if !ok {
			continue // as the driver does
		}
		value, err := url.QueryUnescape(value)
		if err != nil {
			return fmt.Errorf("parameter %.40q of mysql:// has a broken percent-encoding", name)
		}
		switch {
		case name == "tls":
			p.tls = strings.ToLower(value)
		case name == "server-public-key": // sqlbrain's own
			p.out.Set(name, value)
		case name == "allowFallbackToPlaintext":
			p.fallback = value == "true" || value == "1"
		case name == "timeout", name == "readTimeout", name == "writeTimeout":
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return fmt.Errorf("parameter %s of mysql:// must be a duration such as 30s", name)
			}
			p.timeouts[name] = d
		case slices.Contains(ownParams, name):
			p.notes = append(p.notes, fmt.Sprintf("the parameter %s of --endpoint has no effect: sqlbrain configures its "+
				"connections itself", name))
		default:
			return fmt.Errorf("parameter %.40q of mysql:// is not supported: use tls, server-public-key, timeout, "+
				"readTimeout or writeTimeout; sqlbrain sets the variables of its sessions itself", name)
		}
	}
	return nil
}

// setTimeout sets the one timeout of --datastore, which bounds dialling, reads and writes. It must not be shorter than
// any of the DSN's, of which those that are missing are unbounded.
func (p *dsnParams) setTimeout() {
	longest, missing := time.Duration(0), false
	for _, name := range []string{"timeout", "readTimeout", "writeTimeout"} {
		longest = max(longest, p.timeouts[name])
		missing = missing || p.timeouts[name] == 0
	}
	if missing {
		longest = max(longest, defaultTimeout)
	}
	if longest != defaultTimeout {
		p.out.Set("timeout", longest.String())
	}
}

// setTLS sets how connections are encrypted. As in kine, files given by flags replace the DSN's tls.
func (p *dsnParams) setTLS(files tlsFiles) error {
	switch p.tls {
	case "", "false", "0", "true", "1", "skip-verify", "preferred":
	default:
		return errors.New("parameter tls of mysql:// must be true, skip-verify, preferred or false; name files by " +
			"--ca-file, --cert-file and --key-file")
	}
	mode := p.tls
	switch mode {
	case "1":
		mode = "true"
	case "0", "false":
		mode = ""
	}
	if p.fallback && mode != "" {
		if mode == "true" || files.given() {
			return errors.New("parameter allowFallbackToPlaintext of mysql:// makes the server's certificate optional: use " +
				"tls=preferred instead, without TLS files")
		}
		mode = "preferred"
	}
	if files.skipVerify && !files.given() {
		p.notes = append(p.notes, "--skip-verify has no effect without --ca-file, --cert-file or --key-file: as in kine, "+
			"only they, or tls in --endpoint, encrypt connections")
	}
	if files.given() {
		mode = "true"
		if files.skipVerify {
			mode = "skip-verify"
		}
	}
	if mode != "" {
		p.out.Set("tls", mode)
	}
	switch {
	case files.ca != "" && files.skipVerify:
		p.notes = append(p.notes, "--ca-file has no effect together with --skip-verify: the database's certificate is not "+
			"verified")
	case files.ca != "":
		p.out.Set("tls-ca", files.ca)
	}
	if (files.cert == "") != (files.key == "") {
		return errors.New("--cert-file and --key-file go together")
	}
	if files.cert != "" {
		p.out.Set("tls-cert", files.cert)
		p.out.Set("tls-key", files.key)
	}
	return nil
}
