package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a wrong command line or configuration: exit code 2, with a
// pointer to the help topic that says how it is right.
type usageError struct {
	topic string
	err   error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(cmd *cobra.Command, err error) error {
	return &usageError{topic: helpTopic(cmd), err: err}
}

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return usage(cmd, fmt.Errorf(format, args...))
}

// strconvText is what package strconv says of a number.
var strconvText = regexp.MustCompile(`strconv\.\w+: parsing ".*": (invalid syntax|value out of range)`)

// plainly says what is wrong with a flag's value without naming the function that
// has found it.
func plainly(err error) error {
	text := strconvText.ReplaceAllStringFunc(err.Error(), func(s string) string {
		if strings.HasSuffix(s, "range") {
			return "it is too large"
		}
		return "want a number"
	})
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// helpTopic is what follows "haengine help" for cmd: "log dump".
func helpTopic(cmd *cobra.Command) string {
	_, topic, _ := strings.Cut(cmd.CommandPath(), " ")
	return topic
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "haengine",
		Short: "A replicated log that speaks RocketMQ's master-slave replication",
		Long: "haengine runs, copies and inspects logs in RocketMQ's store format. A master\n" +
			"replicates to slaves of its own kind or of RocketMQ's, and the other way round.",
		Example: "  haengine demo\n" +
			"  haengine serve --store ./a --role SYNC_MASTER\n" +
			"  haengine serve --store ./b --role SLAVE --master 127.0.0.1:10912 --admin-listen 127.0.0.1:10920 \\\n" +
			"      --client-listen 127.0.0.1:11911 --namesrv 127.0.0.1:9876\n" +
			"  seq 1 100 | haengine put --topic orders\n" +
			"  haengine tail --topic orders -f\n" +
			"  haengine status\n" +
			"  haengine log diff --store ./a --with ./b",
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: applyEnvironment,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	asGroup(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, plainly(err)) })
	root.AddCommand(newServe(), newStatus(), newPromote(), newFollow(), newPace(), newLog(), newRepair(), newReseed(), newPut(), newTail(), newTopic(), newGroup(), newDemo(), newBench(), newTune(), newVersion())
	root.SetHelpCommand(newHelp(root))
	completeNoFiles(root)
	// cobra builds the completion verb late, and lets it take anything; built
	// now, it treats wrong arguments as the verbs of our own do.
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		asGroup(c)
		for _, shell := range c.Commands() {
			shell.Args = noArgs
		}
	}
	return root
}

// completeNoFiles keeps shells from offering files for flags that are no file.
func completeNoFiles(cmd *cobra.Command) {
	for _, name := range []string{"topic", "group", "tag", "key", "from", "to", "namesrv", "admin"} {
		if f := cmd.Flags().Lookup(name); f != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions) // the flag is there
		}
	}
	for _, below := range cmd.Commands() {
		completeNoFiles(below)
	}
}

func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef(root, "there is no command %q", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// asGroup makes cmd a verb that only holds others: alone it prints its help,
// with anything else it names the mistake.
func asGroup(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		near := cmd.SuggestionsFor(args[0])
		if len(near) == 0 {
			return usagef(cmd, "%q is no command of %q", args[0], cmd.CommandPath())
		}
		return usagef(cmd, "%q is no command of %q; did you mean %s?", args[0], cmd.CommandPath(), strings.Join(near, " or "))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// noArgs refuses positional arguments, which no verb takes unless it says so.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "%q is not expected here: %q takes flags only", args[0], cmd.CommandPath())
	}
	return nil
}

// envPrefix starts the environment variables that stand for flags.
const envPrefix = "HAENGINE_"

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// variables is a set of environment variables.
type variables map[string]bool

func (v variables) has(name string) bool { return v[name] }

// flagVariables are those that stand for a flag of cmd or a verb below it.
func flagVariables(cmd *cobra.Command) variables {
	all := variables{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { all[envName(f.Name)] = true })
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(cmd)
	return all
}

// applyEnvironment gives every flag that the command line leaves open its
// value from the environment. A verb with settings of its own (serve) layers
// file and environment itself and marks its flags so.
func applyEnvironment(cmd *cobra.Command, _ []string) error {
	var wrong []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" {
			return
		}
		if _, own := f.Value.(*settingValue); own {
			return
		}
		value, ok := os.LookupEnv(envName(f.Name))
		if !ok {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s=%s: %w", envName(f.Name), value, plainly(err)))
		}
	})
	if len(wrong) > 0 {
		return usage(cmd, errors.Join(wrong...))
	}
	return nil
}

// untilInterrupt ends ctx at the first SIGINT or SIGTERM.
func untilInterrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}
