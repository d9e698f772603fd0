package sim

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// ErrUnknownPreset is wrapped by [LoadPreset] for a name that is neither
// shipped nor a file.
var ErrUnknownPreset = errors.New("unknown preset")

//go:embed presets/*.json
var presetFiles embed.FS

// DefaultPreset is the preset that is used when none is named.
const DefaultPreset = "epyc7662-cx5"

// Preset is a named machine: its costs, device, client and shape. JSON keeps
// every time as whole nanoseconds.
type Preset struct {
	Name string `json:"name"`
	// About says where the values are from.
	About      string     `json:"about"`
	Host       Host       `json:"host"`
	Cost       CostModel  `json:"cost"`
	NIC        NIC        `json:"nic"`
	Client     Client     `json:"client"`
	Scheduling Scheduling `json:"scheduling"`
	Background Background `json:"background"`
}

// PresetNames returns the names of the shipped presets, in order.
func PresetNames() []string {
	entries, err := fs.ReadDir(presetFiles, "presets")
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	return names
}

// LoadPreset returns a shipped preset by name, or reads the file of that path.
func LoadPreset(name string) (*Preset, error) {
	var f fs.File
	var err error
	if strings.HasSuffix(name, ".json") {
		f, err = os.Open(name)
	} else {
		f, err = presetFiles.Open(path.Join("presets", name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("preset %q (shipped are %s; a file's name ends in .json): %w",
				name, strings.Join(PresetNames(), ", "), ErrUnknownPreset)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open preset: %w", err)
	}
	p, err := ReadPreset(f)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("preset %s: %w", name, err)
	}
	return p, nil
}

// ReadPreset reads a preset. It refuses fields that do not exist, so that a
// misspelt cost is not a silent zero.
func ReadPreset(r io.Reader) (*Preset, error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	var p Preset
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return &p, p.Check()
}

// Write writes the preset as [ReadPreset] reads it.
func (p *Preset) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(p)
}

// Check refuses what cannot be simulated, by name.
func (p *Preset) Check() error {
	if err := p.Cost.Check(); err != nil {
		return err
	}
	switch {
	case p.Host.Queues < 1:
		return fmt.Errorf("host.queues is %d: must be at least 1", p.Host.Queues)
	case p.Host.Connections < p.Host.Queues:
		return fmt.Errorf("host.connections is %d: must be at least one per queue (%d)", p.Host.Connections, p.Host.Queues)
	case p.Host.Imbalance < 0 || p.Host.Imbalance > 0.5:
		return fmt.Errorf("host.imbalance is %v: must be in 0 to 0.5", p.Host.Imbalance)
	case p.Host.HeaviestShare < 0 || p.Host.HeaviestShare >= 1:
		return fmt.Errorf("host.heaviest_share is %v: must be at least 0 and below 1", p.Host.HeaviestShare)
	case p.Host.ClockMHz <= 0:
		return fmt.Errorf("host.clock_mhz is %v: must be positive", p.Host.ClockMHz)
	case p.NIC.Ring < 1:
		return fmt.Errorf("nic.ring is %d: must be at least 1", p.NIC.Ring)
	case p.Client.ACKShare < 0 || p.Client.ACKShare > 1:
		return fmt.Errorf("client.ack_share is %v: must be in 0 to 1", p.Client.ACKShare)
	case p.Client.RoundTrip < 0:
		return fmt.Errorf("client.round_trip_ns is %d: must not be negative", int64(p.Client.RoundTrip))
	case p.Scheduling.Hold < 0 || p.Scheduling.CatchUp < 0:
		return fmt.Errorf("scheduling.displaced_hold_ns is %d and catch_up_ns %d: must not be negative",
			int64(p.Scheduling.Hold), int64(p.Scheduling.CatchUp))
	case p.Client.Retry <= 0:
		return fmt.Errorf("client.retry_ns is %d: must be positive", int64(p.Client.Retry))
	}
	return nil
}
