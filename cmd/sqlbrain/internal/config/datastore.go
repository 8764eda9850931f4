package config

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// URL returns the URL of the database. If the password comes from a file or a command, each
// connection asks for it. The URL prints without the password.
func (s *Settings) URL() *sqlstore.URL { return s.url }

// datastoreURL returns the setting's text, or what stands for it if it is empty.
func (s *Settings) datastoreURL() string {
	if s.Datastore != "" {
		return s.Datastore
	}
	path := filepath.ToSlash(filepath.Join(s.DataDir, "sqlbrain.db"))
	return "sqlite://" + (&url.URL{Path: path}).EscapedPath()
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
// form. It is the last safeguard for messages of other packages. A password that equals the name
// of the user, the database or the product is hidden in URLs only; other messages would become
// unreadable.
func (s *Settings) Redact(text string) string {
	text = Redact(text)
	shown := "sqlbrain"
	if s.url != nil {
		shown += " " + s.url.String()
	}
	for _, password := range s.known() {
		if password == "" || strings.Contains(shown, password) {
			continue
		}
		for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password)} {
			text = strings.ReplaceAll(text, form, hidden)
		}
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
	u, err := sqlstore.ParseURL(s.datastoreURL())
	if err != nil {
		return s.invalid("datastore", "%w", err)
	}
	s.url, s.command = u, nil
	return s.checkPassword()
}

// checkPassword looks for one source of the password.
func (s *Settings) checkPassword() error {
	name := "datastore-password-file"
	switch file, command := s.PasswordFile != "", s.PasswordCommand != ""; {
	case file && command:
		return s.invalid(name, "--datastore-password-command is given as well")
	case command:
		name = "datastore-password-command"
	case !file:
		return nil
	}
	switch {
	case s.url.User == "":
		return s.invalid(name, "the datastore's URL names no user that the password could be for")
	case s.url.HasPassword():
		return s.invalid(name, "the datastore's URL holds a password as well")
	}
	if s.PasswordCommand != "" {
		s.command = newPasswordCommand(s.PasswordCommand)
	} else if _, err := s.readPassword(); err != nil {
		return s.invalid(name, "%w", err)
	}
	// Each connection asks again, because passwords change and tokens expire.
	s.url.SetPasswords(s.passwords())
	return nil
}
