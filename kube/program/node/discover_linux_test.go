package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

// TestDiscoverFullDisk: on a full disk no file is half there, and the next run writes the rest.
func TestDiscoverFullDisk(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	b, disk := newBare(t, cluster), mounttest.NewSmallDisk(t, 64<<10)
	b.dir = disk.Path("")
	args := b.pinned(cluster.Info().Pins()[0], cluster.Address())
	disk.Fill()
	status, out, err := b.run(t.Context(), args...)
	if ca, kubeconfig := b.files(); status != 1 || !errors.Is(err, syscall.ENOSPC) || ca+kubeconfig != "" {
		t.Errorf("status %d, %v:\n%s\nthe files are %s%s", status, err, out, ca, kubeconfig)
	}
	disk.Empty()
	if status, out, err := b.run(t.Context(), args...); status != 0 || strings.Count(out, "wrote: ") != 2 {
		t.Errorf("with room: status %d, %v:\n%s", status, err, out)
	}
}

// TestFollowFullDisk: on a full disk the CAs in use stay, and the node writes the new ones once there is room.
func TestFollowFullDisk(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	j, disk := newJoined(t, cluster), mounttest.NewSmallDisk(t, 64<<10)
	o := j.own()
	for _, path := range []string{o.caFile, o.path} {
		testkit.MustDo(os.WriteFile(disk.Path(filepath.Base(path)), []byte(strings.ReplaceAll(string(testkit.Must(os.ReadFile(path))), filepath.Dir(path), disk.Path(""))), 0o600))
	}
	j.kubeconfig = disk.Path(filepath.Base(o.path))
	testkit.MustDo(j.step())
	testkit.MustDo(cluster.AddCA())
	disk.Fill()
	if err := j.step(); !errors.Is(err, syscall.ENOSPC) || len(j.own().cas) != 1 || !strings.Contains(j.problems(), syscall.ENOSPC.Error()) {
		t.Errorf("got %v, %d CAs, and %q", err, len(j.own().cas), j.problems())
	}
	disk.Empty()
	if err := j.step(); err != nil || len(j.own().cas) != 2 || j.problems() != "" {
		t.Errorf("with room: %v, %d CAs, and %q", err, len(j.own().cas), j.problems())
	}
}
