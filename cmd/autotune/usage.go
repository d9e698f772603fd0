package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// rewording is a message of the parser that speaks of Go's types, and what it
// means to who typed the command.
type rewording struct {
	from *regexp.Regexp
	to   string
}

func rewordings() []rewording {
	made := func(from, to string) rewording { return rewording{regexp.MustCompile(from), to} }
	return []rewording{
		made(`^(--\S+): expected \w+ value but got "(-[0-9][^"]*)" \(short flag\).*$`, `$1 $2: it cannot be negative`),
		made(`^(--\S+): expected \w+ value but got "([^"]*)" \((?:short|long) flag\).*$`, `$1 has no value before $2`),
		made(`^(--\S+): expected \w+ value but got "EOL" \(<EOL>\)$`, `$1 has no value`),
		made(`^(--\S+): expected duration but got "([0-9.]+)": time: missing unit.*$`, `$1 $2: it has no unit; write for example ${2}s or ${2}us`),
		made(`^(--\S+): expected duration but got "([^"]*)".*$`, `$1 $2: no duration; write for example 250us, 1.5s or 5m`),
		made(`^(--\S+): expected a valid \d+ bit u?int but got "([^"]*)"$`, `$1 $2: no whole number that is possible there`),
		made(`^(--\S+): expected a float but got "([^"]*)".*$`, `$1 $2: not a number`),
		made(`^missing flags: (.*)$`, `it needs $1`),
		made(`^expected "(.*)"$`, `it needs $1`),
	}
}

// parseText is what the parser refuses, and which help says how it is written.
func parseText(app *kong.Application, err error) string {
	text := err.Error()
	for _, r := range rewordings() {
		if r.from.MatchString(text) {
			text = r.from.ReplaceAllString(text, r.to)
			break
		}
	}
	command := app.Name
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if n := parse.Context.Selected(); n != nil && n.Type == kong.CommandNode {
			command = app.Name + " " + commandName(n)
		} else if strings.HasPrefix(text, "expected one of ") {
			text = "it needs a command, one of " + strings.Join(commandNames(app.Node), ", ")
		}
	}
	return fmt.Sprintf("%s (see %s --help)", text, command)
}

func commandNames(n *kong.Node) []string {
	var out []string
	for _, child := range n.Children {
		if !child.Hidden {
			out = append(out, child.Name)
		}
	}
	return out
}

// withDefault adds to a flag's help the default that the placeholder hides.
func withDefault(v *kong.Value) string {
	help := kong.DefaultHelpValueFormatter(v)
	if v.Flag == nil || v.Flag.PlaceHolder == "" || !v.HasDefault || v.Default == "" || strings.Contains(help, "default") {
		return help
	}
	return fmt.Sprintf("%s By default %s.", help, v.Default)
}

// asked turns "help COMMAND" into what the parser knows.
func asked(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(args[1:len(args):len(args)], "--help")
	}
	return args
}
