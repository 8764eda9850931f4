package config

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// URL returns the URL of the database, with the password if a file holds it. It
// prints without the password.
func (s *Settings) URL() *sqlstore.URL { return s.url }

// datastoreURL returns what URL is parsed from. Its errors do not hold the
// password, its result does.
func (s *Settings) datastoreURL() (string, error) {
	raw := s.Datastore
	if raw == "" {
		path := filepath.ToSlash(filepath.Join(s.DataDir, "sqlbrain.db"))
		raw = "sqlite://" + (&url.URL{Path: path}).EscapedPath()
	}
	if s.DatastorePasswordFile == "" {
		return raw, nil
	}
	const name = "datastore-password-file"
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		// The parser's own words may quote a piece of a password.
		return "", s.invalid("datastore", "is not a URL; special characters in user and password must be percent-encoded")
	case u.User == nil || u.User.Username() == "":
		return "", s.invalid(name, "the datastore's URL names no user that the password could be for")
	}
	if _, both := u.User.Password(); both {
		return "", s.invalid(name, "the datastore's URL holds a password as well")
	}
	password, err := s.readPassword()
	if err != nil {
		return "", s.invalid(name, "%w", err)
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String(), nil
}

// readPassword reads the password's file.
func (s *Settings) readPassword() (string, error) {
	text, err := os.ReadFile(s.DatastorePasswordFile)
	if err != nil {
		return "", err
	}
	// Editors and `echo` end a file with a newline; the password has none.
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s is empty", s.DatastorePasswordFile)
	}
	return password, nil
}

const hidden = "xxxxx"

var (
	userinfo = regexp.MustCompile(`(://[^\s:/@"']*):[^\s"']*@`)
	secrets  = regexp.MustCompile(`(?i)([?&][^=&\s]*(?:pass|secret|token)[^=&\s]*=)[^&\s]*`)
)

// Redact hides passwords in text that holds a URL, even one that cannot be
// parsed.
func Redact(text string) string {
	text = userinfo.ReplaceAllString(text, "$1:"+hidden+"@")
	return secrets.ReplaceAllString(text, "$1"+hidden)
}

// Redact hides passwords in a message, the one of these settings in whatever
// form. It is the last net under messages that other code words. A password that
// is also the user's, the database's or the product's name is no secret as such,
// and is hidden in URLs only: messages would become riddles.
func (s *Settings) Redact(text string) string {
	text = Redact(text)
	raw, err := s.datastoreURL()
	if err != nil {
		raw = s.Datastore
	}
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return text
	}
	password, ok := u.User.Password()
	if !ok || password == "" || strings.Contains("sqlbrain "+u.Redacted(), password) {
		return text
	}
	for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password)} {
		text = strings.ReplaceAll(text, form, hidden)
	}
	return text
}

// checkDatastore looks at what can be known without opening anything.
func (s *Settings) checkDatastore() error {
	if s.DataDir == "" {
		return s.invalid("data-dir", "must not be empty")
	}
	if s.Datastore != "" && s.origins["data-dir"] != "" {
		return s.invalid("data-dir", "has no effect together with --datastore")
	}
	raw, err := s.datastoreURL()
	if err != nil {
		return err
	}
	if s.url, err = sqlstore.ParseURL(raw); err != nil {
		return s.invalid("datastore", "%w", err)
	}
	if s.DatastorePasswordFile != "" {
		// Each connection reads it anew: passwords are changed, tokens expire.
		s.url.SetPasswords(func(context.Context) (string, error) {
			password, err := s.readPassword()
			if err != nil {
				return "", fmt.Errorf("--datastore-password-file: %w", err)
			}
			return password, nil
		})
	}
	return nil
}
