package actuate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"autotune/model"
)

// stateVersion is the version of both state files.
const stateVersion = 1

const (
	baselineFile = "baseline.json"
	intentFile   = "intent.json"
	// temporarySuffix marks a file that is being written; one left by a crash
	// means nothing.
	temporarySuffix = ".tmp"
	// archiveSuffix marks the state of an earlier boot.
	archiveSuffix = ".earlier-boot"
)

// baseline is what a run found before its first write: of devices when it
// began, of the contexts of an application before each is first written.
type baseline struct {
	Version int    `json:"version"`
	BootID  string `json:"boot_id"`
	// Namespace is that of the devices, zero where there are none.
	Namespace namespaceIdentity `json:"namespace"`
	Devices   []baselineDevice  `json:"devices"`
	Contexts  []baselineContext `json:"contexts"`
}

type namespaceIdentity struct {
	Inode uint64 `json:"inode"`
	// Cookie tells it from a later namespace with the same number; 0 where
	// the kernel has none.
	Cookie uint64 `json:"cookie"`
	NamespaceRef
}

// is reports whether an open namespace is the one that was recorded.
func (n namespaceIdentity) is(inode, cookie uint64) bool {
	return n.Inode == inode && (n.Cookie == cookie || n.Cookie == 0 || cookie == 0)
}

type baselineDevice struct {
	Ifname  string `json:"ifname"`
	Ifindex int    `json:"ifindex"`
	MAC     string `json:"mac"`
	// Defaults are the device-level values then; null where sysfs could not
	// be read.
	Defaults *defaultsRecord `json:"defaults"`
	// Scope says what a setting reaches. With [ScopeDevice] there is one
	// queue, with the index [WholeDevice] and no NAPI ID.
	Scope  Scope           `json:"scope"`
	Queues []baselineQueue `json:"queues"`
}

type defaultsRecord struct {
	DeferHardIRQs   uint32        `json:"defer_hard_irqs"`
	GROFlushTimeout time.Duration `json:"gro_flush_timeout_ns"`
}

type baselineQueue struct {
	Index  int    `json:"index"`
	NAPIID uint32 `json:"napi_id"`
	// Original is a pointer so that a missing one is noticed, and not taken
	// for zeros.
	Original *model.Settings `json:"original"`
}

// intent is what the last Apply that wrote was about to do.
type intent struct {
	Version  int             `json:"version"`
	BootID   string          `json:"boot_id"`
	Queues   []intentQueue   `json:"queues"`
	Contexts []intentContext `json:"contexts"`
}

type intentQueue struct {
	Queue  model.Queue `json:"queue"`
	NAPIID uint32      `json:"napi_id"`
	// Confirmed was read back last; Intended is written next. Each knob is at
	// one of them, at the original, or not ours.
	Confirmed *model.Settings `json:"confirmed"`
	Intended  *model.Settings `json:"intended"`
}

// StateError is a state directory that cannot be used as it is.
type StateError struct {
	Path string
	Err  error
}

func (e *StateError) Error() string {
	dir, name := filepath.Split(e.Path)
	remedy := "what the interfaces were set to before cannot be known from it: put them back by hand " +
		"(`autotune list` shows the present values), then delete what is left of the state in " + filepath.Clean(dir)
	switch {
	case errors.Is(e.Err, errStateVersion):
		remedy = "restore with that version"
	case name == placementFile:
		remedy = "which threads and interrupts autotune moved cannot be known from it: look at /proc/irq/*/smp_affinity_list and `taskset -cp PID`, " +
			"put them back by hand, then delete it and run `autotune restore` for the rest"
	case name == intentFile:
		remedy = "which values autotune wrote cannot be known from it, but what the interfaces were set to before is in " +
			filepath.Join(dir, baselineFile) + ": put that back by hand (`autotune list` shows the present values), then delete both files"
	}
	return fmt.Sprintf("state file %s: %v; %s", e.Path, e.Err, remedy)
}

func (e *StateError) Unwrap() error { return e.Err }

var (
	errNoState       = errors.New("no state")
	errStateVersion  = errors.New("written by another version of autotune")
	errStateContents = errors.New("damaged")
)

// store is the state directory.
type store struct {
	dir string
	// step is called before each change to the directory with what is about
	// to happen; tests stop there. Nil does nothing.
	step func(string)
}

func (s store) at(point string) {
	if s.step != nil {
		s.step(point)
	}
}

func (s store) path(name string) string { return filepath.Join(s.dir, name) }

// save replaces a file so that at any instant either the old or the new one is
// whole on disk.
func (s store) save(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return fmt.Errorf("save %s: %w", s.path(name), err)
	}
	if err := s.replace(name, append(data, '\n')); err != nil {
		return fmt.Errorf("save %s: %w", s.path(name), err)
	}
	return nil
}

func (s store) replace(name string, data []byte) (err error) {
	temporary := s.path(name) + temporarySuffix
	s.at("create " + name)
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// A full disk must not keep half a file as well.
			_ = os.Remove(temporary)
			err = errors.Join(err, f.Close())
		}
	}()
	s.at("write " + name)
	if _, err = f.Write(data); err != nil {
		return err
	}
	s.at("fsync " + name)
	if err = f.Sync(); err != nil {
		return err
	}
	s.at("rename " + name)
	if err = os.Rename(temporary, s.path(name)); err != nil {
		return err
	}
	s.at("fsync directory after " + name)
	if err = syncDir(s.dir); err != nil {
		return err
	}
	return f.Close()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// load reads both files. It returns errNoState where there is no baseline, a
// nil intent where nothing was ever about to be written, and a [StateError]
// for what cannot be trusted.
func (s store) load() (*baseline, *intent, error) {
	var b baseline
	err := s.read(baselineFile, &b)
	if errors.Is(err, os.ErrNotExist) {
		if _, statErr := os.Stat(s.path(intentFile)); statErr == nil {
			// Clean-up removes the intent first, so this is not ours.
			return nil, nil, &StateError{Path: s.path(baselineFile), Err: fmt.Errorf("%w: missing, while %s exists", errStateContents, intentFile)}
		}
		return nil, nil, errNoState
	}
	if err != nil {
		return nil, nil, err
	}
	if err := b.check(); err != nil {
		return nil, nil, &StateError{Path: s.path(baselineFile), Err: err}
	}
	var in intent
	err = s.read(intentFile, &in)
	if errors.Is(err, os.ErrNotExist) {
		return &b, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if err := in.check(&b); err != nil {
		return nil, nil, &StateError{Path: s.path(intentFile), Err: err}
	}
	return &b, &in, nil
}

// read decodes one file; the version is looked at first, since a file of
// another version need not have the same fields.
func (s store) read(name string, v any) error {
	data, err := os.ReadFile(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err != nil {
		return &StateError{Path: s.path(name), Err: err}
	}
	if err := decodeState(data, v); err != nil {
		return &StateError{Path: s.path(name), Err: err}
	}
	return nil
}

func decodeState(data []byte, v any) error {
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("%w: %w", errStateContents, err)
	}
	if head.Version == nil {
		return fmt.Errorf("%w: no version", errStateContents)
	}
	if *head.Version != stateVersion {
		return fmt.Errorf("%w: version %d, this one reads %d: restore with the version that wrote it", errStateVersion, *head.Version, stateVersion)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", errStateContents, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the record", errStateContents)
	}
	return nil
}

func (b *baseline) check() error {
	if b.BootID == "" || (b.Namespace.Inode == 0) != (len(b.Devices) == 0) || len(b.Devices)+len(b.Contexts) == 0 {
		return fmt.Errorf("%w: boot ID, namespace or devices are missing", errStateContents)
	}
	seen := map[model.Queue]bool{}
	for _, d := range b.Devices {
		if d.Ifindex <= 0 || d.Ifname == "" {
			return fmt.Errorf("%w: a device without index or name", errStateContents)
		}
		if err := d.checkScope(); err != nil {
			return err
		}
		for _, q := range d.Queues {
			id := b.queue(d, q)
			if q.Original == nil || seen[id] {
				return fmt.Errorf("%w: queue %v is incomplete or repeated", errStateContents, id)
			}
			seen[id] = true
		}
	}
	return checkContexts(b.Contexts)
}

func (d baselineDevice) checkScope() error {
	for _, q := range d.Queues {
		switch {
		case d.Scope == ScopeNAPI && q.Index >= 0 && q.NAPIID != 0:
		case d.Scope == ScopeDevice && q.Index == WholeDevice && q.NAPIID == 0 && len(d.Queues) == 1:
		default:
			return fmt.Errorf("%w: %s has queue %d with NAPI %d in scope %q", errStateContents, d.Ifname, q.Index, q.NAPIID, d.Scope)
		}
	}
	return nil
}

func (b *baseline) queue(d baselineDevice, q baselineQueue) model.Queue {
	return model.Queue{Netns: b.Namespace.Inode, Ifindex: d.Ifindex, Index: q.Index}
}

func (in *intent) check(b *baseline) error {
	if in.BootID != b.BootID {
		return fmt.Errorf("%w: its boot ID is not that of %s", errStateContents, baselineFile)
	}
	known := map[model.Queue]bool{}
	for _, d := range b.Devices {
		for _, q := range d.Queues {
			known[b.queue(d, q)] = true
		}
	}
	for _, q := range in.Queues {
		if q.Confirmed == nil || q.Intended == nil || !known[q.Queue] {
			return fmt.Errorf("%w: queue %v is incomplete, repeated, or not in %s", errStateContents, q.Queue, baselineFile)
		}
		delete(known, q.Queue)
	}
	return in.checkContexts(b)
}

func (in *intent) queue(q model.Queue) *intentQueue {
	if in == nil {
		return nil
	}
	for i := range in.Queues {
		if in.Queues[i].Queue == q {
			return &in.Queues[i]
		}
	}
	return nil
}

// remove removes one file of a settled state. The intent goes first: a baseline
// alone says that nothing was written.
func (s store) remove(name string) error {
	s.at("remove " + name)
	if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove settled state: %w", err)
	}
	s.at("fsync directory after removing " + name)
	if err := syncDir(s.dir); err != nil {
		return fmt.Errorf("remove settled state: %w", err)
	}
	_ = os.Remove(s.path(name) + temporarySuffix)
	return nil
}

// archive sets the state of an earlier boot aside.
func (s store) archive() error {
	for _, name := range []string{intentFile, placementFile, baselineFile} {
		s.at("archive " + name)
		err := os.Rename(s.path(name), s.path(name)+archiveSuffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set aside the state of an earlier boot: %w", err)
		}
	}
	if err := syncDir(s.dir); err != nil {
		return fmt.Errorf("set aside the state of an earlier boot: %w", err)
	}
	return nil
}
