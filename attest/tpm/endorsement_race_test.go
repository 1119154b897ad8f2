package tpm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

const racerEnv = "NODEATTEST_TEST_PASSWORD_FILE"

// TestPasswordFileRacer is a process of TestPasswordFileRace, and nothing by itself.
func TestPasswordFileRacer(t *testing.T) {
	path := os.Getenv(racerEnv)
	if path == "" {
		return
	}
	content, err := newPasswordFile(path)
	testkit.NoError(t, err)
	os.Stdout.WriteString("password=" + string(content))
}

// Processes that start together end up with one file and one password.
func TestPasswordFileRace(t *testing.T) {
	dir := mounttest.Disk(t)
	path := filepath.Join(dir, "secret")
	racers := make([]*exec.Cmd, 4)
	outputs := make([]bytes.Buffer, len(racers))
	for i := range racers {
		racers[i] = exec.Command(os.Args[0], "-test.run=^TestPasswordFileRacer$")
		racers[i].Env = append(os.Environ(), racerEnv+"="+path)
		racers[i].Stdout, racers[i].Stderr = &outputs[i], &outputs[i]
		testkit.NoError(t, racers[i].Start())
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
