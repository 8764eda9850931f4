package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

// Password is that of the users of a server: of root, and of recovery, by whom servers
// that replicate fetch from each other.
const Password = "sqlbrain"

// setup are the statements that make the users. Servers that do not listen on the loopback interface are in a private
// network.
const setup = "CREATE USER IF NOT EXISTS root@'127.0.0.1';\n" +
	"ALTER USER root@'127.0.0.1' IDENTIFIED BY '" + Password + "';\n" +
	"GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n" +
	"ALTER USER root@localhost IDENTIFIED BY '" + Password + "';\n" +
	"CREATE USER root@'10.%' IDENTIFIED BY '" + Password + "';\n" +
	"GRANT ALL ON *.* TO root@'10.%' WITH GRANT OPTION;\n" +
	"CREATE USER recovery IDENTIFIED BY '" + Password + "';\n" +
	"GRANT REPLICATION SLAVE ON *.* TO recovery;\n"

// setupTiDB are those on TiDB, where root may come from anywhere.
const setupTiDB = "CREATE USER root@'127.0.0.1' IDENTIFIED BY '" + Password + "';\n" +
	"GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"

// installWait is a bound that only a broken or starved machine reaches.
const installWait = 4 * time.Minute

// Initialise makes a data directory for a server of the product, with the users. The
// directory above must exist and belong to the user that servers run as, whom it returns:
// nil for this process's.
func (p Product) Initialise(data string) (owner *process.User, err error) {
	binary, err := p.Program()
	if err != nil {
		return nil, err
	}
	if owner, err = findOwner(); err != nil {
		return nil, err
	}
	common := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + filepath.Dir(data), redoLogSize(p)}
	if p == MariaDB {
		installer, err := FindProgram("mariadb-install-db")
		if err != nil {
			return nil, err
		}
		args := append(slices.Clone(common), "--auth-root-authentication-method=normal", "--skip-test-db",
			"--skip-name-resolve")
		return owner, errors.Join(initialise(owner, "", installer, args...),
			initialise(owner, "FLUSH PRIVILEGES;\n"+setup, binary, append(common, "--bootstrap")...))
	}
	script := data + ".sql"
	if err := errors.Join(os.WriteFile(script, []byte(setup), 0o600), chown(script, owner)); err != nil {
		return nil, err
	}
	err = initialise(owner, "", binary, append(common, "--initialize-insecure", "--init-file="+script)...)
	// Copies must not have one name.
	return owner, errors.Join(err, os.Remove(script), os.RemoveAll(filepath.Join(data, "auto.cnf")))
}

func initialise(owner *process.User, input, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = "/", strings.NewReader(input)
	if out, err := process.Output(cmd, owner); err != nil {
		return fmt.Errorf("initialise a database directory: %w\n%s", err, out)
	}
	return nil
}

func redoLogSize(p Product) string {
	if p == MariaDB {
		return "--innodb-log-file-size=32M"
	}
	return "--innodb-redo-log-capacity=64M"
}

// CopyData copies a data directory, and gives the copy to owner.
func CopyData(to, from string, owner *process.User) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, chown(path, owner))
	})
}

// GiveToServers makes the user that servers run as the owner of a directory.
func GiveToServers(dir string) error {
	owner, err := findOwner()
	if err != nil {
		return err
	}
	return chown(dir, owner)
}

func chown(path string, owner *process.User) error {
	if owner == nil {
		return nil
	}
	return os.Chown(path, int(owner.UID), int(owner.GID))
}
