package tpm

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPrivateFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	if _, err := readPrivateFile(path, 10); !errors.Is(err, errNoPrivateFile) {
		t.Errorf("no file: got %v", err)
	}
	if err := writePrivateFile(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := writePrivateFile(path, []byte("second")); !errors.Is(err, errPrivateFileExists) {
		t.Errorf("over another file: got %v", err)
	}
	if err := syncPrivateFile(path); err != nil {
		t.Error(err)
	}
	got, err := readPrivateFile(path, 5)
	if err != nil || string(got) != "first" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := readPrivateFile(path, 4); !errors.Is(err, ErrPasswordFile) {
		t.Errorf("over the size: got %v, want ErrPasswordFile", err)
	}
	checkFiles(t, dir, "secret")
}

func TestPrivateFileInNoDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "absent", "secret"), dir + string(filepath.Separator), ""} {
		if err := writePrivateFile(path, []byte("x")); err == nil {
			t.Errorf("%q was written", path)
		}
	}
	checkFiles(t, dir)
}

const racerEnv = "NODEATTEST_TEST_PASSWORD_FILE"

// TestPrivateFileRacer is a process of TestPrivateFileRace, and nothing by itself.
func TestPrivateFileRacer(t *testing.T) {
	path := os.Getenv(racerEnv)
	if path == "" {
		return
	}
	content, err := newPasswordFile(path)
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("password=" + string(content))
}

// Processes that start together end up with one file and one password.
func TestPrivateFileRace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	racers := make([]*exec.Cmd, 4)
	outputs := make([]bytes.Buffer, len(racers))
	for i := range racers {
		racers[i] = exec.Command(os.Args[0], "-test.run=^TestPrivateFileRacer$")
		racers[i].Env = append(os.Environ(), racerEnv+"="+path)
		racers[i].Stdout, racers[i].Stderr = &outputs[i], &outputs[i]
		if err := racers[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range racers {
		if err := r.Wait(); err != nil {
			t.Errorf("racer %d: %v: %s", i, err, outputs[i].String())
		}
	}
	want := "password=" + string(readAll(t, path))
	for i := range outputs {
		if !strings.Contains(outputs[i].String(), want) {
			t.Errorf("racer %d has another password than the file", i)
		}
	}
	checkFiles(t, dir, "secret")
}
