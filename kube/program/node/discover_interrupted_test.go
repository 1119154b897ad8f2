package node

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// interrupted runs the command, and sends SIGINT after a pause. The status is -1 if the signal killed it.
func (b *bare) interrupted(t *testing.T, pause time.Duration, args []string) (status int, said string, took time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.Must(os.Executable()))
	cmd.Env = append(os.Environ(), commandVar+"="+base64.StdEncoding.EncodeToString([]byte(strings.Join(append([]string{"discover", "--dir", b.dir}, args...), "\n"))))
	stdin := testkit.Must(cmd.StdinPipe()) // which stays open
	defer stdin.Close()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	testkit.MustDo(cmd.Start())
	time.Sleep(pause)
	began := time.Now()
	testkit.MustDo(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String(), time.Since(began)
}

// TestDiscoverInterrupted: SIGINT ends the program at once, also while it reads standard input, and no
// file is written.
func TestDiscoverInterrupted(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	b := newBare(t, cluster)
	for name, args := range map[string][]string{
		"a server that does not run": b.pinned(cluster.Info().Pins()[0], "127.0.0.1:1"),
		"standard input":             {"--discovery-file", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			for pause := 500 * time.Millisecond; ; pause *= 2 { // a busy machine may not have begun to take signals
				code, said, took := b.interrupted(t, pause, args)
				if code == -1 && pause < 8*time.Second {
					continue
				}
				if code != 3 || took > 2*time.Second || !strings.Contains(said, context.Canceled.Error()) {
					t.Errorf("status %d after %s: %s", code, took, said)
				}
				break
			}
			if ca, kubeconfig := b.files(); ca+kubeconfig != "" {
				t.Error("it wrote a file")
			}
		})
	}
}
