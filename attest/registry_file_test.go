package attest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// registryOf is a table with records in all states.
func registryOf(t testing.TB, nodes int) *registryTable {
	t.Helper()
	table := newRegistryTable()
	for i := range nodes {
		c := RegistryClaim{NodeName: "node-" + strconv.Itoa(i), Machine: Identity("test:<" + strconv.Itoa(i) + ">"), MachineUID: "uid", ProviderID: "test://é"}
		r, _, err := table.reserve(c, crashNow.Add(time.Minute), crashNow)
		if err == nil && i%3 > 0 {
			r, _, err = table.bind(r, crashNow)
		}
		if err == nil && i%3 > 1 {
			_, _, err = table.raise(r, crashNow.Add(time.Hour), crashNow)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%6 == 5 {
			table.release(c.NodeName, "uid", crashNow)
		}
	}
	return table
}

func newRegistryFile(t testing.TB) (path string, f *FileRegistry) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "registry")
	if err := CreateFileRegistry(context.Background(), path, crashScope); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFileRegistry(path, crashScope, crashClock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return path, f
}

func TestRegistryFormat(t *testing.T) {
	table := registryOf(t, 12)
	content, err := table.encode(crashScope)
	if err != nil {
		t.Fatal(err)
	}
	again, err := decodeRegistry(content, crashScope)
	if err != nil {
		t.Fatal(err)
	}
	second, err := again.encode(crashScope)
	if err != nil || !bytes.Equal(content, second) {
		t.Errorf("got %s, want %s", second, content)
	}
	if again.last != table.last || len(again.machines) != len(table.machines) {
		t.Errorf("got last version %d and %d machines, want %d and %d", again.last, len(again.machines), table.last, len(table.machines))
	}
	first, _, _ := strings.Cut(string(content), "\n")
	if want := `{"format":"nodeattest registry 1","scope":"ek P-384","last":26,"records":12}`; first != want {
		t.Errorf("got head %s, want %s", first, want)
	}
}

// Every cut and every changed bit is seen.
func TestRegistryFormatDamage(t *testing.T) {
	content, err := registryOf(t, 3).encode(crashScope)
	if err != nil {
		t.Fatal(err)
	}
	for n := range content {
		if _, err := decodeRegistry(content[:n], crashScope); !errors.Is(err, ErrRegistryFile) {
			t.Errorf("cut to %d bytes: got %v", n, err)
		}
		for bit := range 8 {
			changed := bytes.Clone(content)
			changed[n] ^= 1 << bit
			if _, err := decodeRegistry(changed, crashScope); !errors.Is(err, ErrRegistryFile) {
				t.Errorf("byte %d, bit %d: got %v", n, bit, err)
			}
		}
	}
	for name, more := range map[string]string{"line": "{}\n", "line feed": "\n", "copy": string(content)} {
		if _, err := decodeRegistry(append(bytes.Clone(content), more...), crashScope); !errors.Is(err, ErrRegistryFile) {
			t.Errorf("with a %s behind it: got %v", name, err)
		}
	}
}

// sealed puts the right checksum behind lines.
func sealed(lines ...string) []byte {
	body := strings.Join(lines, "\n") + "\n"
	sum := sha256.Sum256([]byte(body))
	return []byte(body + `{"sha256":"` + hex.EncodeToString(sum[:]) + "\"}\n")
}

func TestRegistryFormatRefuses(t *testing.T) {
	const head = `{"format":"nodeattest registry 1","scope":"ek P-384","last":2,"records":1}`
	const head2 = `{"format":"nodeattest registry 1","scope":"ek P-384","last":2,"records":2}`
	const a = `{"node":"a","state":"bound","machine":"t:1","version":1}`
	if _, err := decodeRegistry(sealed(head, a), crashScope); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]string{
		"other format":       {strings.Replace(head, "registry 1", "registry 2", 1), a},
		"other scope":        {strings.Replace(head, "P-384", "P-256", 1), a},
		"fewer records":      {head2, a},
		"more records":       {head, a, `{"node":"b","state":"bound","machine":"t:2","version":2}`},
		"wrong order":        {head2, `{"node":"b","state":"bound","machine":"t:2","version":2}`, a},
		"node twice":         {head2, a, `{"node":"a","state":"bound","machine":"t:2","version":2}`},
		"machine twice":      {head2, a, `{"node":"b","state":"reserved","machine":"t:1","deadline":1,"version":2}`},
		"version twice":      {head2, a, `{"node":"b","state":"bound","machine":"t:2","version":1}`},
		"version too high":   {head, strings.Replace(a, `"version":1`, `"version":3`, 1)},
		"version zero":       {head, strings.Replace(a, `"version":1`, `"version":0`, 1)},
		"no state":           {head, strings.Replace(a, "bound", "", 1)},
		"bound, deadline":    {head, strings.Replace(a, `"version"`, `"deadline":1,"version"`, 1)},
		"reserved for ever":  {head, strings.Replace(a, "bound", "reserved", 1)},
		"resting for ever":   {head, strings.Replace(a, "bound", "resting", 1)},
		"reserved, last end": {head, `{"node":"a","state":"reserved","machine":"t:1","deadline":1,"lastEnd":1,"version":1}`},
		"negative time":      {head, strings.Replace(a, `"version"`, `"lastEnd":-1,"version"`, 1)},
		"far time":           {head, strings.Replace(a, `"version"`, `"lastEnd":253402300800,"version"`, 1)},
		"no node name":       {head, strings.Replace(a, `"a"`, `"A"`, 1)},
		"no machine":         {head, strings.Replace(a, "t:1", "t", 1)},
		"unknown member":     {head, strings.Replace(a, `"version"`, `"x":1,"version"`, 1)},
		"member twice":       {head, strings.Replace(a, `"version"`, `"machine":"t:1","version"`, 1)},
		"member in capitals": {head, strings.Replace(a, "machine", "Machine", 1)},
		"a space":            {head, strings.Replace(a, ",", ", ", 1)},
		"an escape":          {head, strings.Replace(a, "t:1", `\u0074:1`, 1)},
		"an empty line":      {head, a, ""},
		"no JSON":            {head, "a bound t:1"},
		"two values":         {head, a + a},
		"no head":            {a},
	} {
		if _, err := decodeRegistry(sealed(lines...), crashScope); !errors.Is(err, ErrRegistryFile) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func FuzzDecodeRegistry(f *testing.F) {
	for _, n := range []int{0, 1, 3, 12} {
		content, err := registryOf(f, n).encode(crashScope)
		if err != nil {
			f.Fatal(err)
		}
		body, _ := checkRegistrySum(content)
		f.Add(body)
	}
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		content := sealed(strings.TrimSuffix(string(body), "\n")) // past the checksum
		table, err := decodeRegistry(content, crashScope)
		if err != nil {
			if !errors.Is(err, ErrRegistryFile) {
				t.Errorf("got %v", err)
			}
			return
		}
		again, err := table.encode(crashScope)
		if err != nil || !bytes.Equal(again, content) {
			t.Errorf("got %q, want %q", again, content)
		}
	})
}

func TestFileRegistryOpens(t *testing.T) {
	ctx := context.Background()
	path, f := newRegistryFile(t)
	if err := CreateFileRegistry(ctx, path, crashScope); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another: got %v, want fs.ErrExist", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
	for name, scope := range map[string]RegistryScope{"other scope": {}, "no scope": {Road: RoadEK}} {
		if _, err := OpenFileRegistry(path, scope, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := CreateFileRegistry(ctx, path+"2", RegistryScope{Road: RoadEK}); err == nil {
		t.Error("created without a scope")
	}
	if _, err := OpenFileRegistry(path+"-absent", crashScope, nil); !errors.Is(err, ErrRegistryFile) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: got %v", err)
	}
	if _, err := os.Stat(path + "-absent"); err == nil {
		t.Error("a registry that is absent was made")
	}
	if err := CreateFileRegistry(ctx, filepath.Join(path+"-absent", "registry"), crashScope); err == nil {
		t.Error("created in no directory")
	}
	// The file goes while it is in use: nobody is a first user for that.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	claim := RegistryClaim{NodeName: "a", Machine: "t:1"}
	if _, err := f.Lookup(ctx, "a"); !errors.Is(err, ErrRegistryFile) {
		t.Errorf("Lookup: got %v", err)
	}
	if _, err := f.Reserve(ctx, claim, crashNow.Add(time.Minute)); !errors.Is(err, ErrRegistryFile) {
		t.Errorf("Reserve: got %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a registry that is gone was made")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Reserve(ctx, claim, crashNow.Add(time.Minute)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed: got %v", err)
	}
}

// A file that is damaged while it is in use is refused, and never written over.
func TestFileRegistryDamage(t *testing.T) {
	ctx := context.Background()
	path, f := newRegistryFile(t)
	claim := RegistryClaim{NodeName: "a", Machine: "t:1"}
	if _, err := f.Reserve(ctx, claim, crashNow.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Replace(good, []byte("t:1"), []byte("t:22"), 1)
	if err := os.WriteFile(path, bad, 0o600); err != nil { // in place: the file stays the same one
		t.Fatal(err)
	}
	if _, err := f.Lookup(ctx, "a"); !errors.Is(err, ErrRegistryFile) {
		t.Errorf("Lookup: got %v", err)
	}
	if _, err := f.Reserve(ctx, claim, crashNow.Add(time.Minute)); !errors.Is(err, ErrRegistryFile) {
		t.Errorf("Reserve: got %v", err)
	}
	if _, err := OpenFileRegistry(path, crashScope, nil); !errors.Is(err, ErrRegistryFile) {
		t.Errorf("open: got %v", err)
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, bad) {
		t.Error("the damaged file was written over")
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := f.Lookup(ctx, "a"); err != nil || r == nil {
		t.Errorf("put right: got %+v, %v", r, err)
	}
	// What a crash left of an earlier write is in nobody's way.
	if err := os.WriteFile(path+".tmp", []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reserve(ctx, claim, crashNow.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path + ".tmp"); err == nil {
		t.Error("the temporary file is still there")
	}
}

func BenchmarkFileRegistry(b *testing.B) {
	path, f := newRegistryFile(b)
	f.table = registryOf(b, 5000)
	if err := f.write(); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Lookup of 5000", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.Lookup(context.Background(), "node-1"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Reserve of 5000", func(b *testing.B) {
		b.SetBytes(info.Size())
		claim := RegistryClaim{NodeName: "new", Machine: "t:new"}
		for b.Loop() {
			if _, err := f.Reserve(context.Background(), claim, crashNow.Add(time.Minute)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
