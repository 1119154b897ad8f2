//go:build unix

package keys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// crashAt, in the environment of this program, has it end itself at a step of a rotation.
const crashAt = "KEYS_CRASH_AT"

// TestKilled: SIGKILL ends a process at each step of a first start and of a rotation. The next one accepts every
// token that it signed, signs with the new key once that has been published for Publish, and, if the file has
// the old key as well, signs all the time.
func TestKilled(t *testing.T) {
	if at := os.Getenv(crashAt); at != "" {
		dir, step, _ := strings.Cut(at, "|")
		rotateUntil(t, dir, testkit.Must(strconv.Atoi(step)))
		return
	}
	for _, file := range [][]int{{4}, {4, 1}} {
		t.Run(fmt.Sprint("a file of keys ", file), func(t *testing.T) {
			steps := 0
			for ; killed(t, steps, file); steps++ {
			}
			if steps < 10 {
				t.Errorf("only %d steps", steps)
			}
		})
	}
}

// rotateUntil runs in a process of its own: it starts, signs, rotates and signs. It prints the key of each token.
func rotateUntil(t *testing.T, dir string, step int) {
	b := newBench(t)
	b.dir = dir
	b.config.KeyFile, b.config.StateFile, b.config.PeersFolder = b.path("key.pem"), b.path("state.json"), ""
	count := 0
	b.config.step = func(string) {
		if count++; count == step+1 {
			testkit.MustDo(syscall.Kill(os.Getpid(), syscall.SIGKILL))
			select {}
		}
	}
	b.start()
	issue := func() { fmt.Println("signed:" + b.signs()) }
	issue()
	testkit.MustDo(os.Rename(b.path("next.pem"), b.path("key.pem")))
	b.pass(0)
	issue()
	b.pass(publish)
	issue()
}

// killed runs a process that ends at a step, and the next one. It reports whether there is such a step.
func killed(t *testing.T, step int, file []int) bool {
	b := newBench(t)
	b.config.PeersFolder = ""
	b.write("key.pem", privatePEM(1))
	b.write("next.pem", privatePEM(file...))
	process := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	process.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d", crashAt, b.dir, step))
	out, err := process.Output()
	exit, ended := errors.AsType[*exec.ExitError](err)
	if ended && exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("step %d: %v: %s", step, err, out)
	}
	b.clock = b.clock.Add(publish)
	if _, err := os.Stat(b.path("next.pem")); err == nil { // it was killed before: the operator goes on
		b.start()
		testkit.MustDo(os.Rename(b.path("next.pem"), b.path("key.pem")))
		b.pass(0)
	} else {
		b.start()
	}
	for line := range strings.Lines(string(out)) {
		if signed, ok := strings.CutPrefix(strings.TrimSpace(line), "signed:"); ok {
			if keys, err := b.keys.Keys(context.Background(), signed); err != nil || len(keys) != 1 {
				t.Errorf("step %d: a token is refused: %v\n%s", step, err, b.log)
			}
		}
	}
	if got := b.signs(); len(file) == 2 && got != id(1) && got != id(4) {
		t.Errorf("step %d: got %s", step, got)
	}
	b.pass(publish - time.Second)
	b.pass(time.Second)
	b.wantSigns(4)
	b.pass(retain)
	b.wantKeys(4)
	return ended
}
