package mysql

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// connectors returns a connector to each server of u, and another one whose reads
// have no time bound.
func connectors(u *sqlstore.URL) (bounded, patient []driver.Connector, err error) {
	for _, address := range u.Addresses() {
		one := *u
		one.Address = address
		cfg, err := configOf(&one)
		if err != nil {
			return nil, nil, err
		}
		unbounded := cfg.Clone()
		unbounded.ReadTimeout = 0
		p, err := newConnector(&one, unbounded)
		if err != nil {
			return nil, nil, err
		}
		b, err := newConnector(&one, cfg)
		if err != nil {
			return nil, nil, err
		}
		bounded, patient = append(bounded, b), append(patient, p)
	}
	return bounded, patient, nil
}

// connector connects to one server.
type connector struct {
	url           *sqlstore.URL
	network, addr string
	dial          func(ctx context.Context, network, addr string) (net.Conn, error)
	known         driver.Connector // to a server that TLS verifies, or on this machine
	unknown       driver.Connector // to others; nil if TLS verifies all
	tls           *tls.Config      // of the connections to others
}

// attempt is what the driver connects with.
type attempt struct {
	conn     net.Conn
	password string
}

type attemptKey struct{}

func newConnector(u *sqlstore.URL, cfg *mysql.Config) (*connector, error) {
	c := &connector{url: u, network: cfg.Net, addr: cfg.Addr, dial: (&net.Dialer{Timeout: u.Timeout}).DialContext,
		tls: cfg.TLS}
	cfg = cfg.Clone()
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return ctx.Value(attemptKey{}).(attempt).conn, nil
	}
	err := cfg.Apply(mysql.BeforeConnect(func(ctx context.Context, to *mysql.Config) error {
		to.Passwd = ctx.Value(attemptKey{}).(attempt).password
		return nil
	}))
	if err == nil {
		c.known, err = mysql.NewConnector(cfg)
	}
	if err == nil && u.TLS.Mode != sqlstore.TLSVerify {
		cfg.TLS = nil // see login
		c.unknown, err = mysql.NewConnector(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("mysql: %s: %w", u, err)
	}
	return c, nil
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	password, err := c.url.Password(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx, c.network, c.addr)
	if err != nil {
		return nil, err
	}
	if c.unknown == nil || isLocal(conn) {
		return c.known.Connect(context.WithValue(ctx, attemptKey{}, attempt{conn, password}))
	}
	l := &login{
		Conn: conn, tcp: conn, tls: c.tls, optional: c.url.TLS.Mode == sqlstore.TLSPreferred,
		keyed: c.url.TLS.ServerKey != "", timeout: c.url.Timeout,
	}
	made, err := c.unknown.Connect(context.WithValue(ctx, attemptKey{}, attempt{l, password}))
	if err != nil && l.err != nil && ctx.Err() == nil {
		err = l.err
	}
	return made, err
}

// Driver implements driver.Connector.
func (*connector) Driver() driver.Driver { return &mysql.MySQLDriver{} }

// isLocal reports whether a connection does not leave this machine.
func isLocal(conn net.Conn) bool {
	switch a := conn.RemoteAddr().(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

// configOf returns what the driver needs to know to connect to u, which names one server.
func configOf(u *sqlstore.URL) (*mysql.Config, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.DBName = u.User, u.Database
	cfg.Net, cfg.Addr = "tcp", u.Address
	if u.Socket != "" {
		cfg.Net, cfg.Addr = "unix", u.Socket
	}
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = u.Timeout, u.Timeout, u.Timeout
	cfg.Logger = &mysql.NopLogger{} // its errors are returned as well
	// A statement that is not kept prepared costs one round trip, not three.
	cfg.InterpolateParams = true
	// Commits are checked by the number of affected rows.
	cfg.ClientFoundRows = false
	cfg.MaxAllowedPacket = 0 // ask the server
	// Servers request tokens in clear text. Only a verified server may.
	cfg.AllowCleartextPasswords = u.TLS.Mode == sqlstore.TLSVerify
	if u.TLS.ServerKey != "" {
		if err := setServerKey(cfg, u.TLS.ServerKey); err != nil {
			return nil, fmt.Errorf("mysql: server-public-key: %w", err)
		}
	}
	if u.TLS.Mode == sqlstore.TLSOff {
		return cfg, nil
	}
	host, _, err := net.SplitHostPort(u.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", sqlstore.ErrURL, u, err)
	}
	cfg.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if u.TLS.Mode != sqlstore.TLSVerify {
		cfg.TLS.InsecureSkipVerify = true
		cfg.AllowFallbackToPlaintext = u.TLS.Mode == sqlstore.TLSPreferred
	}
	if u.TLS.CA != "" {
		authorities, err := os.ReadFile(u.TLS.CA)
		if err != nil {
			return nil, fmt.Errorf("mysql: tls-ca: %w", err)
		}
		cfg.TLS.RootCAs = x509.NewCertPool()
		if !cfg.TLS.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("mysql: tls-ca: %s holds no certificate in PEM form", u.TLS.CA)
		}
	}
	if u.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(u.TLS.Cert, u.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("mysql: tls-cert, tls-key: %w", err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// setServerKey sets the RSA key with which the driver encrypts a password that the server asks for.
func setServerKey(cfg *mysql.Config, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return fmt.Errorf("%s holds no key in PEM form", path)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return fmt.Errorf("%s holds no RSA key", path)
	}
	cfg.ServerPubKey = fmt.Sprintf("%x", sha256.Sum256(block.Bytes))
	mysql.RegisterServerPubKey(cfg.ServerPubKey, key) // a key has one name
	return nil
}

const (
	// sqlMode refuses values that do not fit instead of truncating them, in all tables.
	sqlMode = "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
	// isolation: at the stricter level, the writer and the deletes of compaction would
	// deadlock on gap locks. It is not needed: the statements that change rows compare
	// them.
	isolation = "READ COMMITTED"
	// setIsolation sets the variable of that level, which has two names.
	setIsolation = "SET SESSION autocommit = 1 /*!80000 , transaction_isolation = 'READ-COMMITTED' */ /*M!100600 , " +
		"tx_isolation = 'READ-COMMITTED' */"
)

// sessionSettings are set by every session, because the server's own values may suit other applications only. Check
// verifies them.
var sessionSettings = [][2]string{
	// The driver writes values into the text of statements and escapes them byte by byte. That is unsafe if a quote or a
	// backslash can be the second byte of a character, as in gbk.
	//
	// With a binary log the server logs each prepared statement as text, and escapes multi-byte characters in its values
	// one by one. Binary values have none. Measured, this saves an eighth to a quarter of the database's work on a batch.
	{"character_set_client", "binary"},
	{"character_set_connection", "binary"},
	// COMMIT begins no other transaction, in which a statement that should commit by itself would stay.
	{"completion_type", "NO_CHAIN"},
	{"sql_select_limit", "18446744073709551615"}, // no answer is cut off
	// MariaDB would answer from a temporary table, whose rows are not in the order asked for.
	{"sql_buffer_result", "OFF"},
}

// assignments continues a SET statement with settings.
func assignments(settings [][2]string, quote string) string {
	var b strings.Builder
	for _, s := range settings {
		b.WriteString(", " + s[0] + " = " + quote + s[1] + quote)
	}
	return b.String()
}

const (
	// idleWriter is how long the server keeps a connection for writing on which nothing happens. The
	// transaction of a process that is frozen, or whose host is gone, ends no sooner, and it may hold the
	// lock of the fence row, without which no other member can lead. The server's default is eight hours.
	// It should not end one that the pool may use.
	idleWriter = sqlstore.WriterIdle + 5*time.Second
	// idleTransaction is idleWriter within a transaction, which MariaDB and TiDB distinguish.
	idleTransaction = 5 * time.Second
)

// setIdle may be refused.
var setIdle = fmt.Sprintf("SET SESSION wait_timeout = %d /*M!100600 , idle_transaction_timeout = %d */",
	idleWriter/time.Second, idleTransaction/time.Second)

// setTiDBIdle may be refused: TiDB has the variable since 7.6.
var setTiDBIdle = "SET SESSION autocommit = 1" + tidbAssignments([][2]string{
	{"tidb_idle_transaction_timeout", strconv.Itoa(int(idleTransaction / time.Second))},
})

// sessionStatements returns the statements that every new connection begins with, and one that has the effect of the
// first of them, as many as joined.
func sessionStatements(write bool) (statements []string, together string, joined int) {
	statements = []string{
		// unique_checks off would let a secondary node of some engines skip the
		// check PutIfNotExist is made of.
		"SET SESSION sql_mode = '" + sqlMode + "', autocommit = 1, unique_checks = 1, innodb_lock_wait_timeout = 10" +
			assignments(sessionSettings, "") + tidbAssignments(tidbWrites),
		setTiDBReads,
	}
	if write {
		statements = append(statements, setIdle, setTiDBIdle)
	}
	all := []string{setIsolation}
	for _, s := range statements {
		all = append(all, strings.TrimPrefix(s, "SET SESSION "))
	}
	// MySQL refuses the setting of replicated reads, so it is not one of those that are joined.
	return append(statements, "SET SESSION TRANSACTION ISOLATION LEVEL "+isolation, setReplicatedReads),
		strings.Join(all, ", "), len(statements) + 1
}
