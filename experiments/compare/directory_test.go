package compare_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"autotune/experiments/compare"
)

func TestWhatIsNoDirectoryIsSaidInOneLine(t *testing.T) {
	robustness := func(dir string) error { _, err := compare.ReadRobustness(dir); return err }
	table := func(dir string) error { _, err := compare.ReadRobustTable(dir); return err }
	manifest := func(dir string) error { _, err := compare.ReadManifest(dir); return err }
	for _, tc := range []struct {
		name, file, content string
		read                func(string) error
	}{
		{"no variants", "other", "", robustness},
		{"variants that are no JSON", compare.RobustnessFile, "{", robustness},
		{"variants of another kind", compare.RobustnessFile, `{"kind":"other","variants":["nominal"]}`, robustness},
		{"none of the variants", compare.RobustnessFile, `{"kind":"robustness","variants":["nominal"]}`, table},
		{"a manifest that is no JSON", compare.ManifestFile, "{", manifest},
		{"a manifest of another kind", compare.ManifestFile, `{"kind":"other"}`, manifest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, tc.file), []byte(tc.content), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := tc.read(dir); !errors.Is(err, compare.ErrDirectory) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %q, want one line that wraps ErrDirectory", err)
			}
		})
	}
}
