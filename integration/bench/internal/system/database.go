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
	databaseWait   = 2 * time.Minute
	databasePoll   = 20 * time.Millisecond
	bufferPool     = 1 << 30
	redoLog        = 1 << 30
	maxConnections = 1500 // kine opens one for each request at a time
)

// database is a MySQL or MariaDB server with its data, or databases on a TiDB.
type database struct {
	address        string
	user, password string
	name           string // what the names of databases begin with
	port           port
	process        *process.Process // nil: it ran before, and is not stopped
}

// startDatabase starts a server on fresh data. Its settings are the same for all
// products: every commit is flushed, the binary log too. A TiDB runs already.
func (e *Environment) startDatabase(ctx context.Context, engine Engine, dir string) (*database, error) {
	if engine == TiDB {
		return e.newDatabases(ctx, filepath.Base(dir))
	}
	own := filepath.Join(dir, "database")
	if err := errors.Join(os.Mkdir(own, 0o755), enginetest.GiveToServers(own)); err != nil {
		return nil, err
	}
	account, err := enginetest.Product(engine).Initialise(filepath.Join(own, "data"))
	if err != nil {
		return nil, err
	}
	d := &database{user: "root", password: enginetest.Password}
	if d.port, err = reservePort(); err != nil {
		return nil, err
	}
	d.address = fmt.Sprintf("127.0.0.1:%d", d.port.number)
	redo := strconv.FormatInt(cmp.Or(e.RedoLog, redoLog), 10)
	args := []string{
		"--no-defaults", "--datadir=" + filepath.Join(own, "data"), "--tmpdir=" + own,
		"--socket=s", "--pid-file=pid", // in the data directory: a longer path may be too long for a socket
		"--port=" + strconv.Itoa(d.port.number), "--bind-address=127.0.0.1", "--skip-name-resolve",
		"--max-connections=" + strconv.Itoa(maxConnections),
		"--innodb-buffer-pool-size=" + strconv.Itoa(bufferPool),
		"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--log-bin=" + filepath.Join(own, "binlog"), "--server-id=1",
	}
	if engine == MySQL {
		args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL", "--innodb-redo-log-capacity="+redo)
	} else {
		args = append(args, "--innodb-log-file-size="+redo, "--binlog-format=ROW")
	}
	d.process, err = process.Start(process.Options{Dir: own, Log: filepath.Join(dir, "database.log"), As: account},
		e.Programs.server(engine), append(args, e.Database...)...)
	if err != nil {
		return nil, errors.Join(err, d.port.Close())
	}
	db, err := d.open()
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
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

// newDatabases makes a database on the TiDB. kine makes its own.
func (e *Environment) newDatabases(ctx context.Context, name string) (*database, error) {
	u, err := url.Parse(e.Programs.TiDB)
	if err != nil {
		return nil, err
	}
	d := &database{address: u.Host, user: u.User.Username(), name: name + "-"}
	d.password, _ = u.User.Password()
	return d, d.execute(ctx, "CREATE DATABASE `"+name+"-sqlbrain`")
}

func (d *database) execute(ctx context.Context, statements ...string) error {
	db, err := d.open()
	for _, s := range statements {
		if err == nil {
			_, err = db.ExecContext(ctx, s)
		}
	}
	if db != nil {
		err = errors.Join(err, db.Close())
	}
	return err
}

func (d *database) open() (*sql.DB, error) {
	connector, err := mysql.NewConnector(d.settings(""))
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// settings are those of connections to a database of the server.
func (d *database) settings(name string) *mysql.Config {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", d.address, d.user, d.password, name
	c.Logger = &mysql.NopLogger{}
	return c
}

func (d *database) url() string {
	u := url.URL{Scheme: "mysql", User: url.UserPassword(d.user, d.password), Host: d.address,
		Path: "/" + d.name + "sqlbrain"}
	return u.String()
}

func (d *database) kineEndpoint() string { return "mysql://" + d.settings(d.name+"kine").FormatDSN() }

func (d *database) close() error {
	if d.process == nil {
		ctx, cancel := context.WithTimeout(context.Background(), databaseWait)
		defer cancel()
		return d.execute(ctx, "DROP DATABASE IF EXISTS `"+d.name+"sqlbrain`", "DROP DATABASE IF EXISTS `"+d.name+"kine`")
	}
	return errors.Join(d.process.Kill(), d.port.Close())
}
