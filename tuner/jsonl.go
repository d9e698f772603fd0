package tuner

import (
	"encoding/json"
	"fmt"
	"io"
)

// JSONL is a [Journal] that writes an [Entry] per line as JSON, told apart from
// other lines of the same file by its field "kind", which is "decision". Equal
// entries give equal bytes. It neither buffers nor closes the writer.
type JSONL struct {
	w io.Writer
}

// NewJSONL returns a journal that writes to w, one Write call per entry.
func NewJSONL(w io.Writer) *JSONL { return &JSONL{w: w} }

// Record implements [Journal].
func (j *JSONL) Record(e Entry) error {
	line, err := json.Marshal(struct {
		Kind string `json:"kind"`
		Entry
	}{"decision", e})
	if err != nil {
		return fmt.Errorf("journal: encode entry of queue %v: %w", e.Queue, err)
	}
	if _, err := j.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("journal: write entry of queue %v: %w", e.Queue, err)
	}
	return nil
}
