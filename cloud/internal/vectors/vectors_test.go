package vectors_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
)

func TestFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "kind")
	type environment struct{ A int }
	var cases vectors.Cases
	cases.Add(vectors.Vector{Name: "Two Bytes, changed", Expect: "check", Document: []byte{1, 2}})
	if err := append(cases, cases[0]).Write(folder, environment{1}); err == nil {
		t.Error("written twice")
	}
	if err := cases.Write(folder, environment{1}); err != nil {
		t.Fatal(err)
	}
	var e environment
	got, err := vectors.Load(folder, &e)
	if err != nil || e.A != 1 || len(got) != 1 || got[0].Name != "two-bytes-changed" || got[0].Expect != "check" || string(got[0].Document) != "\x01\x02" {
		t.Errorf("%+v, %v, %v", got, e, err)
	}
	if err := (vectors.Cases{}).Write(folder, environment{2}); err != nil {
		t.Fatal(err)
	}
	if _, err := vectors.Load(folder, &e); err == nil {
		t.Error("no vectors are no error")
	}
	if err := os.WriteFile(filepath.Join(folder, "x.json"), []byte(`{"name":"y"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := vectors.Load(folder, &e); err == nil {
		t.Error("another name is no error")
	}
	if err := os.WriteFile(filepath.Join(folder, "x.json"), []byte(`{"name":"x","new":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := vectors.Load(folder, &e); err == nil {
		t.Error("a member unknown is no error")
	}
}

// A case without a file and a file without a case are each named.
func TestCompare(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "kind")
	var cases vectors.Cases
	cases.Add(vectors.Vector{Name: "a"})
	cases.Add(vectors.Vector{Name: "b"})
	if err := cases.Write(folder, struct{}{}); err != nil {
		t.Fatal(err)
	}
	if err := cases.Compare(folder); err != nil {
		t.Error(err)
	}
	cases.Add(vectors.Vector{Name: "c"})
	if err := cases.Compare(folder); err == nil || !strings.Contains(err.Error(), "c.json is not there") {
		t.Errorf("a case without a file: %v", err)
	}
	if err := (vectors.Cases{}).Compare(folder); err == nil || !strings.Contains(err.Error(), "b.json: no test makes") {
		t.Errorf("files without a case: %v", err)
	}
}
