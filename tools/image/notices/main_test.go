package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNotices makes the files for the program that runs the test: each module that the go
// command recorded in it has its licence, and its line in the bill.
func TestNotices(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var made [2][2][]byte
	for i := range made {
		dir := filepath.Join(t.TempDir(), "new")
		if err := run([]string{"-o", dir, program, program}, io.Discard); err != nil {
			t.Fatal(err)
		}
		for j, name := range []string{"THIRD_PARTY", "sbom.cdx.json"} {
			if made[i][j], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(made[0][j], made[i][j]) {
				t.Errorf("two %s of the same program differ", name)
			}
		}
	}
	var bill struct {
		BOMFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(made[0][1], &bill); err != nil || bill.BOMFormat != "CycloneDX" {
		t.Fatalf("%v: %s", err, made[0][1])
	}
	listed := map[string]string{}
	for _, c := range bill.Components {
		listed[c.Name] = c.Purl
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) == 0 || listed["std"] == "" || !strings.Contains(string(made[0][0]), "==== Go: LICENSE\n") {
		t.Errorf("%d modules, std %q: %.200s", len(info.Deps), listed["std"], made[0][0])
	}
	for _, m := range info.Deps {
		if want := "pkg:golang/" + m.Path + "@" + m.Version; listed[m.Path] != want {
			t.Errorf("in the bill %q, want %q", listed[m.Path], want)
		}
		if !strings.Contains(string(made[0][0]), "==== "+m.Path+" "+m.Version+": LICENSE") {
			t.Errorf("no licence of %s", m.Path)
		}
	}
}

// TestNoticesRefuses checks that nothing is written for a licence that forbids copies, or for a
// module without a program.
func TestNoticesRefuses(t *testing.T) {
	empty := t.TempDir()
	if _, err := thirdParty([]module{{"example.com/unlicensed", "v1.0.0"}}, func(module) (string, error) { return empty, nil }); err == nil || !strings.Contains(err.Error(), "example.com/unlicensed v1.0.0: no licence") {
		t.Errorf("a module without a licence: %v", err)
	}
	if _, err := thirdParty([]module{{own + "/kube", "(devel)"}}, nil); err != nil {
		t.Errorf("a module of ours: %v", err)
	}
	for name, args := range map[string][]string{
		"no program":      {"-o", empty},
		"no folder":       {"main.go"},
		"not a program":   {"-o", empty, "main.go"},
		"a flag too many": {"-x"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
