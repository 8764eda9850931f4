package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// unknownDatabase is ER_BAD_DB_ERROR.
const unknownDatabase = 1049

// The texts are constants: the server puts the name into the statement.
const (
	composeCreate = "SET @sqlbrain_create = CONCAT('CREATE DATABASE IF NOT EXISTS `', REPLACE(?, '`', '``'), '`')"
	prepareCreate = "PREPARE sqlbrain_create FROM @sqlbrain_create"
	executeCreate = "EXECUTE sqlbrain_create"
)

// CreateDatabase creates the database that u names if it does not exist, and reports whether it did. u must name one
// server. If the database exists, the user needs no right to create it.
func CreateDatabase(ctx context.Context, u *sqlstore.URL) (created bool, err error) {
	cfg, err := configOf(u)
	if err != nil {
		return false, err
	}
	missing, err := databaseMissing(ctx, u, cfg)
	if err != nil || !missing {
		return false, err
	}
	cfg.DBName = ""
	return true, onConnection(ctx, u, cfg, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, composeCreate, u.Database)
		if err == nil {
			_, err = conn.ExecContext(ctx, prepareCreate)
		}
		if err == nil {
			_, err = conn.ExecContext(ctx, executeCreate)
		}
		if err != nil {
			return fmt.Errorf("create database %s: %w", u.Database, err)
		}
		return nil
	})
}

func databaseMissing(ctx context.Context, u *sqlstore.URL, cfg *mysql.Config) (bool, error) {
	err := onConnection(ctx, u, cfg, func(*sql.Conn) error { return nil })
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == unknownDatabase {
		return true, nil
	}
	return false, err
}

// onConnection runs f on a separate connection.
func onConnection(ctx context.Context, u *sqlstore.URL, cfg *mysql.Config, f func(*sql.Conn) error) (err error) {
	connector, err := newConnector(u, cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the pool is closed next
	return f(conn)
}
