package replicated

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// program is a database server's binary.
type program struct {
	path string
	// installer makes a data directory, its arguments follow.
	installer []string
	// runs is set if the program executes statements from its input, without
	// serving, when told to --bootstrap.
	runs  bool
	small []string // keep a server small
}

// setup are the statements that make the administrator and the user by whom
// members fetch from each other.
const setup = "CREATE USER IF NOT EXISTS root@'127.0.0.1';\n" +
	"ALTER USER root@'127.0.0.1' IDENTIFIED BY '" + password + "';\n" +
	"GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n" +
	"ALTER USER root@localhost IDENTIFIED BY '" + password + "';\n" +
	"CREATE USER recovery@'127.0.0.1' IDENTIFIED BY '" + password + "';\n" +
	"GRANT REPLICATION SLAVE ON *.* TO recovery@'127.0.0.1';\n"

// lookPath searches PATH, then where distributions put servers.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// ownerOf returns the user that servers run as: the directory's owner, if this
// process is root and so may be anybody. The products do not like to run as root,
// and rsync, which copies a member's data to a new one, becomes nobody then.
func ownerOf(dir string) (*syscall.Credential, error) {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return nil, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("the owner of %s is not known", dir)
	}
	return &syscall.Credential{Uid: s.Uid, Gid: s.Gid}, nil
}

// give makes everything below a path the user's.
func give(path string, user *syscall.Credential) error {
	if user == nil {
		return nil
	}
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, int(user.Uid), int(user.Gid))
	})
}

// install makes a data directory that the servers start with copies of.
func (p *program) install(user *syscall.Credential, dir string) error {
	script := dir + ".sql"
	if err := errors.Join(os.WriteFile(script, []byte(setup), 0o600), give(script, user)); err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	common := append([]string{"--no-defaults", "--datadir=" + dir, "--tmpdir=" + parent}, p.small...)
	args := append(slices.Clone(common), p.installer[1:]...)
	if !p.runs {
		args = append(args, "--init-file="+script)
	}
	if _, err := run(user, parent, "", p.installer[0], args...); err != nil {
		return fmt.Errorf("initialise a database directory: %w", err)
	}
	if p.runs {
		if _, err := run(user, parent, "FLUSH PRIVILEGES;\n"+setup, p.path, append(common, "--bootstrap")...); err != nil {
			return fmt.Errorf("make the users: %w", err)
		}
	}
	// Copies must not have one name.
	if err := os.Remove(filepath.Join(dir, "auto.cnf")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// run runs a program to its end and returns what it printed.
func run(user *syscall.Credential, dir, input, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return out, err
}

// settings are those of every server: durable, and quick to start.
func (p *program) settings(data, dir string, port int) []string {
	return append([]string{"--datadir=" + data, "--tmpdir=" + dir, "--socket=" + data + ".s", fmt.Sprintf("--port=%d", port),
		"--bind-address=127.0.0.1", "--pid-file=" + data + ".pid", "--secure-file-priv=", "--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--innodb-buffer-pool-size=64M",
		"--max-allowed-packet=64M", "--max-connections=500"}, p.small...)
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
