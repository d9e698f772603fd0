package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errNoPollOutcome means that the napi_poll tracepoint of this kernel does not
// tell what a poll did, so that nothing can be adapted to it.
var errNoPollOutcome = errors.New("poll outcome is not available: the napi_poll tracepoint lacks it")

// tracepointField is one field of a tracepoint's record.
type tracepointField struct{ offset, size int }

// parseFormat reads a tracepoint's format file (f_show in
// kernel/trace/trace_events.c) and returns its fields by name. Offsets differ
// between kernels and builds.
func parseFormat(r io.Reader) (map[string]tracepointField, error) {
	fields := make(map[string]tracepointField)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		declaration, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "field:")
		if !ok {
			continue
		}
		name, attributes, _ := strings.Cut(declaration, ";")
		if i := strings.LastIndexAny(name, " *"); i >= 0 {
			name = name[i+1:]
		}
		name, _, _ = strings.Cut(name, "[")
		var field tracepointField
		for attribute := range strings.SplitSeq(attributes, ";") {
			key, value, ok := strings.Cut(strings.TrimSpace(attribute), ":")
			if !ok || (key != "offset" && key != "size") {
				continue
			}
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return nil, fmt.Errorf("tracepoint format: field %s: %w", name, err)
			}
			if key == "offset" {
				field.offset = int(n)
			} else {
				field.size = int(n)
			}
		}
		if name == "" || field.size == 0 {
			return nil, fmt.Errorf("tracepoint format: field %q has no name or size", declaration)
		}
		fields[name] = field
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("tracepoint format: %w", err)
	}
	return fields, nil
}

// checkPollFormat returns an error wrapping errNoPollOutcome that names the
// fields that the napi_poll tracepoint lacks.
func checkPollFormat(r io.Reader) error {
	fields, err := parseFormat(r)
	if err != nil {
		return err
	}
	var lacking []string
	for _, name := range []string{"napi", "work", "budget"} {
		if _, ok := fields[name]; !ok {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("%w (no field %s)", errNoPollOutcome, strings.Join(lacking, ", "))
	}
	return nil
}
