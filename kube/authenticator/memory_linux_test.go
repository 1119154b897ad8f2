package authenticator

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

// TestRecoveryInMemory: a recovery certificate is not kept where a restart of the machine loses it.
// Keys may be there, and without a recovery certificate the state.
func TestRecoveryInMemory(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	dir := mounttest.Disk(t)
	f := newFakeAPI(t)
	for name, in := range mounttest.InMemory(t, dir) {
		state := filepath.Join(in, "state")
		c := Config{NodeName: testNode, Dir: state, API: f.config, Kind: &documents{f: f}, RecoverySigner: csr.SignerRecoveryTPM}
		if _, err := New(c); !errors.Is(err, safefile.CheckFile) {
			t.Errorf("%s: got %v, want %v", name, err, safefile.CheckFile)
		}
		if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there is a folder: %v", name, err)
		}
		c.Dir, c.KeyDir = filepath.Join(dir, "state"), state
		if _, err := New(c); err != nil {
			t.Errorf("%s, keys: %v", name, err)
		}
		c.Dir, c.KeyDir, c.RecoverySigner = state, "", ""
		if _, err := New(c); err != nil {
			t.Errorf("%s, without a recovery certificate: %v", name, err)
		}
	}
}
