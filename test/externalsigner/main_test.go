package externalsigner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programs is the folder of the programs that tests have built.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "nodeattest-programs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	return m.Run()
}

var builds sync.Map // by folder

// build builds the program in a folder, once for all tests.
func build(t *testing.T, folder string, env ...string) string {
	t.Helper()
	once := sync.OnceValues(func() (string, error) {
		path := filepath.Join(programs, filepath.Base(folder))
		cmd := exec.Command("go", "build", "-o", path, ".")
		cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
		return path, nil
	})
	first, _ := builds.LoadOrStore(folder, once)
	path, err := first.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
