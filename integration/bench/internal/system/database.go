package system

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

const (
	password       = enginetest.Password
	databaseWait   = 2 * time.Minute
	databasePoll   = 20 * time.Millisecond
	bufferPool     = 1 << 30
	redoLog        = 1 << 30
	maxConnections = 1500 // kine opens one for each request at a time
)

// database is a MySQL or MariaDB server with its data.
type database struct {
	port    port
	process *process.Process
}

// startDatabase starts a server on fresh data. Its settings are the same for all
// products: every commit is flushed, the binary log too.
func (e *Environment) startDatabase(ctx context.Context, engine Engine, dir string) (*database, error) {
	own := filepath.Join(dir, "database")
	if err := errors.Join(os.Mkdir(own, 0o755), enginetest.GiveToServers(own)); err != nil {
		return nil, err
	}
	account, err := enginetest.Product(engine).Initialise(filepath.Join(own, "data"))
	if err != nil {
		return nil, err
	}
	d := &database{}
	if d.port, err = reservePort(); err != nil {
		return nil, err
	}
	pool, redo := cmp.Or(e.BufferPool, bufferPool), strconv.FormatInt(cmp.Or(e.RedoLog, redoLog), 10)
	args := []string{
		"--no-defaults", "--datadir=" + filepath.Join(own, "data"), "--tmpdir=" + own,
		"--socket=s", "--pid-file=pid", // in the data directory: a longer path may be too long for a socket
		"--port=" + strconv.Itoa(d.port.number), "--bind-address=127.0.0.1", "--skip-name-resolve",
		"--max-connections=" + strconv.Itoa(maxConnections),
		"--innodb-buffer-pool-size=" + strconv.FormatInt(pool, 10),
		"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--log-bin=" + filepath.Join(own, "binlog"), "--server-id=1",
	}
	if engine == MySQL {
		args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL", "--innodb-redo-log-capacity="+redo)
	} else {
		args = append(args, "--innodb-log-file-size="+redo, "--binlog-format=ROW")
	}
	d.process, err = process.Start(process.Options{Dir: own, Log: filepath.Join(dir, "database.log"), As: account},
		e.Programs.server(engine), args...)
	if err != nil {
		return nil, errors.Join(err, d.port.Close())
	}
	connector, err := mysql.NewConnector(d.settings(""))
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	db := sql.OpenDB(connector)
	defer db.Close() //nolint:errcheck // its connections end with the server at the latest
	err = d.process.Await(ctx, databaseWait, databasePoll, db.PingContext)
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE DATABASE sqlbrain")
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// settings are those of connections to a database of the server.
func (d *database) settings(name string) *mysql.Config {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", fmt.Sprintf("127.0.0.1:%d", d.port.number), "root", password, name
	c.Logger = &mysql.NopLogger{}
	return c
}

func (d *database) url(name string) string {
	u := url.URL{Scheme: "mysql", User: url.UserPassword("root", password),
		Host: fmt.Sprintf("127.0.0.1:%d", d.port.number), Path: "/" + name}
	return u.String()
}

func (d *database) kineEndpoint(name string) string { return "mysql://" + d.settings(name).FormatDSN() }

func (d *database) close() error {
	return errors.Join(d.process.Kill(), d.port.Close())
}
