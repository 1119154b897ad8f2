package vector

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder writes a good folder of vectors, one a class, and returns it.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, EnvironmentFile, Environment{})
	for _, class := range Classes() {
		v := good(class)
		write(t, dir, class+"/"+v.Name+".json", v)
	}
	return dir
}

func good(class string) *Vector {
	v := &Vector{Name: "one", Class: class, Description: "One.", Level: LevelBundle, Bundle: &Bundle{PEM: []byte{}}, Expect: "bundle-size"}
	if class == "accepted" {
		v.Expect = ""
	}
	return v
}

// write writes a value as JSON, or a string as it is.
func write(t *testing.T, dir, name string, v any) {
	t.Helper()
	data, isText := v.(string)
	if !isText {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		data = string(text)
	}
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLoad(t *testing.T) {
	set, err := Load(os.DirFS(folder(t)))
	if err != nil || len(set.Vectors) != len(Classes()) {
		t.Fatalf("%v, %v", set, err)
	}
}

// What could hide a vector from the replay is an error.
func TestLoadRefuses(t *testing.T) {
	edit := func(how func(*Vector)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			v := good("request")
			how(v)
			write(t, dir, "request/one.json", v)
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"no folder":            {func(t *testing.T, dir string) { remove("")(t, dir) }, "no such file"},
		"no environment":       {remove(EnvironmentFile), EnvironmentFile},
		"no class":             {remove("binding"), "class binding"},
		"an empty class":       {func(t *testing.T, dir string) { remove("binding/one.json")(t, dir) }, "is empty"},
		"a class too many":     {func(t *testing.T, dir string) { write(t, dir, "other/one.json", good("other")) }, "does not belong"},
		"a file too many":      {func(t *testing.T, dir string) { write(t, dir, "one.json", good("request")) }, "does not belong"},
		"no JSON file":         {func(t *testing.T, dir string) { write(t, dir, "request/one.txt", "x") }, "does not belong"},
		"a folder in a class":  {func(t *testing.T, dir string) { write(t, dir, "request/two.json/x.json", "x") }, "does not belong"},
		"no JSON":              {func(t *testing.T, dir string) { write(t, dir, "request/one.json", "x") }, "invalid"},
		"an empty file":        {func(t *testing.T, dir string) { write(t, dir, "request/one.json", "") }, "EOF"},
		"two values":           {func(t *testing.T, dir string) { write(t, dir, "binding/one.json", mustJSON(t, good("binding"))+"{}") }, "something after"},
		"an unknown member":    {func(t *testing.T, dir string) { write(t, dir, "request/one.json", `{"names":"one"}`) }, "unknown field"},
		"unknown in the input": {func(t *testing.T, dir string) { write(t, dir, "request/one.json", `{"bundle":{"pam":""}}`) }, "unknown field"},
		"unknown environment":  {func(t *testing.T, dir string) { write(t, dir, EnvironmentFile, `{"nows":""}`) }, "unknown field"},
		"another name":         {edit(func(v *Vector) { v.Name = "two" }), "calls itself"},
		"another class":        {edit(func(v *Vector) { v.Class = "binding" }), "calls itself"},
		"no description":       {edit(func(v *Vector) { v.Description = "" }), "no description"},
		"unknown level":        {edit(func(v *Vector) { v.Level = "other" }), "unknown level"},
		"no input":             {edit(func(v *Vector) { v.Bundle = nil }), "input"},
		"another input":        {edit(func(v *Vector) { v.Level = LevelNode }), "input"},
		"two inputs":           {edit(func(v *Vector) { v.Value = []byte{1} }), "input"},
		"a target":             {edit(func(v *Vector) { v.TargetSigner = "x" }), "targetSigner"},
		"a package":            {func(t *testing.T, dir string) { write(t, dir, "request/one.json", `{"package":"csr"}`) }, "unknown field"},
		"a refusal's result":   {edit(func(v *Vector) { v.Result = &Result{} }), "result"},
		"accepted, by check": {func(t *testing.T, dir string) {
			v := good("request")
			v.Class = "accepted"
			write(t, dir, "accepted/one.json", v)
		}, "expects"},
		"a retried history":     {edit(func(v *Vector) { v.Environment = historyOf(Operation{Op: "bind", Retry: true}) }), "another try"},
		"a bad history":         {edit(func(v *Vector) { v.Environment = historyOf(Operation{Op: "bind", Expect: "x"}) }), "the last operation"},
		"calls for another end": {edit(calls(Operation{Op: "bind", Expect: "other"})), "the last operation"},
		"calls with both":       {edit(calls(Operation{Op: "bind", Expect: "bundle-size", Found: &RegistryFound{}})), "a refusal and a record"},
		"refused, by none":      {edit(func(v *Vector) { v.Expect = "" }), "expects"},
		"acceptance and retry": {func(t *testing.T, dir string) {
			v := good("accepted")
			v.Retry = true
			write(t, dir, "accepted/one.json", v)
		}, "something else"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			c.change(t, dir)
			set, err := Load(os.DirFS(dir))
			if err == nil || !strings.Contains(err.Error(), c.want) || set != nil {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func calls(o Operation) func(*Vector) {
	return func(v *Vector) { v.Level, v.Bundle, v.Registry = LevelRegistry, nil, []Operation{o} }
}

func historyOf(o Operation) *Environment {
	return &Environment{FirstUse: &FirstUse{History: []Operation{o}}}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
