package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Load completes the settings, after the command line was parsed, from the
// environment (KEY=value pairs, as os.Environ returns) and the file, and checks
// them for a command with these flags, or all: one that does not listen may have
// some settings of the ports, as from variables that it shares with a server.
func (s *Settings) Load(environ []string, names ...string) error {
	env, err := s.environment(environ)
	if err != nil {
		return err
	}
	if f := s.flags.Lookup("config-file"); !f.Changed && env[f.Name].value != "" {
		s.ConfigFile = env[f.Name].value
	}
	file, err := readFile(s.ConfigFile)
	if err != nil {
		return err
	}
	if err := s.refuseUnknown(file); err != nil {
		return err
	}
	s.flags.VisitAll(func(f *pflag.Flag) {
		if err == nil {
			err = s.fill(f, env, file)
		}
	})
	if err != nil {
		return err
	}
	return s.check(len(names) == 0 || slices.Contains(names, "listen-client-urls"))
}

// Preset sets a setting for a command line of another program. origin is what that command line calls it; the value
// then takes precedence over the environment and the file. Without an origin the value is a default.
func (s *Settings) Preset(name, origin, value string) error {
	f := s.flags.Lookup(name)
	if origin != "" {
		s.origins[name] = origin
	}
	var err error
	if list, ok := f.Value.(pflag.SliceValue); ok {
		err = list.Replace([]string{value})
	} else {
		err = f.Value.Set(value)
	}
	if err != nil {
		return invalidValue(cmp.Or(origin, "--"+name), value, err)
	}
	return nil
}

// Origin returns where the value of a setting comes from: the flag, the variable, or the line of the file. For a
// default it is the flag.
func (s *Settings) Origin(name string) string { return cmp.Or(s.origins[name], "--"+name) }

// Given reports whether the setting has a value from a command line, the environment or the file. Call it after Load.
func (s *Settings) Given(name string) bool { return s.origins[name] != "" }

// fill sets one setting from the nearest source that has it.
func (s *Settings) fill(f *pflag.Flag, env map[string]variable, file *fileSettings) error {
	if s.origins[f.Name] != "" {
		return nil // a preset
	}
	if f.Changed {
		s.origins[f.Name] = "--" + f.Name
		return nil
	}
	if v, ok := env[f.Name]; ok {
		return s.set(f, v.name, v.value)
	}
	if entry, ok := file.entries[f.Name]; ok {
		return s.set(f, fmt.Sprintf("%s:%d: %s", file.path, entry.line, f.Name), entry.values...)
	}
	return nil
}

func (s *Settings) set(f *pflag.Flag, origin string, values ...string) error {
	s.origins[f.Name] = origin
	if list, ok := f.Value.(pflag.SliceValue); ok && len(values) != 1 {
		return list.Replace(values)
	}
	for _, value := range values {
		if err := f.Value.Set(value); err != nil {
			return invalidValue(origin, value, err)
		}
	}
	return nil
}

// FlagError words an error of parsing the command line of a command with these flags.
func FlagError(flags *pflag.FlagSet, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		return unknownFlag(flags, unknown.GetSpecifiedName())
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return invalidValue("--"+invalid.GetFlag().Name, invalid.GetValue(), errors.Unwrap(invalid))
	}
	return err
}

func unknownFlag(flags *pflag.FlagSet, name string) error {
	if why := etcdFlags[name]; why != "" {
		return fmt.Errorf("--%s is a flag of etcd that sqlbrain does not have: %s", name, why)
	}
	if best := nearest(flags, name, mistyped(name)+1); best != "" {
		return fmt.Errorf("unknown flag: --%s: did you mean --%s?", name, best)
	}
	return fmt.Errorf("unknown flag: --%s", name)
}

// invalidValue must not be called with the datastore's URL; that one takes any
// value, and is judged in datastore.go.
func invalidValue(origin, value string, err error) error {
	if num := (*strconv.NumError)(nil); errors.As(err, &num) {
		err = num.Err
		if errors.Is(err, strconv.ErrSyntax) {
			err = errors.New("not a number")
			if num.Func == "ParseBool" {
				err = errors.New("must be true or false")
			}
		}
	} else if _, derr := time.ParseDuration(value); derr != nil && err.Error() == derr.Error() {
		err = errors.New("must be a duration, as in 300ms, 10s or 1h30m")
	}
	return fmt.Errorf("%s: invalid value %q: %w", origin, value, err)
}

// Describe returns the settings that differ from the defaults, as name=value in
// the order of the flags, without passwords.
func (s *Settings) Describe() []string {
	var out []string
	s.flags.VisitAll(func(f *pflag.Flag) {
		if _, ok := s.origins[f.Name]; ok {
			value := f.Value.String()
			switch f.Name {
			case "datastore":
				value = Redact(value)
			case "datastore-password-command":
				value = hidden // it may hold one, in whatever form
			}
			out = append(out, f.Name+"="+value)
		}
	})
	return out
}

// fileSettings is what a file sets.
type fileSettings struct {
	path    string
	order   []string
	entries map[string]fileEntry
}

type fileEntry struct {
	line   int
	values []string
}

func readFile(path string) (*fileSettings, error) {
	out := &fileSettings{path: path, entries: map[string]fileEntry{}}
	if path == "" {
		return out, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config-file: %w", err)
	}
	docs, err := documents(text)
	if err != nil {
		// The parser's errors name lines, not contents.
		return nil, fmt.Errorf("config-file %s: %s", path, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if len(docs) == 0 {
		return out, nil // an empty file
	}
	if len(docs) > 1 {
		return nil, fmt.Errorf("%s:%d: a second document begins here, and only one is read", path, docs[1].Line)
	}
	root := docs[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("config-file %s: must be a list of `setting: value` lines", path)
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if first, ok := out.entries[key.Value]; ok {
			return nil, fmt.Errorf("%s:%d: %s is set in line %d already", path, key.Line, key.Value, first.line)
		}
		values, err := scalars(value)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", path, value.Line, key.Value, err)
		}
		out.order = append(out.order, key.Value)
		out.entries[key.Value] = fileEntry{key.Line, values}
	}
	return out, nil
}

// documents returns the contents of the documents in text that are not empty.
func documents(text []byte) (contents []*yaml.Node, err error) {
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return contents, nil
		} else if err != nil {
			return nil, err
		}
		for _, content := range doc.Content {
			if content.Tag != "!!null" {
				contents = append(contents, content)
			}
		}
	}
}

func scalars(n *yaml.Node) ([]string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, errors.New("has no value")
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}, nil
	case n.Kind != yaml.SequenceNode:
		return nil, errors.New("must be a value or a list of values")
	}
	values := []string{}
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			return nil, errors.New("must be a value or a list of values")
		}
		values = append(values, item.Value)
	}
	return values, nil
}

// refuseUnknown refuses keys that name no setting, and lists where one value is
// due.
func (s *Settings) refuseUnknown(file *fileSettings) error {
	for _, key := range file.order {
		entry := file.entries[key]
		f := s.flags.Lookup(key)
		if f == nil || key == "config-file" {
			return fmt.Errorf("%s:%d: unknown setting %q%s", file.path, entry.line, key, s.suggest(key))
		}
		_, slice := f.Value.(pflag.SliceValue)
		_, policies := f.Value.(*ttlPolicies)
		if len(entry.values) != 1 && !slice && !policies {
			return fmt.Errorf("%s:%d: %s takes one value, not a list", file.path, entry.line, key)
		}
	}
	return nil
}
