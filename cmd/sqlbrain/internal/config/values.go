package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sqlbrain/sqlbrain/server/lease"
)

// option is a word that stands for a value.
type option[T any] struct {
	word  string
	value T
}

func word(w string) option[string] { return option[string]{w, w} }

// oneOf is a setting that is one of a few words.
type oneOf[T any] struct {
	field   *T
	options []option[T]
	chosen  string
}

var _ pflag.Value = (*oneOf[bool])(nil)

// choice sets field to the value of the first option, the default.
func choice[T any](field *T, options ...option[T]) *oneOf[T] {
	*field = options[0].value
	return &oneOf[T]{field, options, options[0].word}
}

// optional leaves field as it is by default, and shows no default.
func optional[T any](field *T, options ...option[T]) *oneOf[T] { return &oneOf[T]{field, options, ""} }

func (c *oneOf[T]) String() string { return c.chosen }
func (c *oneOf[T]) Type() string   { return c.join("|") }

func (c *oneOf[T]) Set(s string) error {
	for _, o := range c.options {
		if o.word == s {
			*c.field, c.chosen = o.value, s
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", c.join(", "))
}

func (c *oneOf[T]) join(separator string) string {
	var words []string
	for _, o := range c.options {
		words = append(words, o.word)
	}
	return strings.Join(words, separator)
}

// ttlPolicies is a list of PREFIX=DURATION. Set adds to it.
type ttlPolicies []lease.Policy

var _ pflag.Value = (*ttlPolicies)(nil)

func (p *ttlPolicies) Type() string { return "PREFIX=DURATION" }

func (p *ttlPolicies) String() string {
	var parts []string
	for _, policy := range *p {
		parts = append(parts, fmt.Sprintf("%s=%s", policy.Prefix, policy.TTL))
	}
	return strings.Join(parts, ",")
}

// Set takes one policy or several, separated by commas. A prefix may hold '=',
// but no comma.
func (p *ttlPolicies) Set(s string) error {
	for part := range strings.SplitSeq(s, ",") {
		i := strings.LastIndexByte(part, '=')
		if i <= 0 {
			return errors.New("must be PREFIX=DURATION, as in /events/=1h")
		}
		prefix := part[:i]
		ttl, err := time.ParseDuration(part[i+1:])
		if err != nil || ttl < time.Second {
			return fmt.Errorf("the life of %s must be a duration of at least 1s, as in 90s or 1h", prefix)
		}
		if ttl > lease.MaxPolicyTTL {
			return fmt.Errorf("the life of %s must be at most %v; without a policy keys do not expire", prefix,
				lease.MaxPolicyTTL)
		}
		for _, other := range *p {
			if string(other.Prefix) == prefix {
				return fmt.Errorf("there are two policies for %s", prefix)
			}
		}
		*p = append(*p, lease.Policy{Prefix: []byte(prefix), TTL: ttl})
	}
	return nil
}

// fileMode is a mode of a file, in octal digits.
type fileMode fs.FileMode

var _ pflag.Value = (*fileMode)(nil)

func (m *fileMode) Type() string   { return "mode" }
func (m *fileMode) String() string { return fmt.Sprintf("%04o", uint32(*m)) }

func (m *fileMode) Set(s string) error {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return errors.New("must be octal digits from 0001 to 0777, as in 0660")
	}
	*m = fileMode(n)
	return nil
}
