package keys

import (
	"os"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

// TestFullDisk: while the state cannot be written the old key signs, peers' keys are published all the same, and a
// program that has nothing new to write starts.
func TestFullDisk(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	for name, breaks := range map[string]func(d *mounttest.SmallDisk){
		"full":      (*mounttest.SmallDisk).Fill,
		"read-only": func(d *mounttest.SmallDisk) { d.ReadOnly(true) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := mounttest.NewSmallDisk(t, 64<<10)
			b := newBench(t)
			b.config.StateFile = disk.Path("state.json")
			b.start()
			b.wantLog("after a restart of the machine") // for it is in memory
			before := string(testkit.Must(os.ReadFile(b.config.StateFile)))
			breaks(disk)
			b.start()
			b.write("key.pem", privatePEM(2))
			b.write("peers/p.pem", publicPEM(3))
			for range 3 {
				b.pass(publish)
			}
			b.wantSigns(1)
			b.wantKeys(1, 3)
			if s := b.keys.Status(); s.StateFailures < 3 || s.Rotations != 0 || before != string(testkit.Must(os.ReadFile(b.config.StateFile))) {
				t.Errorf("got %+v", s)
			}
			b.wantLog("the new key waits until the state is written")
			b.degraded("state.json", 1, 3) // a rotation at a start
			b.write("key.pem", privatePEM(2, 1))
			b.start()
			b.wantSigns(1)
			if name == "full" {
				disk.Empty()
			} else {
				disk.ReadOnly(false)
			}
			b.pass(0)
			b.pass(publish)
			b.wantSigns(2)
			b.wantKeys(1, 2, 3)

			breaks(disk) // when the new key begins to sign
			b.write("key.pem", privatePEM(2, 1))
			b.start()
			b.wantKeys(1, 2, 3)
		})
	}
}
