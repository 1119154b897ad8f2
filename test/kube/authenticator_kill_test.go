package kube

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestKillAuthenticator kills cold runs of the plugin at random points: the stored state is
// always whole, and the next run that is left alone gets a certificate, whatever the ones
// before have left in the TPM, which here no kernel tidies up.
func TestKillAuthenticator(t *testing.T) {
	t.Parallel()
	program := buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c.firstUse(t, device, "node-1")
	m := c.install(t, program, "node-1", device, nil)
	m.credential(t)
	state := filepath.Join(m.dir, "state")
	store, err := certstore.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	const kills = 30
	finished := 0
	for range kills {
		cmd := exec.Command(program, "--config", m.config, "rotate")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var once sync.WaitGroup
		once.Go(func() {
			time.Sleep(time.Duration(20+rand.N(250)) * time.Millisecond)
			_ = cmd.Process.Kill()
		})
		if cmd.Wait() == nil {
			finished++
		}
		once.Wait()
		if p, err := store.ReadPair(authenticator.ClientFile); err != nil || p.Leaf.Subject.CommonName != csr.NodeUserPrefix+m.name {
			t.Fatalf("stored: %+v, %v", p, err)
		}
	}
	t.Logf("%d of %d runs came to their end", finished, kills)
	if left, err := tpmsim.LoadedHandles(device); err == nil {
		t.Logf("left in the TPM: %v", left)
	}
	l, err := store.TryLock()
	if err != nil {
		t.Fatalf("the lock outlived its holder: %v", err)
	}
	if err := errors.Join(l.Remove(authenticator.ClientFile), l.Remove("client.previous.pem"), l.Unlock()); err != nil {
		t.Fatal(err)
	}
	m.credential(t)
	if _, err := store.ReadPair(authenticator.ClientFile); errors.Is(err, fs.ErrNotExist) {
		t.Error("nothing is stored")
	}
}
