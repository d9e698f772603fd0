package compare_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuide does what docs/writing-a-policy.md says: it puts the page's file and
// registry entry in place (over the sources, not in them), builds the program,
// and compares the policy.
func TestGuide(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/writing-a-policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	var file, entry, contract string
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		switch code := block[1]; {
		case strings.HasPrefix(code, "package policy"):
			file = code
		case strings.HasSuffix(strings.TrimSpace(code), "Kind(),"):
			entry = strings.TrimSpace(code)
		case strings.HasPrefix(code, "type Policy interface"):
			contract = code
		default:
			t.Errorf("a block that is not checked:\n%s", code)
		}
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	model, err := os.ReadFile(filepath.Join(root, "model/policy.go"))
	if err != nil {
		t.Fatal(err)
	}
	if contract == "" || !strings.Contains(string(model), contract) {
		t.Errorf("the interface on the page is not that of model/policy.go:\n%s", contract)
	}
	registryPath := filepath.Join(root, "model/policy/registry.go")
	registry, err := os.ReadFile(registryPath)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(registry), "aimdKind(),", "aimdKind(), "+entry, 1)
	if file == "" || entry == "" || changed == string(registry) {
		t.Fatal("the page has no file, no entry, or the registry has no list to put it into")
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		registryPath: write("registry.go", changed),
		filepath.Join(root, "model/policy/batch.go"): write("batch.go", file),
	}})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "autotune")
	command := func(name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = root
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	command("go", "build", "-overlay", write("overlay.json", string(overlay)), "-o", program, "./cmd/autotune")
	report := filepath.Join(dir, "report")
	out := command(program, "compare", "--policies", "batch,batch:packets=16", "--scenarios", "constant", "--load-scale", "0.5",
		"--seeds", "1", "--windows", "20", "--interval", "100ms", "--journal", "-o", report)
	for _, want := range []string{"batch:packets=16", "best-static"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
	out = command(program, "explain", filepath.Join(report, "journals/constant-1-batch.jsonl"), "--at", "1s")
	if !strings.Contains(out, "batch:packets=8,max=100") {
		t.Errorf("explain says:\n%s", out)
	}
}
