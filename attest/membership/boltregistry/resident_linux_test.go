package boltregistry

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// resident is how much of a file that is mapped the process has touched, in KiB, as the
// kernel counts it.
func resident(t testing.TB, path string) (kib int) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found, ours := false, false
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if fields := strings.Fields(line); len(fields) > 0 && strings.Contains(fields[0], "-") {
			ours = strings.HasSuffix(line, " "+path)
			found = found || ours
		}
		var n int
		if ours && strings.HasPrefix(line, "Rss:") {
			if _, err := fmt.Sscanf(line, "Rss: %d kB", &n); err != nil {
				t.Fatal(err)
			}
			kib += n
		}
	}
	if !found {
		t.Fatal("the file is not mapped: the test proves nothing")
	}
	return kib
}

// Opening a large file reads its head and the list of its free pages, not its records.
func TestOpenDoesNotReadTheFile(t *testing.T) {
	path := newFile(t)
	r := open(t, path, nil)
	fillWith(t, r, 0, 50000)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	open(t, path, nil)
	// The kernel maps some pages around each one that is touched.
	if got, size := resident(t, path), int(info.Size()>>10); got > size/8 || size < 8<<10 {
		t.Errorf("%d KiB of %d were read", got, size)
	} else {
		t.Logf("%d KiB of %d were read", got, size)
	}
}
