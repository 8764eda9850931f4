package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sqlbrain/sqlbrain/server/backend"
)

// choice is a setting that is one of a few words.
type choice struct {
	value *string
	words []string
}

var _ pflag.Value = (*choice)(nil)

// oneOf returns a choice of words; the first is the default.
func oneOf(value *string, words ...string) *choice {
	*value = words[0]
	return &choice{value, words}
}

func (c *choice) String() string { return *c.value }
func (c *choice) Type() string   { return strings.Join(c.words, "|") }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.words, ", "))
	}
	*c.value = s
	return nil
}

// ttlPolicies is a list of PREFIX=DURATION. Set adds to it.
type ttlPolicies []backend.TTLPolicy

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
		for _, other := range *p {
			if string(other.Prefix) == prefix {
				return fmt.Errorf("there are two policies for %s", prefix)
			}
		}
		*p = append(*p, backend.TTLPolicy{Prefix: []byte(prefix), TTL: ttl})
	}
	return nil
}
