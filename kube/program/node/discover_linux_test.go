package node

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
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
