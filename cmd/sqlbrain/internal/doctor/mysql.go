package doctor

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/coder"
	engine "github.com/sqlbrain/sqlbrain/sqlstore/mysql"
)

// Server errors with their own advice.
const (
	errDBAccessDenied = 1044
	errAccessDenied   = 1045
	errBadDB          = 1049
	errTableAccess    = 1142
	errNoSuchTable    = 1146
	errTooManyConns   = 1040
	errReadOnly       = 1290
)

func serverError(err error) uint16 {
	if me, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return me.Number
	}
	return 0
}

// Advice returns what to do about an error of connecting to a server or of using the database
// there, "" if that is not known.
func Advice(err error) string {
	switch serverError(err) {
	case errAccessDenied:
		return "check user and password of the datastore's URL, and from which hosts the user may come"
	case errDBAccessDenied:
		return "grant the user rights on the database"
	case errBadDB:
		return "create the database, for instance with CREATE DATABASE `name`"
	case errTooManyConns:
		return "raise max_connections, or close other clients"
	}
	var network net.Error
	switch text := err.Error(); {
	case strings.Contains(text, "x509"), strings.Contains(text, "tls"):
		return "check the tls parameters of the datastore's URL against the server's certificate"
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), errors.Is(err, driver.ErrBadConn),
		errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, mysql.ErrMalformPkt):
		return "check host, port and network, and that a database server of MySQL's protocol runs there"
	}
	return ""
}

func (e *examination) mysql(ctx context.Context) {
	var version string
	if !e.ask(ctx, "version", "SELECT VERSION()", &version) {
		return
	}
	vars, err := e.shown(ctx, "SHOW SESSION VARIABLES")
	if err != nil {
		e.broken("variables", err)
		return
	}
	if idle := ""; e.ask(ctx, "timeouts", "SELECT @@GLOBAL.wait_timeout", &idle) {
		vars["wait_timeout"] = idle // connections for writing, such as this one, set their own
	}
	status, err := e.shown(ctx, "SHOW GLOBAL STATUS")
	if err != nil {
		e.broken("status", err)
		return
	}
	s := &server{examination: e, version: version, vars: vars, status: status}
	// Answered by ProxySQL itself, if it is spelt so.
	e.ask(ctx, "version", "SELECT @@version_comment LIMIT 1", &s.comment)
	if s.Address != "" {
		if s.greeting, err = greet(ctx, s.Address); err != nil {
			e.broken("route", err)
		}
	}
	members, membersErr := s.readGroup(ctx)
	s.checkVersion()
	s.checkTLS(ctx)
	s.checkSchemaAndRights(ctx)
	s.checkWritable()
	s.checkStrict()
	s.checkPacket()
	s.checkDurability()
	s.checkReplication(members, membersErr)
	s.checkRoute(ctx)
	s.checkIsolation()
	s.checkTimeouts()
	s.checkTiDB(ctx)
	s.checkPageSize()
	s.checkClock(ctx)
	s.checkSize(ctx)
	s.checkConnections(ctx)
}

// shown returns what a SHOW statement answers, by name in lower case.
func (e *examination) shown(ctx context.Context, statement string) (values, error) {
	rows, err := e.conn.QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports it
	all := values{}
	for rows.Next() {
		var name string
		var value []byte // may be NULL
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		all[strings.ToLower(name)] = string(value)
	}
	return all, rows.Err()
}

// values are the variables or the status of a server, by name in lower case.
type values map[string]string

// number returns a value as a number; 0 if there is none.
func (v values) number(name string) int64 {
	n, err := strconv.ParseInt(v[name], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// first returns the value of the first name that exists: names changed over time.
func (v values) first(names ...string) (name, value string) {
	for _, n := range names {
		if value, ok := v[n]; ok {
			return n, value
		}
	}
	return "", ""
}

func (v values) on(name string) bool { return v[name] == "ON" || v[name] == "1" }

// server is a MySQL, MariaDB or TiDB under examination.
type server struct {
	*examination
	version  string // as it says itself
	greeting string // the listener's first packet; "" if not asked
	comment  string // its version_comment
	vars     values
	status   values
}

func (s *server) tidb() bool    { return strings.Contains(s.version, "TiDB") }
func (s *server) mariadb() bool { return strings.Contains(s.version, "MariaDB") }

func (s *server) checkVersion() {
	product, oldest := "MySQL", [2]int{8, 0}
	version := s.version
	switch {
	case s.tidb():
		product, oldest = "TiDB", [2]int{6, 5}
		// VERSION() is like 8.0.11-TiDB-v8.5.0: what TiDB imitates, then its own.
		if _, own, ok := strings.Cut(version, "TiDB-v"); ok {
			version = own
		}
	case s.mariadb():
		product, oldest = "MariaDB", [2]int{10, 6}
		version = strings.TrimPrefix(version, "5.5.5-") // put before it for old clients
	}
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || n != 2 {
		s.add("version", Warn, product+" "+version, "this version cannot be read; see that it is a supported one")
		return
	}
	if slices.Compare([]int{major, minor}, oldest[:]) < 0 {
		s.add("version", Warn, product+" "+version, fmt.Sprintf("sqlbrain is tested with %d.%d and later: upgrade",
			oldest[0], oldest[1]))
		return
	}
	s.ok("version", "%s %s", product, version)
}

func (s *server) checkTLS(ctx context.Context) {
	var name, cipher string
	if !s.ask(ctx, "tls", "SHOW SESSION STATUS LIKE 'Ssl_cipher'", &name, &cipher) {
		return
	}
	switch {
	case cipher != "":
		s.ok("tls", "encrypted with %s", cipher)
	case s.Local:
		s.ok("tls", "not encrypted, on this machine")
	default:
		s.add("tls", Warn, "the connection is not encrypted", "add tls=true to the datastore's URL")
	}
}

// createProbe is refused for lack of the right to create tables, or else because
// the table to copy does not exist. It never creates anything.
const createProbe = "CREATE TABLE sqlbrain_doctor_probe LIKE sqlbrain_doctor_no_such_table"

func (s *server) checkSchemaAndRights(ctx context.Context) {
	f := schema(ctx, s.Target)
	s.Findings = append(s.Findings, f)
	if f.Status == OK {
		s.rights(ctx)
		s.loss(ctx)
	}
	status, advice := Fail, "grant the user CREATE on the database, or run `sqlbrain migrate up` as another user"
	if f.Status == OK {
		status, advice = Warn, "a later version may need it: grant the user CREATE, or run `sqlbrain migrate up` as "+
			"another user then"
	}
	if s.tidb() {
		// TiDB looks for the table to copy before it looks at the rights.
		s.ok("create", "not checked on TiDB")
		return
	}
	_, err := s.conn.ExecContext(ctx, createProbe)
	switch serverError(err) {
	case errNoSuchTable:
		s.ok("create", "may create tables")
	case errTableAccess, errDBAccessDenied:
		s.add("create", status, "may not create tables", advice)
	case errReadOnly:
		s.add("create", Fail, err.Error(), "connect to the primary, or make the server writable")
	default:
		s.add("create", Warn, fmt.Sprintf("could not be checked: %v", err), "see whether the user may create tables")
	}
}

func (s *server) checkWritable() {
	if on := engine.ReadOnly(s.vars); len(on) > 0 {
		s.add("writable", Fail, strings.Join(on, ", ")+" is on", "connect to the primary, or make the server writable")
		return
	}
	s.ok("writable", "the server is not read-only")
}

func (s *server) checkStrict() {
	mode := s.vars["sql_mode"]
	if !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES") {
		s.add("sql_mode", Fail, "sql_mode is not strict: "+mode, "values could be cut off silently: add STRICT_TRANS_TABLES")
		return
	}
	s.ok("sql_mode", "strict")
}

// packetOverhead is what a commit adds to a request's bytes: keys twice, the log
// row, the fence row and the statement.
const packetOverhead = 64 << 10

func (s *server) checkPacket() {
	packet := s.vars.number("max_allowed_packet")
	needed := int64(s.MaxRequestBytes) + packetOverhead
	detail := fmt.Sprintf("max_allowed_packet is %s, --max-request-bytes %s", bytesText(packet),
		bytesText(int64(s.MaxRequestBytes)))
	s.expect("packet", packet >= needed, detail, Fail,
		fmt.Sprintf("set max_allowed_packet to %d or more, or lower --max-request-bytes", needed))
}

func (s *server) checkDurability() {
	if s.tidb() {
		if store := engine.TiDBConfigOf(s.vars).Store; store != "" && store != "tikv" {
			s.add("durability", Warn, "TiDB's store is "+store,
				"it is for tests: it has one copy, and does not flush commits to disk; start TiDB with --store=tikv")
			return
		}
		s.ok("durability", "TiDB commits through raft")
		return
	}
	var found, weak []string
	compare := func(name string, safe ...string) {
		if v, ok := s.vars[name]; ok {
			found = append(found, name+"="+v)
			if !slices.Contains(safe, v) {
				weak = append(weak, name+"="+safe[0])
			}
		}
	}
	compare("innodb_flush_log_at_trx_commit", engine.SafeFlushes(s.version)...)
	if engine.BinlogFiles(s.vars) {
		compare("sync_binlog", "1")
	}
	// Off, or only looked at, a page that was half written when the power failed is lost.
	compare("innodb_doublewrite", "ON", "1", "DETECT_AND_RECOVER", "fast")
	s.expect("durability", len(weak) == 0, strings.Join(found, ", "), Warn,
		"a crash can undo or spoil acknowledged writes: set "+strings.Join(weak, " and "))
	if len(weak) == 0 {
		s.checkFlushes()
	}
}

func (s *server) checkIsolation() {
	name, level := s.vars.first("transaction_isolation", "tx_isolation")
	switch level {
	case "READ-COMMITTED":
		s.ok("isolation", "%s", level)
	case "REPEATABLE-READ":
		s.ok("isolation", "%s; READ-COMMITTED waits less", level)
	default:
		s.add("isolation", Fail, fmt.Sprintf("%s is %q", name, level), "use READ-COMMITTED")
	}
}

func (s *server) checkPageSize() {
	const needed = 16 << 10
	if n := s.vars.number("innodb_page_size"); n != 0 && n < needed && !s.tidb() {
		s.add("page size", Fail, "innodb_page_size is "+bytesText(n),
			"keys of 3072 bytes need pages of 16 KiB, chosen when the server is initialised")
	}
}

// checkClock compares the clocks. Leases are counted by the nodes' clocks; the
// database's dates records and logs.
func (s *server) checkClock(ctx context.Context) {
	const tolerated = time.Second
	before := time.Now()
	var text string
	// The character set is named: the connection's own is binary, whose CHAR is padded.
	if !s.ask(ctx, "clock", "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR(40) CHARACTER SET utf8mb4)", &text) {
		return
	}
	after := time.Now()
	there, err := time.Parse("2006-01-02 15:04:05.999999", text)
	if err != nil {
		s.broken("clock", err)
		return
	}
	trip := after.Sub(before)
	offset := there.Sub(before.Add(trip / 2)).Round(time.Millisecond)
	detail := fmt.Sprintf("the database's clock differs by %s (±%s)", offset, (trip / 2).Round(10*time.Microsecond))
	s.expect("clock", offset.Abs() <= tolerated+trip/2, detail, Warn, "synchronise the clocks of both machines")
}

// checkSize says what the commits have counted: the engine's own figure is a guess that may be 40 times too small.
func (s *server) checkSize(ctx context.Context) {
	var n, rows, size int64
	if !s.ask(ctx, "size", `SELECT COUNT(*), COALESCE(MAX(TABLE_ROWS), 0), COALESCE(MAX(DATA_LENGTH + INDEX_LENGTH), 0)
		FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'object'`, &n, &rows, &size) || n == 0 {
		return
	}
	var fence, removed []byte
	err := s.conn.QueryRowContext(ctx, `SELECT (SELECT object_value FROM object WHERE internal_key = ?),
		(SELECT object_value FROM object WHERE internal_key = ?)`, coder.FenceKey(), coder.RemovedKey()).Scan(&fence, &removed)
	if err != nil {
		s.broken("size", err)
		return
	}
	counted := "not counted yet"
	if token, err := coder.DecodeFenceToken(fence); err == nil && token.Bytes > 0 {
		if less, err := coder.DecodeInt64(removed); err == nil {
			token.Bytes -= less
		}
		counted = bytesText(token.Bytes)
	}
	s.ok("size", "keys and values: %s; the engine's estimate: %s in %d rows", counted, bytesText(size), rows)
}

func (s *server) checkConnections(ctx context.Context) {
	limit := s.vars.number("max_connections")
	if user := s.vars.number("max_user_connections"); user > 0 && (limit == 0 || user < limit) {
		limit = user
	}
	used := s.status.number("threads_connected")
	if s.tidb() { // which has no such status
		if limit == 0 {
			s.ok("connections", "no limit; a node opens up to %d", s.MaxConns)
			return
		}
		// Those of other users are not shown to one who may not see them.
		if !s.ask(ctx, "connections", "SELECT COUNT(*) FROM information_schema.PROCESSLIST", &used) {
			return
		}
	}
	s.expect("connections", limit-used >= int64(s.MaxConns), fmt.Sprintf("%d in use of %d; a node opens up to %d", used,
		limit, s.MaxConns),
		Warn, "raise max_connections, or lower --datastore-max-open-conns")
}
