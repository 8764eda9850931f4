package replicated

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

// program is a database server's binary.
type program struct {
	path  string
	small string // keeps a server small
}

// run runs a program to its end and returns what it printed.
func run(user *process.User, dir, input, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	out, err := process.Output(cmd, user)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return out, err
}

// settings are those of every server: durable, and quick to start.
func (p *program) settings(data, dir string, port int) []string {
	return []string{"--datadir=" + data, "--tmpdir=" + dir, "--socket=" + data + ".s", fmt.Sprintf("--port=%d", port),
		"--bind-address=127.0.0.1", "--pid-file=" + data + ".pid", "--secure-file-priv=", "--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--innodb-buffer-pool-size=64M",
		"--max-allowed-packet=64M", "--max-connections=500", p.small}
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
