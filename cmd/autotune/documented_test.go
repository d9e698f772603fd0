package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources are the packages whose types are printed as JSON. A preset, which is a
// file of its own, is not among them.
func sources() map[string]string {
	return map[string]string{
		"main": ".", "compare": "../../experiments/compare", "demo": "../../experiments/demo", "counterfactual": "../../experiments/counterfactual",
		"stats": "../../experiments/stats", "model": "../../model", "tuner": "../../tuner", "busypoll": "../../actuate/busypoll",
		"readiness": "../../model/readiness", "placement": "../../actuate/placement", "actuate": "../../actuate",
		"servers": "../../experiments/servers", "workload": "../../experiments/workload",
	}
}

// structs returns the struct types of a package, by name.
func structs(t *testing.T, dir string) map[string]*ast.StructType {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s (%v)", dir, err)
	}
	out := map[string]*ast.StructType{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					out[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return out
}

func jsonName(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return name
}

// TestEveryFieldOfTheOutputIsDocumented reads the source for what commands print,
// so that a new field cannot be forgotten.
func TestEveryFieldOfTheOutputIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	word := regexp.MustCompile(`[a-z0-9_]+`)
	for _, quoted := range regexp.MustCompile("`[^`]+`").FindAllString(string(text), -1) {
		for _, name := range word.FindAllString(quoted, -1) {
			documented[name] = true
		}
	}
	packages := map[string]map[string]*ast.StructType{}
	for name, dir := range sources() {
		packages[name] = structs(t, dir)
	}
	seen := map[string]bool{}
	var walk func(pkg, path string, e ast.Expr)
	fields := func(pkg, path string, s *ast.StructType) {
		for _, f := range s.Fields.List {
			name := jsonName(f)
			if name == "-" {
				continue
			}
			if name != "" && !documented[name] {
				t.Errorf("docs/json.md does not tell of %q in %s", name, path)
			}
			if name != "" || len(f.Names) == 0 {
				walk(pkg, path+"."+name, f.Type)
			}
		}
	}
	walk = func(pkg, path string, e ast.Expr) {
		switch e := e.(type) {
		case *ast.StarExpr:
			walk(pkg, path, e.X)
		case *ast.ArrayType:
			walk(pkg, path, e.Elt)
		case *ast.MapType:
			walk(pkg, path, e.Value)
		case *ast.StructType:
			fields(pkg, path, e)
		case *ast.SelectorExpr:
			if x, ok := e.X.(*ast.Ident); ok && packages[x.Name] != nil {
				walk(x.Name, path, e.Sel)
			}
		case *ast.Ident:
			s, ok := packages[pkg][e.Name]
			if ok && !seen[pkg+"."+e.Name] {
				seen[pkg+"."+e.Name] = true
				fields(pkg, path, s)
			}
		}
	}
	kinds := 0
	for _, pkg := range []string{"main", "compare", "demo", "counterfactual", "servers"} {
		for name, s := range packages[pkg] {
			if slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool { return jsonName(f) == "kind" }) {
				kinds++
				walk(pkg, pkg+"."+name, ast.NewIdent(name))
			}
		}
	}
	if kinds < 20 {
		t.Errorf("only %d kinds of lines were found in the source", kinds)
	}
}

// TestTheDocumentedCommandsAreUnderstood parses every command of the README and
// the pages. Whether files are there is not asked.
func TestTheDocumentedCommandsAreUnderstood(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../../README.md", "../../deploy/autotune.service") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commandsIn(string(text)) {
			found++
			var c cli
			p, err := newParser(&c, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Parse(command); err != nil && !strings.Contains(err.Error(), "no such file") {
				t.Errorf("%s: autotune %s: %v", filepath.Base(page), strings.Join(command, " "), err)
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d commands were found", found)
	}
}

// commandsIn returns the words of each line of a text that calls autotune, or of
// what stands in backquotes there and has a flag.
func commandsIn(text string) [][]string {
	text = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, " ")
	var out [][]string
	line := regexp.MustCompile(`(?m)^(?:    |seq.*parallel |ExecSt\w+=-?)(?:\S*/)?autotune ([a-z].*)$`)
	fence := regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		text += "\n    " + strings.ReplaceAll(block[1], "\n", "\n    ")
	}
	quoted := regexp.MustCompile("`(?:bin/)?autotune ([a-z][^`]* --?[a-z][^`]*)`")
	for _, m := range append(line.FindAllStringSubmatch(text, -1), quoted.FindAllStringSubmatch(text, -1)...) {
		if words := shellWords(m[1]); words != nil {
			out = append(out, words)
		}
	}
	return out
}

// shellWords splits a simple command; nil where it has a choice in brackets.
func shellWords(command string) []string {
	var out []string
	for _, word := range regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`).FindAllString(command, -1) {
		switch {
		case strings.HasPrefix(word, "["), strings.Contains(word, "`"):
			return nil
		case word == "#", word == "|", word == ">", word == "&&":
			return out
		}
		out = append(out, strings.NewReplacer(`"`, "", `'`, "", "$INTERFACES", "eth0", "$SLURM_CPUS_PER_TASK", "2").Replace(word))
	}
	return out
}
