package system

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/process"
)

const (
	password       = "sqlbrain"
	installWait    = 5 * time.Minute
	databaseWait   = 2 * time.Minute
	databasePoll   = 20 * time.Millisecond
	bufferPool     = 1 << 30
	redoLog        = 1 << 30
	maxConnections = 1500 // kine opens one for each request at a time
)

// database is a MySQL or MariaDB server with its data.
type database struct {
	port    *process.Port
	process *process.Process
}

// startDatabase starts a server on fresh data. Its settings are the same for all
// products: every commit is flushed, the binary log too.
func (e *Environment) startDatabase(ctx context.Context, engine Engine, dir string) (*database, error) {
	account, err := databaseAccount()
	if err != nil {
		return nil, err
	}
	template, err := e.initialise(ctx, engine, account)
	if err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "database")
	if err := copyTree(own, template, account); err != nil {
		return nil, err
	}
	d := &database{}
	if d.port, err = process.ReservePort(); err != nil {
		return nil, err
	}
	pool, redo := cmp.Or(e.BufferPool, bufferPool), strconv.FormatInt(cmp.Or(e.RedoLog, redoLog), 10)
	args := []string{
		"--no-defaults", "--datadir=" + filepath.Join(own, "data"), "--tmpdir=" + own,
		"--socket=s", "--pid-file=pid", // in the data directory: a longer path may be too long for a socket
		"--port=" + strconv.Itoa(d.port.Number), "--bind-address=127.0.0.1", "--skip-name-resolve",
		"--init-file=" + filepath.Join(own, "init.sql"),
		"--max-connections=" + strconv.Itoa(maxConnections),
		"--innodb-buffer-pool-size=" + strconv.FormatInt(pool, 10),
		"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--log-bin=" + filepath.Join(own, "binlog"), "--server-id=1",
	}
	if engine == MySQL {
		args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL", "--innodb-redo-log-capacity="+redo)
	} else {
		args = append(args, "--innodb-log-file-size="+redo, "--binlog-format=ROW")
	}
	d.process, err = process.Start(process.Options{Dir: own, Log: filepath.Join(dir, "database.log"), As: account}, e.Programs.server(engine), args...)
	if err != nil {
		return nil, errors.Join(err, d.port.Release())
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
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", fmt.Sprintf("127.0.0.1:%d", d.port.Number), "root", password, name
	c.Logger = &mysql.NopLogger{}
	return c
}

func (d *database) url(name string) string {
	u := url.URL{Scheme: "mysql", User: url.UserPassword("root", password), Host: fmt.Sprintf("127.0.0.1:%d", d.port.Number), Path: "/" + name}
	return u.String()
}

func (d *database) kineEndpoint(name string) string { return "mysql://" + d.settings(name).FormatDSN() }

func (d *database) close() error {
	return errors.Join(d.process.Kill(), d.port.Release())
}

// initialise makes the data directory that every start copies, once.
func (e *Environment) initialise(ctx context.Context, engine Engine, account *process.Account) (string, error) {
	if dir := e.initialised[engine]; dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp(e.Dir, "empty-"+string(engine)+"-")
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.Chmod(dir, 0o755), chown(dir, account)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, installWait)
	defer cancel()
	data := filepath.Join(dir, "data")
	name, args := e.Programs.MySQL, []string{"--no-defaults", "--initialize-insecure", "--datadir=" + data, "--tmpdir=" + dir, "--secure-file-priv=NULL"}
	if engine == MariaDB {
		name, args = e.Programs.MariaDBInstall, []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + dir,
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = process.Attributes(account)
	release := process.HoldThread()
	defer release()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initialise %s: %w\n%s", engine, err, out)
	}
	// MariaDB's program makes the first user, MySQL's does not.
	statements := "CREATE USER IF NOT EXISTS root@'127.0.0.1';\nALTER USER root@'127.0.0.1' IDENTIFIED BY '" + password + "';\n" +
		"GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
	if err := os.WriteFile(filepath.Join(dir, "init.sql"), []byte(statements), 0o644); err != nil {
		return "", err
	}
	if e.initialised == nil {
		e.initialised = map[Engine]string{}
	}
	e.initialised[engine] = dir
	return dir, nil
}

// databaseAccount is the user that servers run as, which refuse to run as root.
func databaseAccount() (*process.Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("mysql")
	if err != nil {
		return nil, fmt.Errorf("running as root, and there is no user mysql to run the server as: %w", err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	return &process.Account{UID: uint32(uid), GID: uint32(gid)}, errors.Join(uidErr, gidErr)
}

// copyTree copies a directory and gives it to the account.
func copyTree(to, from string, account *process.Account) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return chown(path, account)
	})
}

func chown(path string, account *process.Account) error {
	if account == nil {
		return nil
	}
	return os.Chown(path, int(account.UID), int(account.GID))
}
