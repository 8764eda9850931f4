package config

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/cloudtoken"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// URL returns the URL of the database. If the password comes from elsewhere, each
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

// The settings that say where the password comes from.
const (
	passwordFile        = "datastore-password-file"
	passwordCommandFlag = "datastore-password-command"
	passwordFrom        = "datastore-password-from"
)

var (
	userinfo = regexp.MustCompile(`(://[^\s:/@"]*):[^\s"]*@`)
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
// of the user, the database or the product is hidden in URLs only, and a short one not as a part of
// words; other messages would become unreadable.
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
			text = hide(text, form)
		}
	}
	return text
}

// shortPassword is the number of bytes below which a password may be a part of words by chance.
const shortPassword = 6

// hide replaces the password in text: a short one only where it is not a part of a longer word.
func hide(text, password string) string {
	if len(password) >= shortPassword {
		return strings.ReplaceAll(text, password, hidden)
	}
	first, _ := utf8.DecodeRuneInString(password)
	last, _ := utf8.DecodeLastRuneInString(password)
	var out strings.Builder
	done, at := 0, 0
	for {
		i := strings.Index(text[at:], password)
		if i < 0 {
			return out.String() + text[done:]
		}
		begin, end := at+i, at+i+len(password)
		before, _ := utf8.DecodeLastRuneInString(text[:begin])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if isWord(before) && isWord(first) || isWord(last) && isWord(after) {
			at = begin + 1
			continue
		}
		out.WriteString(text[done:begin] + hidden)
		done, at = end, end
	}
}

// isWord reports whether words have r.
func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// checkDatastore looks at what can be known without opening anything.
func (s *Settings) checkDatastore() error {
	if s.DataDir == "" {
		return s.invalid("data-dir", "must not be empty")
	}
	if s.Datastore != "" && s.origins["data-dir"] != "" {
		return s.invalid("data-dir", "has no effect together with %s", s.Origin("datastore"))
	}
	u, err := sqlstore.ParseURL(s.datastoreURL())
	if err != nil {
		return s.invalid("datastore", "%w", err)
	}
	s.url, s.asked = u, nil
	return s.checkPassword()
}

// checkPassword looks for one source of the password.
func (s *Settings) checkPassword() error {
	var given []string
	for name, value := range map[string]string{passwordFile: s.PasswordFile, passwordCommandFlag: s.PasswordCommand,
		passwordFrom: s.PasswordFrom} {
		if value != "" {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	switch {
	case len(given) == 0:
		return nil
	case len(given) > 1:
		return s.invalid(given[1], "%s is given as well", s.Origin(given[0]))
	case s.url.User == "":
		return s.invalid(given[0], "the URL of %s names no user that the password could be for", s.Origin("datastore"))
	case s.url.HasPassword():
		return s.invalid(given[0], "the URL of %s holds a password as well", s.Origin("datastore"))
	}
	// Each connection asks again, because passwords change and tokens expire.
	switch given[0] {
	case passwordFile:
		if _, err := s.readPassword(); err != nil {
			return s.invalid(passwordFile, "%w", err)
		}
		s.url.SetPasswords(func(context.Context) (string, error) {
			password, err := s.readPassword()
			if err != nil {
				return "", fmt.Errorf("%s: %w", s.Origin(passwordFile), err)
			}
			return password, nil
		})
		return nil
	case passwordCommandFlag:
		command := passwordCommand{command: s.PasswordCommand, timeout: passwordCommandTimeout}
		s.asked = newAsked(s.Origin(passwordCommandFlag), command.print)
	case passwordFrom:
		source, err := cloudtoken.New(s.PasswordFrom, s.url.Address, s.url.User)
		if err != nil {
			return s.invalid(passwordFrom, "%w", err)
		}
		if s.url.TLS.Mode != sqlstore.TLSVerify {
			return s.invalid(passwordFrom, "a token is sent in clear text, which needs tls=true or tls-ca in the URL of %s",
				s.Origin("datastore"))
		}
		s.asked = newAsked(s.Origin(passwordFrom), source)
	}
	s.url.SetPasswords(s.asked.password)
	return nil
}
