package sqlstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/go-sql-driver/mysql"
)

// mysqlDialect speaks to MySQL 8 and later, MariaDB 10.6 and later, and TiDB.
type mysqlDialect struct {
	upserts statementTexts
	// patient dial connections whose reads have no time bound, one for each server.
	patient []driver.Connector
}

func (*mysqlDialect) name() string    { return DialectMySQL }
func (*mysqlDialect) writeConns() int { return mysqlWriteConns }

func (d *mysqlDialect) connectors(u *URL) (all []driver.Connector, err error) {
	for _, address := range u.Addresses() {
		one := *u
		one.Address = address
		cfg, err := mysqlConfig(&one)
		if err != nil {
			return nil, err
		}
		patient := cfg.Clone()
		patient.ReadTimeout = 0
		p, err := mysql.NewConnector(patient)
		if err != nil {
			return nil, fmt.Errorf("sqlstore: %s: %w", u, err)
		}
		c, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, fmt.Errorf("sqlstore: %s: %w", u, err)
		}
		all, d.patient = append(all, c), append(d.patient, p)
	}
	return all, nil
}

func mysqlConfig(u *URL) (*mysql.Config, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.DBName = u.User, u.password, u.Database
	cfg.Net, cfg.Addr = "tcp", u.Address
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = u.timeout, u.timeout, u.timeout
	cfg.Logger = &mysql.NopLogger{} // its errors are returned as well
	// A statement that is not kept prepared costs one round trip, not three.
	cfg.InterpolateParams = true
	// The rules of affected rows that commits are checked by.
	cfg.ClientFoundRows = false
	cfg.MaxAllowedPacket = 0 // ask the server
	// Tokens are asked for in clear text, which only a server that is known may.
	cfg.AllowCleartextPasswords = u.tls.mode == tlsVerify
	if u.passwords != nil {
		err := cfg.Apply(mysql.BeforeConnect(func(ctx context.Context, c *mysql.Config) (err error) {
			c.Passwd, err = u.passwords(ctx)
			return err
		}))
		if err != nil {
			return nil, fmt.Errorf("sqlstore: %s: %w", u, err)
		}
	}
	if u.tls.mode == "" {
		return cfg, nil
	}
	host, _, err := net.SplitHostPort(u.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrURL, u, err)
	}
	cfg.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if u.tls.mode != tlsVerify {
		cfg.TLS.InsecureSkipVerify = true
		cfg.AllowFallbackToPlaintext = u.tls.mode == tlsPreferred
	}
	if u.tls.ca != "" {
		pem, err := os.ReadFile(u.tls.ca)
		if err != nil {
			return nil, fmt.Errorf("sqlstore: tls-ca: %w", err)
		}
		cfg.TLS.RootCAs = x509.NewCertPool()
		if !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("sqlstore: tls-ca: %s holds no certificate in PEM form", u.tls.ca)
		}
	}
	if u.tls.cert != "" {
		pair, err := tls.LoadX509KeyPair(u.tls.cert, u.tls.key)
		if err != nil {
			return nil, fmt.Errorf("sqlstore: tls-cert, tls-key: %w", err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

const (
	// sqlMode refuses what does not fit instead of cutting it, in transactional
	// tables and others.
	sqlMode = "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
	// isolation: the writer and compaction's deletes would deadlock on the gap
	// locks of the stricter level, and nothing here needs it: rows are compared
	// by the statements that change them.
	isolation = "READ COMMITTED"
)

func (*mysqlDialect) session(write bool) []string {
	statements := []string{
		// unique_checks off would let a secondary node of some engines skip the
		// check PutIfNotExist is made of.
		"SET SESSION sql_mode = '" + sqlMode + "', autocommit = 1, unique_checks = 1, innodb_lock_wait_timeout = 10" + tidbAssignments(tidbWrites),
		setTiDBReads,
		setReplicatedReads,
		"SET SESSION TRANSACTION ISOLATION LEVEL " + isolation,
	}
	if write {
		// With a binary log the server writes each prepared statement down as text,
		// and escapes characters of many bytes in its values one by one. There are
		// none: measured, an eighth to a quarter of the database's work on a batch.
		statements = append(statements, "SET SESSION character_set_client = binary, character_set_connection = binary")
	}
	return statements
}

func (*mysqlDialect) texts() *texts { return &mysqlTexts }

var mysqlTexts = texts{
	// A consistent snapshot needs REPEATABLE READ; SET without SESSION is for
	// the next transaction only.
	snapshot: []string{"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"},
	// A left join reads its left side first.
	list: "SELECT i.internal_key, i.object_value, v.object_value FROM object AS i LEFT JOIN object AS v" +
		" ON v.internal_key = CONCAT(" + versionMagic + ", SUBSTRING(i.internal_key, 5, LENGTH(i.internal_key) - 12), SUBSTRING(i.object_value, " + markAt + "))" +
		" WHERE i.internal_key >= ? AND i.internal_key < ? ORDER BY i.internal_key LIMIT ?",
	listKeys: "SELECT internal_key, object_value FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key LIMIT ?",
	count: "SELECT COALESCE(SUM(SUBSTRING(object_value, " + markAt + ") <= ? AND ORD(SUBSTRING(object_value, " + flagsAt + ")) & 1 = 0), 0)," +
		" COALESCE(SUM(SUBSTRING(object_value, " + markAt + ") > ?), 0) FROM object WHERE internal_key >= ? AND internal_key < ?",
	// Not a derived table: with its blobs it would be written to disk each time.
	floor:     "(SELECT ? AS n, internal_key, object_value FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key DESC LIMIT 1)",
	timestamp: "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
}

// freshStatistics makes MySQL read the statistics anew instead of a copy up to a
// day old. MariaDB, which has no copy, skips the comment.
const freshStatistics = "SET SESSION /*!80000 information_schema_stats_expiry = 0, */ autocommit = 1"

// size is InnoDB's estimate: pages of the table, and those it calls free.
func (*mysqlDialect) size(ctx context.Context, db *Database) (total, inUse int64, err error) {
	const text = "SELECT COALESCE(data_length, 0) + COALESCE(index_length, 0), COALESCE(data_free, 0)" +
		" FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'object'"
	conn, err := db.read.Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close() // only returns it to the pool
	var refused *mysql.MySQLError
	if _, err := conn.ExecContext(ctx, freshStatistics); err != nil && !(errors.As(err, &refused) && refused.Number == erUnknownSystemVariable) {
		return 0, 0, err
	}
	var free int64
	err = conn.QueryRowContext(ctx, text).Scan(&inUse, &free)
	// An empty table has a page, whatever the statistics say.
	return max(inUse+free, 1), max(inUse, 1), err
}
