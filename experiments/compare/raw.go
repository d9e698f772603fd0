package compare

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// The files of a comparison's directory.
const (
	// ManifestFile is written last: a directory without it is not complete.
	ManifestFile = "manifest.json"
	// RowsFile has a line per window and one per cell.
	RowsFile = "windows.jsonl.zst"
	// TableFile keeps the references' table of steady states.
	TableFile = "steady.json"
)

// Manifest says what a directory holds.
type Manifest struct {
	Kind string `json:"kind"` // "manifest"
	Plan Plan   `json:"plan"`
	// Shard and Shards name the part; both are 0 where it is all.
	Shard  int `json:"shard"`
	Shards int `json:"shards"`
	Cells  int `json:"cells"`
	// Digest is the SHA-256 of the rows' file.
	Digest string `json:"rows_sha256"`
}

type windowLine struct {
	Kind      string `json:"kind"` // "window"
	Scenario  string `json:"scenario"`
	Seed      uint64 `json:"seed"`
	Contender string `json:"contender"`
	Window
}

type cellLine struct {
	Kind string `json:"kind"` // "cell"
	Cell
}

// WriteRaw writes the cells of a plan, or of one shard of it, into a directory
// that exists.
func WriteRaw(dir string, plan Plan, shard, shards int, cells []Cell) error {
	// An old manifest must not vouch for new rows.
	if err := os.Remove(filepath.Join(dir, ManifestFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace the manifest: %w", err)
	}
	rows, err := encodeRows(cells)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, RowsFile), rows); err != nil {
		return fmt.Errorf("write the rows: %w", err)
	}
	sum := sha256.Sum256(rows)
	text, err := json.MarshalIndent(Manifest{
		Kind: "manifest", Plan: plan, Shard: shard, Shards: shards, Cells: len(cells), Digest: hex.EncodeToString(sum[:]),
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	if err := writeFile(filepath.Join(dir, ManifestFile), append(text, '\n')); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

func encodeRows(cells []Cell) ([]byte, error) {
	var out bytes.Buffer
	// One goroutine gives the same bytes everywhere.
	z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("compress the rows: %w", err)
	}
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	for i := range cells {
		c := &cells[i]
		for _, w := range c.Windows {
			if err := e.Encode(windowLine{"window", c.Scenario, c.Seed, c.Contender, w}); err != nil {
				return nil, fmt.Errorf("encode a window: %w", err)
			}
		}
		if err := e.Encode(cellLine{"cell", *c}); err != nil {
			return nil, fmt.Errorf("encode a cell: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress the rows: %w", err)
	}
	return out.Bytes(), nil
}

// ErrDirectory is wrapped by errors of directories that hold no complete
// comparison.
var ErrDirectory = errors.New("not the directory of a comparison")

// notDirectory returns an error in one line that wraps [ErrDirectory] and err, if
// there is one.
func notDirectory(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if err == nil {
		return fmt.Errorf("%s: %w", what, ErrDirectory)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrDirectory, err)
}

// ReadManifest reads what a directory says of itself.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	if info, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return m, notDirectory(nil, "there is no directory %s", dir)
	} else if err == nil && !info.IsDir() {
		return m, notDirectory(nil, "%s is not a directory", dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return m, fmt.Errorf("%s has no %s (its run did not finish): %w", dir, ManifestFile, ErrDirectory)
	}
	if err != nil {
		return m, notDirectory(err, "read the manifest")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil || m.Kind != "manifest" {
		return m, notDirectory(err, "%s is no manifest", filepath.Join(dir, ManifestFile))
	}
	return m, nil
}

// ReadRaw reads a directory that [WriteRaw] wrote.
func ReadRaw(dir string) (Manifest, []Cell, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return m, nil, err
	}
	path := filepath.Join(dir, RowsFile)
	rows, err := os.ReadFile(path)
	if err != nil {
		return m, nil, fmt.Errorf("read the rows: %w", err)
	}
	if sum := sha256.Sum256(rows); hex.EncodeToString(sum[:]) != m.Digest {
		return m, nil, fmt.Errorf("%s is not what its manifest says (it is damaged, or of another run): %w", path, ErrDirectory)
	}
	cells, err := decodeRows(bytes.NewReader(rows))
	if err != nil {
		return m, nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(cells) != m.Cells {
		return m, nil, fmt.Errorf("%s has %d cells, its manifest %d: %w", path, len(cells), m.Cells, ErrDirectory)
	}
	return m, cells, nil
}

// maxLine bounds a line of rows.
const maxLine = 1 << 20

func decodeRows(r io.Reader) ([]Cell, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	lines := bufio.NewScanner(z)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	var out []Cell
	var windows []Window
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		var head struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(line, &head); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch head.Kind {
		case "window":
			var w windowLine
			if err := json.Unmarshal(line, &w); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			windows = append(windows, w.Window)
		case "cell":
			var c cellLine
			if err := json.Unmarshal(line, &c); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			c.Windows = windows
			out = append(out, c.Cell)
			windows = nil
		default:
			return nil, fmt.Errorf("line %d: unknown kind %q", n, head.Kind)
		}
	}
	return out, lines.Err()
}
