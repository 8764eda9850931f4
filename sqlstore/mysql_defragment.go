package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// defragment rebuilds the table in place. Reads and commits go on meanwhile,
// but for a moment at its beginning and its end; it needs room for a second
// copy, and runs as long as the server takes. TiDB gives space back by itself.
func (d *mysqlDialect) defragment(ctx context.Context, db *Database) (err error) {
	var version string
	if err := db.read.GetContext(ctx, &version, "SELECT VERSION()"); err != nil {
		return err
	}
	if strings.Contains(version, "TiDB") {
		return nil
	}
	// A connection of its own, whose reads may last.
	one := sql.OpenDB(&sessionConnector{hosts: newHosts(db.url, d.patient), statements: d.session(true), mayRefuse: d.mayRefuse, primary: db.primary})
	defer func() { err = errors.Join(err, one.Close()) }()
	one.SetMaxOpenConns(1)
	// It answers in rows; errors are among them.
	var failed []string
	err = query(ctx, one, "OPTIMIZE TABLE object", nil, func(r *sql.Rows) (bool, error) {
		var table, op, kind, text string
		err := r.Scan(&table, &op, &kind, &text)
		if strings.EqualFold(kind, "error") {
			failed = append(failed, text)
		}
		return true, err
	})
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("OPTIMIZE TABLE: %s", strings.Join(failed, "; "))
	}
	return err
}
