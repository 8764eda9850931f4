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

// passwordCommand is a command that prints the password. Safe for concurrent use:
// one caller runs it, the others wait for what it prints.
type passwordCommand struct {
	command        string
	timeout, cache time.Duration
	running        chan struct{} // holds a value while the command runs

	mu      sync.Mutex
	printed string
	at      time.Time
}

func newPasswordCommand(command string) *passwordCommand {
	return &passwordCommand{command: command, timeout: passwordCommandTimeout, cache: passwordCommandCache, running: make(chan struct{}, 1)}
}

// last returns what was printed last, and whether it is recent.
func (c *passwordCommand) last() (password string, recent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.printed, c.printed != "" && time.Since(c.at) < c.cache
}

// password returns what the command prints. Its errors do not quote that.
func (c *passwordCommand) password(ctx context.Context) (string, error) {
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if password, recent := c.last(); recent {
		return password, nil
	}
	began := time.Now()
	password, err := c.run(ctx)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.printed, c.at = password, began
	return password, nil
}

func (c *passwordCommand) run(ctx context.Context) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cmd := exec.CommandContext(bounded, "/bin/sh", "-c", c.command) // #nosec G204 -- it comes from the configuration
	// Processes that the shell started may keep its output open.
	cmd.WaitDelay = time.Second
	stdout, stderr := &limited{most: mostOfAPassword}, &limited{most: mostOfAReason}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
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

// passwords returns a function that asks for the password of a connection, nil if
// the URL has it.
func (s *Settings) passwords() func(context.Context) (string, error) {
	switch {
	case s.PasswordFile != "":
		return func(context.Context) (string, error) {
			password, err := s.readPassword()
			if err != nil {
				return "", fmt.Errorf("--datastore-password-file: %w", err)
			}
			return password, nil
		}
	case s.command != nil:
		return func(ctx context.Context) (string, error) {
			password, err := s.command.password(ctx)
			if err != nil {
				return "", fmt.Errorf("--datastore-password-command: %w", err)
			}
			return password, nil
		}
	}
	return nil
}

// known returns the passwords that a message could quote.
func (s *Settings) known() (all []string) {
	all = append(all, passwordIn(s.Datastore))
	if s.PasswordFile != "" {
		if password, err := s.readPassword(); err == nil {
			all = append(all, password)
		}
	}
	if s.command != nil {
		password, _ := s.command.last()
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
