package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// lockdownLevel is how far the kernel is locked down against root
// (security/lockdown/lockdown.c).
type lockdownLevel string

const (
	lockdownNone            lockdownLevel = "none"
	lockdownIntegrity       lockdownLevel = "integrity"
	lockdownConfidentiality lockdownLevel = "confidentiality"
)

// parseLockdown returns the level in brackets.
func parseLockdown(text string) (lockdownLevel, error) {
	for word := range strings.FieldsSeq(text) {
		inner, ok := strings.CutPrefix(word, "[")
		if !ok {
			continue
		}
		switch level := lockdownLevel(strings.TrimSuffix(inner, "]")); level {
		case lockdownNone, lockdownIntegrity, lockdownConfidentiality:
			return level, nil
		}
	}
	return "", fmt.Errorf("lockdown level: none known in %q", strings.TrimSpace(text))
}

// readLockdown reads the level below root. The error wraps fs.ErrNotExist where
// securityfs is not mounted or the kernel has no lockdown.
func readLockdown(root string) (lockdownLevel, error) {
	data, err := os.ReadFile(filepath.Join(root, "sys/kernel/security/lockdown"))
	if err != nil {
		return "", fmt.Errorf("lockdown level: %w", err)
	}
	return parseLockdown(string(data))
}
