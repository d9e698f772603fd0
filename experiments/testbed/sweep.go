//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// Sweep removes every bed whose owner no longer runs, and returns the names
// of the namespaces that it removed. Beds of running owners are left alone.
// Processes that such an owner had started in its bed were killed by the
// kernel with it.
func Sweep() (removed []string, err error) {
	entries, err := os.ReadDir(runDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list named network namespaces: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		name, ok := parseName(entry.Name())
		if !ok || name.owner.alive() {
			continue
		}
		if err := removeStale(entry.Name()); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, entry.Name())
	}
	return removed, errors.Join(errs...)
}

// removeStale removes one namespace. Two sweepers may meet; what the other has
// removed is no error. Removing the links by hand makes their end immediate,
// where the kernel would clean up some time later.
func removeStale(name string) error {
	path := filepath.Join(runDir, name)
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open stale network namespace %s: %w", name, err)
	}
	ns := &Namespace{Name: name, Path: path, file: file}
	// The file is not a namespace if its owner died before binding it; then
	// there is no link to remove.
	_ = ns.with(func(h *netlink.Handle) error {
		for _, ifname := range []string{"server0", "client0"} {
			link, err := h.LinkByName(ifname)
			if err != nil {
				continue
			}
			if err := h.LinkDel(link); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(unbind(path), file.Close())
}
