package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/haengine/haengine/internal/tune"
)

// pick are the advices of a kind and a verdict, in order.
func (a tuneAnswer) pick(v tune.Verdict, kinds ...tune.Kind) (some []tune.Advice) {
	for _, x := range a.Advice {
		if x.Verdict == v && slices.Contains(kinds, x.Kind) {
			some = append(some, x)
		}
	}
	return some
}

// asGiven writes an advice as it stands on a command line.
func asGiven(x tune.Advice) string {
	if x.Kind == tune.Environment {
		return x.Name + "=" + x.Value
	}
	return "--" + x.Name + " " + x.Value
}

// commandLine is haengine serve with what is to be set.
func (a tuneAnswer) commandLine() string {
	var before, after []string
	for _, x := range a.pick(tune.Set, tune.Environment) {
		before = append(before, asGiven(x))
	}
	for _, x := range a.pick(tune.Set, tune.Flag) {
		after = append(after, asGiven(x))
	}
	line := append(before, "haengine serve --store", shellWord(a.options.store), "--role", shellWord(a.options.role))
	if l := a.options.listen; l != "" && l != defaultHAListen && !slices.ContainsFunc(a.pick(tune.Set, tune.Flag), func(x tune.Advice) bool { return x.Name == "ha-listen" }) {
		line = append(line, "--ha-listen", shellWord(l))
	}
	if strings.EqualFold(a.options.role, "slave") {
		master := "HOST:PORT"
		if a.options.peer != "" {
			master = shellWord(a.options.peer)
		}
		line = append(line, "--master", master)
	}
	return strings.Join(append(line, after...), " ")
}

// textWidth is where lines of reasons end.
const textWidth = 100

func (a tuneAnswer) print(w io.Writer) {
	a.Machine.Print(w)
	a.Measured.Print(w)
	change := a.pick(tune.Set, tune.Flag, tune.Environment)
	fmt.Fprint(w, "\nsettings to change\n")
	for _, x := range change {
		entry(w, asGiven(x), fmt.Sprintf("instead of %s: %s", x.Default, x.Reason), x.Source)
	}
	if len(change) == 0 {
		fmt.Fprint(w, "  none: the defaults are right for what can be seen\n")
	}
	fmt.Fprintf(w, "\n  %s\n", a.commandLine())
	if list := a.pick(tune.Try, tune.Flag, tune.Environment); len(list) > 0 {
		fmt.Fprint(w, "\nworth a trial: it depends on the load\n")
		for _, x := range list {
			entry(w, asGiven(x), fmt.Sprintf("instead of %s: %s", x.Default, x.Reason), x.Source)
			command(w, "compare", x.Command)
		}
	}
	fmt.Fprint(w, "\nkeeps\n")
	grouped(w, "", a.pick(tune.Keep, tune.Flag, tune.Environment))
	fmt.Fprint(w, "\noutside haengine\n")
	outside := a.pick(tune.Set, tune.Outside)
	for _, x := range outside {
		entry(w, "change "+x.Name+" ("+x.Default+")", x.Reason, x.Source)
		command(w, "by", x.Command)
	}
	for _, x := range a.pick(tune.Try, tune.Outside) {
		entry(w, "try "+x.Name+" ("+x.Default+")", x.Reason, x.Source)
		command(w, "by", x.Command)
	}
	grouped(w, "keep ", a.pick(tune.Keep, tune.Outside))
	if len(a.Machine.Unseen) > 0 {
		fmt.Fprint(w, "\nnot seen\n")
		for _, s := range a.Machine.Unseen {
			wrap(w, "  ", "  ", s)
		}
	}
}

// grouped writes what keeps as it is. Neighbours with one reason share an entry.
func grouped(w io.Writer, verb string, kept []tune.Advice) {
	for i := 0; i < len(kept); {
		first, names := kept[i], []string(nil)
		for ; i < len(kept) && kept[i].Reason == first.Reason; i++ {
			name := kept[i].Name
			if kept[i].Kind == tune.Flag {
				name = "--" + name
			}
			names = append(names, name+" ("+kept[i].Default+")")
		}
		entry(w, verb+strings.Join(names, ", "), first.Reason, first.Source)
	}
}

// entry is a line that names something, and its reason below.
func entry(w io.Writer, what, why, source string) {
	fmt.Fprintf(w, "  %s\n", what)
	wrap(w, "      ", "      ", why+" ["+source+"]")
}

func command(w io.Writer, how, text string) {
	if text != "" {
		wrap(w, "      "+how+": ", "          ", text)
	}
}

// wrap breaks a text between words.
func wrap(w io.Writer, first, next, text string) {
	line, prefix := first, first
	for _, word := range strings.Fields(text) {
		if len([]rune(line))+len([]rune(word)) > textWidth && line != prefix {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line, prefix = next, next
		}
		line += word + " "
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

// printYAML writes a file for serve --config.
func (a tuneAnswer) printYAML(w io.Writer) {
	wrap(w, "# ", "# ", "What haengine tune would set on this machine; for haengine serve --config. The rest of the settings have their defaults.")
	fmt.Fprintf(w, "store: %s\nrole: %s\n", yamlText(a.options.store), yamlText(a.options.role))
	if strings.EqualFold(a.options.role, "slave") {
		if a.options.peer == "" {
			fmt.Fprint(w, "# master: HOST:PORT\n")
		} else {
			fmt.Fprintf(w, "master: %s\n", yamlText(a.options.peer))
		}
	}
	given := false
	for _, x := range a.pick(tune.Set, tune.Flag) {
		fmt.Fprintln(w)
		wrap(w, "# ", "# ", fmt.Sprintf("Default %s. %s [%s]", x.Default, x.Reason, x.Source))
		fmt.Fprintf(w, "%s: %s\n", x.Name, yamlText(x.Value))
		given = given || x.Name == "ha-listen"
	}
	if l := a.options.listen; l != "" && l != defaultHAListen && !given {
		fmt.Fprintf(w, "\nha-listen: %s\n", yamlText(l))
	}
	for _, x := range a.pick(tune.Set, tune.Environment) {
		wrap(w, "\n# ", "# ", fmt.Sprintf("In the environment: %s. %s [%s]", asGiven(x), x.Reason, x.Source))
	}
}

// yamlText quotes a value in any case: a store may be called "on".
func yamlText(s string) string { return strconv.Quote(s) }
