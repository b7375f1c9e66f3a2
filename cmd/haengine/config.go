package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// settings is a table of named settings whose values come, later over earlier,
// from default, YAML file, environment and flag. Values are kept as text until
// all layers are read, so that resolve can name every mistake at once, each
// with the place it came from.
type settings struct {
	flags *pflag.FlagSet
	list  []*setting
	from  map[string]string // setting → where its value came from; absent: default
	bad   map[string]bool   // settings whose value could not be read
}

type setting struct {
	name  string
	def   string
	parse func(string) error
}

// settingValue is the pflag.Value of a setting: it takes any text.
type settingValue struct{ text, kind string }

func (v *settingValue) String() string     { return v.text }
func (v *settingValue) Set(s string) error { v.text = s; return nil }
func (v *settingValue) Type() string       { return v.kind }

func newSettings(flags *pflag.FlagSet) *settings { return &settings{flags: flags} }

// add defines a setting. kind is what help calls its values; parse gets the
// value that won, the default included unless that is empty.
func (s *settings) add(name, kind, def, help string, parse func(string) error) {
	s.list = append(s.list, &setting{name: name, def: def, parse: parse})
	f := s.flags.VarPF(&settingValue{text: def, kind: kind}, name, "", help)
	if kind == "bool" {
		f.NoOptDefVal = "true"
	}
}

// given tells whether a setting's value is not its default's.
func (s *settings) given(name string) bool { return s.from[name] != "" }

// noDelimiter joins nothing: the names of settings are flat.
const noDelimiter = "\x00"

// resolve reads all layers and parses every setting. The error joins all
// mistakes. ignored names environment variables with our prefix that are no
// setting: not a mistake, because Kubernetes sets HAENGINE_PORT and the like
// beside every service of that name.
func (s *settings) resolve(configFile string, environ func() []string) (ignored []string, err error) {
	s.from, s.bad = map[string]string{}, map[string]bool{}
	merged := koanf.New(noDelimiter)
	var wrong []error
	if configFile != "" {
		wrong = append(wrong, s.readFile(merged, configFile)...)
	}
	ignored = s.readEnvironment(merged, environ)
	asText := func(f *pflag.Flag) (string, any) { return f.Name, f.Value.String() }
	if err := merged.Load(posflag.ProviderWithFlag(s.flags, noDelimiter, merged, asText), nil); err != nil {
		return ignored, err
	}
	for _, st := range s.list {
		if s.flags.Changed(st.name) {
			s.from[st.name] = "--" + st.name
		}
		text := settingText(merged.Get(st.name))
		if text == "" && st.def == "" {
			continue
		}
		if err := st.parse(text); err != nil {
			where := s.from[st.name]
			if where == "" {
				where = "default of " + st.name
			}
			s.bad[st.name] = true
			wrong = append(wrong, fmt.Errorf("%s: %w", where, err))
		}
	}
	return ignored, errors.Join(wrong...)
}

// name puts where a setting came from before what the engine says of it, which
// begins with the setting's name.
func (s *settings) name(mistakes []error) []error {
	named := make([]error, len(mistakes))
	for i, err := range mistakes {
		named[i] = err
		name, rest, _ := strings.Cut(err.Error(), " ")
		if name, colon := strings.CutSuffix(name, ":"); s.known(name) {
			where := s.from[name]
			if where == "" {
				where = "--" + name
			}
			if colon {
				where += ":"
			}
			named[i] = fmt.Errorf("%s %s", where, rest)
		}
	}
	return named
}

func (s *settings) known(name string) bool { return s.find(name) != nil }

// find is the setting of that name, or nil.
func (s *settings) find(name string) *setting {
	if i := slices.IndexFunc(s.list, func(st *setting) bool { return st.name == name }); i >= 0 {
		return s.list[i]
	}
	return nil
}

func (s *settings) readFile(into *koanf.Koanf, path string) (wrong []error) {
	layer := koanf.New(noDelimiter)
	if err := layer.Load(file.Provider(path), yaml.Parser()); err != nil {
		return []error{fmt.Errorf("configuration file %s: %w", path, err)}
	}
	for key, value := range layer.All() {
		name := strings.ReplaceAll(key, "_", "-")
		if !s.known(name) {
			name, _, _ = strings.Cut(key, noDelimiter)
			wrong = append(wrong, fmt.Errorf("configuration file %s: there is no setting %q", path, name))
			continue
		}
		if s.from[name] != "" {
			wrong = append(wrong, fmt.Errorf("configuration file %s: %s stands there twice", path, name))
		}
		s.from[name] = path + ": " + name
		if err := into.Set(name, value); err != nil {
			wrong = append(wrong, err)
		}
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return wrong
}

func (s *settings) readEnvironment(into *koanf.Koanf, environ func() []string) (ignored []string) {
	provider := env.Provider(noDelimiter, env.Opt{
		Prefix: envPrefix, EnvironFunc: environ,
		TransformFunc: func(key, value string) (string, any) {
			name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(key, envPrefix), "_", "-"))
			if !s.known(name) {
				if name != "config" {
					ignored = append(ignored, key)
				}
				return "", nil
			}
			s.from[name] = key
			return name, value
		},
	})
	// The provider only fails on what it cannot do with bytes; Load asks for none.
	if err := into.Load(provider, nil); err != nil {
		ignored = append(ignored, err.Error())
	}
	return ignored
}

// settingText writes a YAML value as it would stand on the command line.
func settingText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = settingText(v[i])
		}
		return strings.Join(parts, ",")
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10)
		}
	}
	return fmt.Sprint(v)
}

// The parsers of setting values. Each stores what it read.

func toString(into *string) func(string) error {
	return func(s string) error { *into = s; return nil }
}

func toBool(into *bool) func(string) error {
	return func(s string) error {
		switch strings.ToLower(s) {
		case "true", "on", "yes", "1":
			*into = true
		case "false", "off", "no", "0":
			*into = false
		default:
			return fmt.Errorf("%q is neither true nor false", s)
		}
		return nil
	}
}

// toDuration reads 500ms, 2s, 72h; low is the least that is allowed.
func toDuration(into *time.Duration, low time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is no duration; want 500ms, 2s, 72h", s)
		}
		if d < low {
			return fmt.Errorf("%q is too short, want at least %v", s, low)
		}
		*into = d
		return nil
	}
}

func toInt(into *int, low, high int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("%q is no number", s)
		}
		if n < low || n > high {
			return fmt.Errorf("%d is out of range, want %d to %d", n, low, high)
		}
		*into = n
		return nil
	}
}

func toBytes[T int | int64](into *T, low, high int64) func(string) error {
	return func(s string) error {
		n, err := parseByteSize(s)
		if err != nil {
			return err
		}
		if int64(n) < low || int64(n) > high {
			if high == math.MaxInt64 {
				return fmt.Errorf("%d bytes is out of range, want %d or more", n, low)
			}
			return fmt.Errorf("%d bytes is out of range, want %d to %d", n, low, high)
		}
		*into = T(n)
		return nil
	}
}

// toEnum stores what one of the engine's Parse functions makes of the text.
func toEnum[T any](into *T, parse func(string) (T, error)) func(string) error {
	return func(s string) (err error) { *into, err = parse(s); return err }
}

// toCPUs reads 0,2-5; allowed are the cpus that there are, nil if unknown.
func toCPUs(into *[]int, allowed func() []int) func(string) error {
	return func(s string) error {
		var cpus []int
		for part := range strings.SplitSeq(s, ",") {
			first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
			if !isRange {
				last = first
			}
			a, err1 := strconv.Atoi(first)
			b, err2 := strconv.Atoi(last)
			if err1 != nil || err2 != nil || a < 0 || b < a || b-a > 4096 {
				return fmt.Errorf("%q is no list of cpu numbers such as 0,2-5", s)
			}
			for cpu := a; cpu <= b; cpu++ {
				cpus = append(cpus, cpu)
			}
		}
		if have := allowed(); have != nil {
			for _, cpu := range cpus {
				if !slices.Contains(have, cpu) {
					return fmt.Errorf("this process may not run on cpu %d, only on %s", cpu, cpuList(have))
				}
			}
		}
		*into = cpus
		return nil
	}
}

// allowedCPUs are the cpus that this process may run on, in order.
func allowedCPUs() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// cpuList writes 0,2-5.
func cpuList(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if part := strconv.Itoa(cpus[i]); j > i {
			parts = append(parts, part+"-"+strconv.Itoa(cpus[j]))
		} else {
			parts = append(parts, part)
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
