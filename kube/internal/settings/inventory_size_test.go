package settings

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// machinesText is an inventory's text of n machines, from the one of number first on.
func machinesText(first, n int) []byte {
	var b bytes.Buffer
	b.WriteString("machines:\n")
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&b, "- nodeName: node-%06d.example.com\n  identity: ek:sha256:%064x\n  providerID: metal://rack-%d/slot\n", i, i, i)
	}
	return b.Bytes()
}

// partOf is how many machines the parts of these tests have: 800 KiB of text, in a ConfigMap of at most 1 MiB.
const partOf = 5_000

// folderOf writes an inventory of n machines, in parts, and returns settings that name its folder.
func folderOf(t testing.TB, n int) *Settings {
	t.Helper()
	s, folder := known(t), t.TempDir()
	for first := 0; first < n; first += partOf {
		path := filepath.Join(folder, fmt.Sprintf("inventory-%03d.yaml", first/partOf))
		testkit.MustDo(os.WriteFile(path, machinesText(first, min(partOf, n-first)), 0o600))
	}
	s.Inventory.File = folder
	return s
}

// BenchmarkInventory reads inventories in parts, then again without a change, and with one changed part. The metric
// MiB is the memory of the inventory.
func BenchmarkInventory(b *testing.B) {
	for _, n := range []int{10_000, 50_000, 100_000} {
		s := folderOf(b, n)
		b.Run(strconv.Itoa(n)+"/open", func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var m *Machines
			for b.Loop() {
				m = testkit.Must(s.OpenInventory())
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
			runtime.KeepAlive(m)
		})
		m := testkit.Must(s.OpenInventory())
		b.Run(strconv.Itoa(n)+"/unchanged", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if m.read() {
					b.Fatal("it has changed")
				}
			}
		})
		b.Run(strconv.Itoa(n)+"/one part", func(b *testing.B) {
			texts := [][]byte{machinesText(0, partOf-1), machinesText(0, partOf)}
			for i := 0; b.Loop(); i++ {
				testkit.MustDo(os.WriteFile(filepath.Join(s.Inventory.File, "inventory-000.yaml"), texts[i%2], 0o600))
				if !m.read() {
					b.Fatal("it has not changed")
				}
			}
		})
		b.Run(strconv.Itoa(n)+"/find", func(b *testing.B) {
			q := csr.Question{NodeName: fmt.Sprintf("node-%06d.example.com", n-1)}
			for b.Loop() {
				if _, err := m.Machine(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestInventoryLinear: ten times the machines take at most eleven times the memory to read, as a file and in
// parts, and a read without a change takes little.
func TestInventoryLinear(t *testing.T) {
	allocated := func(f func()) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	const few, many = 5_000, 50_000
	s := known(t)
	whole := func(n int) float64 {
		text := machinesText(0, n)
		return allocated(func() { testkit.Must(s.ParseInventory(text)) })
	}
	var m *Machines
	folder := func(n int) float64 {
		s := folderOf(t, n)
		return allocated(func() { m = testkit.Must(s.OpenInventory()) })
	}
	for name, of := range map[string]func(int) float64{"a file": whole, "a folder": folder} {
		one, all := of(few), of(many)
		if ratio := all / one; ratio > many/few*1.1 {
			t.Errorf("%s: %d machines take %.1f times the %.0f bytes of %d", name, many, ratio, one, few)
		}
	}
	if n := len(m.listed.Load().machines); n != many {
		t.Fatalf("%d machines", n)
	}
	if again := allocated(func() { m.read() }); again > 4<<20 {
		t.Errorf("a read without a change allocates %.0f bytes", again)
	}
}
