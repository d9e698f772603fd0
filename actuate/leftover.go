package actuate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Leftovers returns the state directories of runs that ended without restoring,
// as the device locks tell, in order. Those whose state is gone are left out.
// An empty runDir is [DefaultRunDir].
func Leftovers(runDir string) ([]string, error) {
	if runDir == "" {
		runDir = DefaultRunDir
	}
	paths, err := filepath.Glob(filepath.Join(runDir, "*.lock"))
	if err != nil {
		return nil, fmt.Errorf("list device locks: %w", err)
	}
	var dirs []string
	for _, path := range paths {
		dir, err := leftover(path)
		if err != nil {
			return dirs, err
		}
		if dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

func leftover(path string) (dir string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read device lock: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		// A live run has it.
		return "", nil
	}
	owner, err := readOwner(f)
	if err != nil || owner == nil || owner.StateDir == "" {
		// A record that cannot be read names nobody.
		return "", nil
	}
	if _, err := os.Stat(filepath.Join(owner.StateDir, baselineFile)); err != nil {
		return "", nil
	}
	return owner.StateDir, nil
}
