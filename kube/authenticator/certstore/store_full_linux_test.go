package certstore

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

// TestFullDisk writes to a disk of a few KiB: the pair of before stays, and the next one is
// written when there is room.
func TestFullDisk(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	disk := mounttest.NewSmallDisk(t, 16<<10)
	s := testkit.Must(Open(disk.Path("store")))
	l := testkit.Must(s.Lock(t.Context()))
	defer l.Unlock()
	first, next := pair(t, "first"), pair(t, "next")
	testkit.MustDo(l.WritePair("client.pem", first))
	disk.Fill()
	if err := l.WritePair("client.pem", next); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if got, err := s.ReadPair("client.pem"); err != nil || !bytes.Equal(got.Marshal(), first.Marshal()) {
		t.Errorf("the pair of before: %v", err)
	}
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 2 {
		t.Errorf("something is left over: %v, %v", entries, err)
	}
	disk.Empty()
	if err := l.WritePair("client.pem", next); err != nil {
		t.Errorf("a write where there is room: %v", err)
	}
	if got, err := s.ReadPair("client.pem"); err != nil || !bytes.Equal(got.Marshal(), next.Marshal()) {
		t.Errorf("the new pair: %v", err)
	}
}
