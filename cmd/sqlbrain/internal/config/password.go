package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/cloudtoken"
)

const (
	// passwordCommandTimeout bounds one run of the command.
	passwordCommandTimeout = 10 * time.Second
	// passwordCommandCache is how long what it printed serves for other connections:
	// a server opens many at once, and tokens live for minutes.
	passwordCommandCache = 10 * time.Second
	// A command that prints more is not one that prints a password.
	mostOfAPassword = 64 << 10
	mostOfAReason   = 300
)

// readPassword reads the file with the database's password.
func (s *Settings) readPassword() (string, error) { return ReadPassword(s.PasswordFile) }

// ReadPassword returns the password that a file holds, at most 64 KiB long.
func ReadPassword(file string) (_ string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, mostOfAPassword+1))
	if err != nil {
		return "", err
	}
	if len(text) > mostOfAPassword {
		return "", fmt.Errorf("%s has more than %d bytes", file, mostOfAPassword)
	}
	// Editors and `echo` end a file with a newline; the password has none.
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return password, nil
}

// asked is a password that has to be asked for, and serves for a while. Safe for concurrent
// use: one caller asks, the others wait for the answer.
type asked struct {
	setting string // in messages
	ask     func(context.Context) (cloudtoken.Token, error)
	asking  chan struct{} // holds a value while one asks

	mu   sync.Mutex
	last cloudtoken.Token
}

func newAsked(setting string, ask func(context.Context) (cloudtoken.Token, error)) *asked {
	return &asked{setting: setting, ask: ask, asking: make(chan struct{}, 1)}
}

// known returns the last password, and whether it still serves.
func (a *asked) known() (password string, serves bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last.Password, time.Now().Before(a.last.Until)
}

// password returns the password for a new connection. Its errors do not quote it.
func (a *asked) password(ctx context.Context) (string, error) {
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if password, serves := a.known(); serves {
		return password, nil
	}
	fresh, err := a.ask(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.setting, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = fresh
	return fresh.Password, nil
}

// passwordCommand is a command that prints the password.
type passwordCommand struct {
	command string
	timeout time.Duration
}

// print runs the command. Its errors do not quote what it prints.
func (c *passwordCommand) print(ctx context.Context) (cloudtoken.Token, error) {
	began := time.Now()
	password, err := c.run(ctx)
	return cloudtoken.Token{Password: password, Until: began.Add(passwordCommandCache)}, err
}

func (c *passwordCommand) run(ctx context.Context) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cmd := exec.CommandContext(bounded, "/bin/sh", "-c", c.command) // #nosec G204 -- it comes from the configuration
	// Processes that the shell started may keep its output open.
	cmd.WaitDelay = time.Second
	kill := endsWithItsProcesses(cmd)
	stdout, stderr := &limited{most: mostOfAPassword}, &limited{most: mostOfAReason}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if err != nil && cmd.Process != nil {
		_ = kill() // of processes that keep the output open, if the shell ended before them
	}
	password := strings.TrimRight(stdout.String(), "\r\n")
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case bounded.Err() != nil:
		return "", fmt.Errorf("did not end within %s", c.timeout)
	case err != nil:
		return "", fmt.Errorf("%w%s", err, reason(stderr.String(), password))
	case stdout.cut:
		return "", fmt.Errorf("printed more than %d bytes", mostOfAPassword)
	case password == "":
		return "", fmt.Errorf("printed nothing%s", reason(stderr.String(), password))
	case strings.ContainsAny(password, "\r\n"):
		return "", errors.New("printed more than one line")
	}
	return password, nil
}

// reason is what the command said about its failure, without what it printed.
func reason(text, printed string) string {
	if printed != "" {
		text = strings.ReplaceAll(text, printed, hidden)
	}
	if text = strings.Join(strings.Fields(text), " "); text == "" {
		return ""
	}
	return ": " + text
}

// limited keeps the beginning of what is written to it.
type limited struct {
	kept []byte
	most int
	cut  bool
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.most-len(l.kept))
	l.cut = l.cut || n < len(b)
	l.kept = append(l.kept, b[:n]...)
	return len(b), nil
}

func (l *limited) String() string { return string(l.kept) }

// known returns the passwords that a message could quote.
func (s *Settings) known() (all []string) {
	all = append(all, passwordIn(s.Datastore))
	if s.PasswordFile != "" {
		if password, err := s.readPassword(); err == nil {
			all = append(all, password)
		}
	}
	if s.asked != nil {
		password, _ := s.asked.known()
		all = append(all, password)
	}
	return all
}

// passwordIn returns the password in a URL, also in one that cannot be parsed; ""
// if there is none.
func passwordIn(raw string) string {
	_, rest, _ := strings.Cut(raw, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return ""
	}
	_, password, _ := strings.Cut(rest[:at], ":")
	if plain, err := url.PathUnescape(password); err == nil {
		return plain
	}
	return password
}
