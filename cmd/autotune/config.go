package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"
)

// configFlag names a file that flags are taken from.
type configFlag string

// BeforeResolve reads the file, before flags that are not given get their
// values.
func (configFlag) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	given, _ := ctx.FlagValue(trace.Flag).(configFlag)
	c, err := readConfig(kong.ExpandPath(string(given)))
	if err != nil {
		return err
	}
	ctx.AddResolver(c)
	return nil
}

func readConfig(path string) (*config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w; name a TOML file with a table per command, for example [run], or leave --config out", err)
	}
	defer func() { _ = f.Close() }()
	return loadConfig(f, path)
}

// config resolves flags from a TOML file with a table per command, whose keys
// are the command's flags:
//
//	[run]
//	slo = "250us"
//	interval = "1s"
//
// A key that is no flag is an error, so that a misspelt limit cannot be
// silently ignored.
type config struct {
	file   string
	tables map[string]map[string]any
}

func loadConfig(r io.Reader, name string) (*config, error) {
	c := &config{file: "--config " + name, tables: map[string]map[string]any{}}
	var content map[string]any
	if err := toml.NewDecoder(r).Decode(&content); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, column := at.Position()
			return nil, fmt.Errorf("%s line %d column %d: %w", c.file, row, column, err)
		}
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	for key, value := range content {
		table, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: %q is outside of a table; write it below the command that it is for, for example [run]", c.file, key)
		}
		c.tables[key] = table
	}
	return c, nil
}

// Validate refuses tables and keys that the command line does not have.
func (c *config) Validate(app *kong.Application) error {
	for table, keys := range c.tables {
		i := slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == table })
		if i < 0 {
			return fmt.Errorf("%s: there is no command %q", c.file, table)
		}
		known := flagNames(app.Children[i])
		for key := range keys {
			if !slices.Contains(known, key) {
				slices.Sort(known)
				known = slices.Compact(known)
				return fmt.Errorf("%s: [%s] has no key %q (it has %s)", c.file, table, key, strings.Join(known, ", "))
			}
		}
	}
	return nil
}

// flagNames returns the flags of a command and of those below it.
func flagNames(n *kong.Node) []string {
	var out []string
	for _, flag := range n.Flags {
		out = append(out, flag.Name)
	}
	for _, child := range n.Children {
		out = append(out, flagNames(child)...)
	}
	return out
}

// Resolve returns the file's value of a flag of the selected command.
func (c *config) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	selected := ctx.Selected()
	if selected == nil {
		return nil, nil
	}
	// The table of a command is that of the commands below it too.
	for selected.Parent != nil && selected.Parent.Type != kong.ApplicationNode {
		selected = selected.Parent
	}
	value, ok := c.tables[selected.Name][flag.Name]
	if !ok {
		return nil, nil
	}
	switch v := value.(type) {
	case string, bool:
		return v, nil
	case int64, float64:
		return fmt.Sprint(v), nil
	default:
		return nil, fmt.Errorf("%s: [%s] %s is neither a string nor a number nor a boolean", c.file, selected.Name, flag.Name)
	}
}
