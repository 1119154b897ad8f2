package safefile

import "testing"

func TestRAMDisk(t *testing.T) {
	for name, want := range map[string]bool{"ram0": true, "zram1": true, "sda1": false, "loop0": false, "dm-0": false, "nvme0n1p2": false} {
		if got := ramDisk(name); got != want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
