package vectors_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
)

func TestFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "kind")
	type environment struct{ A int }
	w, err := vectors.NewWriter(folder, environment{1})
	if err != nil {
		t.Fatal(err)
	}
	v := vectors.Vector{Name: "Two Bytes, changed", Expect: "check", Document: []byte{1, 2}}
	if err := w.Write(v); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(v); err == nil {
		t.Error("written twice")
	}
	if err := (&vectors.Writer{}).Write(v); err != nil {
		t.Error(err)
	}
	var e environment
	got, err := vectors.Load(folder, &e)
	if err != nil || e.A != 1 || len(got) != 1 || got[0].Name != "two-bytes-changed" || got[0].Expect != "check" || string(got[0].Document) != "\x01\x02" {
		t.Errorf("%+v, %v, %v", got, e, err)
	}
	if _, err := vectors.NewWriter(folder, environment{2}); err != nil {
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

// TestPython replays the vectors with a reader in another language.
func TestPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3: apt-get install python3")
	}
	out, err := exec.Command("python3", filepath.Join("..", "..", "testdata", "vectors", "replay.py")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
