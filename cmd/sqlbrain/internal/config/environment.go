package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	envPrefix  = "SQLBRAIN_"
	etcdPrefix = "ETCD_" // of etcd's variables, which set the flags that sqlbrain has too
)

// EnvName returns the environment variable of a flag.
func EnvName(flag string) string { return envPrefix + envForm(flag) }

func envForm(flag string) string { return strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) }

// serviceLink matches the variables that Kubernetes sets for a Service, such as one that is named sqlbrain or etcd.
var serviceLink = regexp.MustCompile(
	`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// variable is an environment variable that sets a flag.
type variable struct{ name, value string }

// environment returns the variables that set flags, by flag; our own take precedence over etcd's. It refuses variables
// of etcd whose flag is refused, and names that are likely to be misspelt. The other names that look like settings are
// kept for IgnoredEnvironment. An empty variable counts as not set.
func (s *Settings) environment(environ []string) (map[string]variable, error) {
	set := make(map[string]variable)
	s.ignored = nil
	for _, pair := range slices.Sorted(slices.Values(environ)) { // ETCD_ comes before SQLBRAIN_
		name, value, _ := strings.Cut(pair, "=")
		text, own := strings.CutPrefix(name, envPrefix)
		etcds := false
		if !own {
			text, etcds = strings.CutPrefix(name, etcdPrefix)
		}
		if value == "" || !own && !etcds {
			continue
		}
		flag := strings.ToLower(strings.ReplaceAll(text, "_", "-"))
		if s.flags.Lookup(flag) != nil && text == envForm(flag) {
			set[flag] = variable{name, value}
			continue
		}
		if err := s.refuseVariable(name, flag, own); err != nil {
			return nil, err
		}
		s.ignored = append(s.ignored, name)
	}
	return set, nil
}

// refuseVariable returns an error for a variable that sets nothing and was probably set for an effect.
func (s *Settings) refuseVariable(name, flag string, own bool) error {
	if why := etcdFlags[flag]; why != "" {
		return fmt.Errorf("%s is set, but sqlbrain does not have this setting of etcd: %s", name, why)
	}
	if !own || serviceLink.MatchString(name) {
		return nil
	}
	if best := nearest(s.flags, flag, mistyped(flag)); best != "" {
		return fmt.Errorf("%s is set, but is not a setting: did you mean %s?", name, EnvName(best))
	}
	return nil
}

// IgnoredEnvironment returns the names of variables that look like settings of sqlbrain or etcd and are none. Call it
// after Load.
func (s *Settings) IgnoredEnvironment() []string { return s.ignored }
