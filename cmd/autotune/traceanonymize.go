package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"autotune/probe/trace"
)

type traceAnonymizeCmd struct {
	traceInput
	traceOutput

	SaltFile string `help:"Take the salt from this file, so that several traces get the same replacements; a new one is drawn otherwise, and not kept." name:"salt-file" placeholder:"FILE"`
	JSON     bool   `help:"One object per line." name:"json"`
}

// minSalt makes trying all salts hopeless.
const minSalt = 16

func (c *traceAnonymizeCmd) salt() ([]byte, error) {
	if c.SaltFile == "" {
		return []byte(rand.Text()), nil
	}
	salt, err := os.ReadFile(c.SaltFile)
	if err != nil {
		return nil, fmt.Errorf("--salt-file: %w", err)
	}
	if len(salt) < minSalt {
		return nil, fmt.Errorf("--salt-file %s: %d bytes can be guessed; use at least %d random ones", c.SaltFile, len(salt), minSalt)
	}
	return salt, nil
}

// Run implements the command.
func (c *traceAnonymizeCmd) Run(ctx context.Context, std streams) (err error) {
	salt, err := c.salt()
	if err != nil {
		return usageError(err)
	}
	r, err := c.open()
	if err != nil {
		return usageError(err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	p := newLateProgress(std.err, "anonymizing "+c.name())
	create := func(h trace.Header) (*trace.Writer, error) {
		if len(c.Files) > 1 {
			// All parts become one file.
			h.Part = nil
		}
		return c.create(c.edit(h))
	}
	stats, err := trace.Anonymize(ctx, r, trace.NewAnonymizer(salt), create, p.read)
	p.clear()
	if err != nil {
		return c.discard(c.readError(err))
	}
	return printReplay(std.out, c.JSON, c.made(stats, r.Stats()))
}
