package settings

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// folder is an inventory's folder whose files a test changes.
type folder struct {
	t *testing.T
	*Machines
	path string
}

// newFolder writes the parts of an inventory and opens it.
func newFolder(t *testing.T, parts map[string]string) *folder {
	t.Helper()
	s := known(t)
	s.Inventory.File = t.TempDir()
	f := &folder{t: t, path: s.Inventory.File}
	for name, text := range parts {
		f.write(name, text)
	}
	f.Machines = testkit.Must(s.OpenInventory())
	return f
}

func (f *folder) write(name, text string) {
	f.t.Helper()
	testkit.MustDo(os.WriteFile(filepath.Join(f.path, name), []byte(text), 0o600))
}

// has checks that a node is found, or not: with csr.ErrNoMachine, or refusal.ErrRetry.
func (f *folder) has(name string, want error) {
	f.t.Helper()
	_, err := f.Machine(f.t.Context(), csr.Question{NodeName: name})
	if !errors.Is(err, want) || errors.Is(err, refusal.ErrRetry) && errors.Is(err, csr.ErrNoMachine) {
		f.t.Errorf("%s: %v, want %v", name, err, want)
	}
}

// problems checks that there are as many problems as texts, each with its text.
func (f *folder) problems(want ...string) {
	f.t.Helper()
	all := f.Problems()
	ok := len(all) == len(want)
	for i := range min(len(all), len(want)) {
		ok = ok && strings.Contains(all[i].Error(), want[i])
	}
	if !ok {
		f.t.Errorf("problems %q, want %q", all, want)
	}
}

// TestParts follows a folder: a part is added, changed, broken, mended and removed, while the others stay.
func TestParts(t *testing.T) {
	f := newFolder(t, map[string]string{"1.yaml": "machines: [{nodeName: a}]", "2.json": `{"machines": [{"nodeName": "b"}]}`, ".3.yaml.swp": "x"})
	f.has("a", nil)
	f.has("b", nil)
	f.has("c", csr.ErrNoMachine)
	f.write("3.yaml", "machines: [{nodeName: c}]")
	f.read()
	f.has("c", nil)
	f.write("3.yaml", "machines: [{nodeName: c}, {nodeName: d, uid: 1}]")
	f.write("1.yaml", "machines: [{nodeName: a}, {nodeName: e}]")
	f.read()
	f.problems("part 3.yaml of the inventory cannot be read: machines[1].uid: ")
	for _, name := range []string{"a", "b", "c", "e"} { // the last machines of the part, and the present ones of the others
		f.has(name, nil)
	}
	f.has("d", refusal.ErrRetry)
	if _, err := f.Machine(t.Context(), csr.Question{NodeName: "d"}); !strings.Contains(err.Error(), `no part that can be read has node "d", and 3.yaml cannot be read`) {
		t.Errorf("a node that a broken part may have: %v", err)
	}
	f.write("3.yaml", "machines: [{nodeName: d}]")
	f.read()
	f.problems()
	f.has("c", csr.ErrNoMachine)
	f.has("d", nil)
	if f.read() {
		t.Error("the inventory has changed, and no file has")
	}
	testkit.MustDo(os.Remove(filepath.Join(f.path, "3.yaml")))
	f.read()
	f.has("d", csr.ErrNoMachine)
	f.has("a", nil)
	for _, name := range []string{"1.yaml", "2.json"} { // the others' last files
		testkit.MustDo(os.Remove(filepath.Join(f.path, name)))
	}
	f.read()
	f.problems("a folder without files, want a part")
	f.has("a", nil)
	f.has("d", refusal.ErrRetry)
	f.write("1.yaml", "machines: []")
	f.read()
	f.problems()
	f.has("a", csr.ErrNoMachine)
}

// TestPartsAtTheStart: the program starts with the parts that can be read. A node that no other part has is not
// refused.
func TestPartsAtTheStart(t *testing.T) {
	f := newFolder(t, map[string]string{"1.yaml": "machines: [{nodeName: a}]", "2.yaml": "machines: [{nodeName: "})
	f.problems("part 2.yaml")
	f.has("a", nil)
	f.has("b", refusal.ErrRetry)
	f = newFolder(t, map[string]string{"1.yaml": ""})
	f.problems("part 1.yaml")
	f.has("a", refusal.ErrRetry)
	s := known(t)
	for name, path := range map[string]string{"an empty folder": t.TempDir(), "a folder that is missing": filepath.Join(t.TempDir(), "none")} {
		s.Inventory.File = path
		if m, err := s.OpenInventory(); err == nil {
			t.Errorf("%s is opened: %v", name, m.listed.Load().Problems())
		}
	}
}

// TestPartsTwice: entries of two parts that share a value are both refused, by name, and the others stay. Once one is
// removed, the other is used.
func TestPartsTwice(t *testing.T) {
	identity := "ek:sha256:" + strings.Repeat("0a", 32)
	for name, row := range map[string]struct {
		first, second string // entries of node a and node b
		refused       []string
		want          string
	}{
		"a node":                                 {"nodeName: x", "nodeName: x, uid: u", []string{"x"}, "node x is in part 1.yaml, for node x, and in part 2.yaml, for node x: neither entry is used"},
		"the same entry":                         {"nodeName: x", "nodeName: x", []string{"x"}, "node x is in part 1.yaml"},
		"a UID":                                  {"nodeName: a, uid: u", "nodeName: b, uid: u", []string{"a", "b"}, "UID u is in part 1.yaml, for node a, and in part 2.yaml, for node b"},
		"an identity":                            {"nodeName: a, identity: '" + identity + "'", "nodeName: b, identity: '" + identity + "'", []string{"a", "b"}, "identity " + identity + " is in part 1.yaml"},
		"a provider ID":                          {"nodeName: a, providerID: 'aws:////i-1'", "nodeName: b, providerID: 'aws://eu-west-1a/i-1'", []string{"a", "b"}, "provider ID aws://"},
		"a DNS name of the other":                {"nodeName: a, dnsNames: [B]", "nodeName: b", []string{"a"}, `the entry of node a in part 1.yaml has the DNS name "B", which is a node of part 2.yaml`},
		"a DNS name of the other, the other way": {"nodeName: a", "nodeName: b, dnsNames: [a]", []string{"b"}, `the entry of node b in part 2.yaml has the DNS name "a", which is a node of part 1.yaml`},
		"none":                                   {"nodeName: a, providerID: none", "nodeName: b, providerID: none", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, map[string]string{"1.yaml": "machines: [{" + row.first + "}, {nodeName: c}]", "2.yaml": "machines: [{nodeName: d}, {" + row.second + "}]", "3.yaml": "machines: [{nodeName: e}]"})
			for _, other := range []string{"c", "d", "e"} {
				f.has(other, nil)
			}
			f.has("f", csr.ErrNoMachine) // no part is broken
			if row.want == "" {
				f.problems()
				return
			}
			f.problems(row.want)
			for _, name := range row.refused {
				f.has(name, refusal.ErrRetry)
			}
			f.write("1.yaml", "machines: [{nodeName: c}]")
			f.read()
			f.problems()
			f.has(row.refused[len(row.refused)-1], map[bool]error{true: csr.ErrNoMachine}[row.refused[0] == "a" && len(row.refused) == 1])
		})
	}
	f := newFolder(t, map[string]string{"1.yaml": "machines: [{nodeName: a, uid: u}]", "2.yaml": "machines: [{nodeName: b, uid: u}]", "3.yaml": "machines: [{nodeName: c, uid: u}]"})
	for _, name := range []string{"a", "b", "c"} {
		f.has(name, refusal.ErrRetry)
	}
	f = newFolder(t, map[string]string{"1.yaml": "machines: [{nodeName: a}, {nodeName: a}]", "2.yaml": "machines: [{nodeName: b}]"})
	f.problems("part 1.yaml of the inventory cannot be read: machines[1]: node a is in the inventory twice")
	f.has("b", nil)
}

// TestPartsRefused: files that are no parts are refused by name, without waiting, and the others stay.
func TestPartsRefused(t *testing.T) {
	deep := "machines: [{nodeName: a, dnsNames: " + strings.Repeat("[", 100_000)
	for name, row := range map[string]struct {
		file string
		make func(path string) error
		want string
	}{
		"no bytes":            {"2.yaml", func(p string) error { return os.WriteFile(p, nil, 0o600) }, "machines, want a list"},
		"a binary file":       {"2.yaml", func(p string) error { return os.WriteFile(p, []byte("\x7fELF\x00\xff\xfe"), 0o600) }, "yaml: "},
		"a deep file":         {"2.yaml", func(p string) error { return os.WriteFile(p, []byte(deep), 0o600) }, "depth"},
		"a bomb":              {"2.yaml", func(p string) error { return os.WriteFile(p, []byte(bomb), 0o600) }, "excessive aliasing"},
		"a huge file":         {"2.yaml", func(p string) error { return truncated(p, MaxInventorySize+1) }, "more than 16777216 bytes"},
		"a sparse file":       {"2.yaml", func(p string) error { return truncated(p, 1<<40) }, "more than 16777216 bytes"},
		"a pipe":              {"2.yaml", func(p string) error { return syscall.Mkfifo(p, 0o600) }, "a regular file"},
		"a device":            {"2.yaml", func(p string) error { return os.Symlink("/dev/zero", p) }, "a regular file"},
		"a folder":            {"2.yaml", func(p string) error { return os.Mkdir(p, 0o700) }, "a regular file"},
		"a link to nothing":   {"2.yaml", func(p string) error { return os.Symlink("none", p) }, "no such file"},
		"a link to itself":    {"2.yaml", func(p string) error { return os.Symlink("2.yaml", p) }, "too many levels"},
		"another name":        {"2.yml", func(p string) error { return os.WriteFile(p, []byte("machines: []"), 0o600) }, `"2.yml", want a name that ends with .yaml or .json`},
		"a name of ConfigMap": {"2", func(p string) error { return os.WriteFile(p, []byte("machines: []"), 0o600) }, `"2", want a name`},
		"a name with lines":   {"2\n.yaml", func(p string) error { return os.WriteFile(p, nil, 0o600) }, `part 2\n.yaml of`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, map[string]string{"1.yaml": "machines: [{nodeName: a}]", "3.yaml": "machines: [{nodeName: c}]"})
			testkit.MustDo(row.make(filepath.Join(f.path, row.file)))
			if began := time.Now(); !f.read() || time.Since(began) > 20*time.Second {
				t.Errorf("read in %s", time.Since(began))
			}
			f.problems(row.want)
			f.has("a", nil)
			f.has("c", nil)
			f.has("b", refusal.ErrRetry)
			if f.read() {
				t.Error("the same error is a change")
			}
			again := testkit.Must(f.settings.OpenInventory()) // at the start
			if _, err := again.Machine(t.Context(), csr.Question{NodeName: "c"}); err != nil {
				t.Errorf("at the start: %v", err)
			}
		})
	}
}

// bomb is a text whose aliases stand for a billion of machines.
var bomb = "a: &a [{nodeName: x}]\n" + strings.Join(func() (lines []string) {
	for c := 'b'; c < 'l'; c++ {
		lines = append(lines, fmt.Sprintf("%c: &%[1]c [%s]", c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ",")))
	}
	return lines
}(), "\n") + "\nmachines: *k\n"

func truncated(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

// TestPartsLimits: a folder of too many files is refused as a whole, and parts that are too long together, by name.
func TestPartsLimits(t *testing.T) {
	f := newFolder(t, map[string]string{"1.yaml": "machines: [{nodeName: a}]"})
	for i := range maxParts - 1 {
		f.write(fmt.Sprintf("2-%d.yaml", i), "machines: []")
	}
	f.read()
	f.problems()
	for _, n := range []int{1, 10_000} {
		for i := range n {
			f.write(fmt.Sprintf("3-%d.yaml", i), "machines: []")
		}
		f.read()
		f.problems("at most 256 parts")
		f.has("a", nil)
		f.has("b", refusal.ErrRetry)
	}
	f = newFolder(t, map[string]string{"0.yaml": "machines: [{nodeName: a}]", "f.yaml": "machines: [{nodeName: f}]"})
	for _, name := range []string{"b", "c", "d", "e"} { // of zeros, which are no YAML
		testkit.MustDo(truncated(filepath.Join(f.path, name+".yaml"), MaxInventorySize-13))
	}
	f.read()
	f.problems("part b.yaml", "part c.yaml", "part d.yaml", "part e.yaml")
	f.write("f.yaml", "machines: [{nodeName: f}] ")
	f.write("g.yaml", "machines: [{nodeName: g}]")
	f.read()
	f.problems("part b.yaml", "part c.yaml", "part d.yaml", "part e.yaml", "g.yaml: more than 1 bytes, and all parts together 67108864")
	f.has("f", nil) // 67108863 bytes with the parts before it
	f.has("g", refusal.ErrRetry)
}

// configMaps is a folder as the kubelet makes it of ConfigMaps.
type configMaps struct {
	*folder
	version int
}

// put replaces all files at once, as pkg/volume/util/atomic_writer.go of Kubernetes does.
func (c *configMaps) put(files map[string]string) {
	c.t.Helper()
	c.version++
	version := fmt.Sprintf("..2026_11_27_%d", c.version)
	testkit.MustDo(os.Mkdir(filepath.Join(c.path, version), 0o700))
	for name, text := range files {
		c.write(filepath.Join(version, name), text)
	}
	before, _ := os.Readlink(filepath.Join(c.path, dataLink))
	testkit.MustDo(os.Symlink(version, filepath.Join(c.path, "..data_tmp")))
	testkit.MustDo(os.Rename(filepath.Join(c.path, "..data_tmp"), filepath.Join(c.path, dataLink)))
	for name := range files {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(c.path, name)); err != nil && !errors.Is(err, os.ErrExist) {
			c.t.Fatal(err)
		}
	}
	if before != "" {
		testkit.MustDo(os.RemoveAll(filepath.Join(c.path, before)))
	}
}

// TestPartsOfConfigMaps: while the kubelet replaces the files, each inventory is of one version, and each node of all
// versions is found.
func TestPartsOfConfigMaps(t *testing.T) {
	s := known(t)
	s.Inventory.File = t.TempDir()
	c := &configMaps{folder: &folder{t: t, path: s.Inventory.File}}
	version := func(i int) map[string]string { // node x moves between the parts, which have names of their own
		texts := map[string]string{}
		for part := range 4 {
			texts[fmt.Sprintf("%d.yaml", part)] = fmt.Sprintf("machines: [{nodeName: node-%d}, {nodeName: version-%d-%d}%s]", part, i, part, map[bool]string{true: ", {nodeName: x}"}[i%4 == part])
		}
		return texts
	}
	c.put(version(0))
	link := filepath.Join(t.TempDir(), "link") // to a folder
	testkit.MustDo(os.Symlink(c.path, link))
	s.Inventory.File = link
	c.Machines = testkit.Must(s.OpenInventory())
	const versions = 300
	var done sync.WaitGroup
	stop := make(chan struct{})
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c.read()
			}
		}
	})
	done.Go(func() {
		defer close(stop)
		for i := 1; i <= versions; i++ {
			c.put(version(i))
			for range 20 {
				l := c.listed.Load()
				var of []string
				for name := range l.machines {
					if v, ok := strings.CutPrefix(name, "version-"); ok {
						of = append(of, strings.Split(v, "-")[0])
					}
				}
				if len(of) != 4 || len(slices.Compact(of)) != 1 || l.machines["x"] == nil || l.machines["node-3"] == nil || len(l.machines) != 9 {
					t.Errorf("version %d: %d machines, of versions %q, problems %q", i, len(l.machines), of, l.Problems())
					return
				}
			}
		}
	})
	done.Wait()
	c.read()
	c.problems()
	c.has(fmt.Sprintf("version-%d-3", versions), nil)

	// The kubelet adds and removes the links to files after it has replaced ..data: between these steps all parts are there.
	data := testkit.Must(os.Readlink(filepath.Join(c.path, dataLink)))
	testkit.MustDo(os.Rename(filepath.Join(c.path, data, "3.yaml"), filepath.Join(c.path, data, "4.yaml")))
	c.read()
	c.problems()
	c.has(fmt.Sprintf("version-%d-3", versions), nil)
}

// TestPartThatGrows: a file that is written while it is read is an error, and not a part of it.
func TestPartThatGrows(t *testing.T) {
	f := newFolder(t, map[string]string{"1.yaml": "machines:\n- nodeName: a\n"})
	file := testkit.Must(os.OpenFile(filepath.Join(f.path, "1.yaml"), os.O_APPEND|os.O_WRONLY, 0))
	defer file.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if i%5_000 == 4_999 { // so that the file stays small
				_ = file.Truncate(int64(len("machines:\n- nodeName: a\n")))
			}
			fmt.Fprintf(file, "- nodeName: node-%d\n", i)
		}
	}()
	grew := false
	for deadline := time.Now().Add(20 * time.Second); !grew && time.Now().Before(deadline); {
		f.read()
		for _, problem := range f.Problems() {
			grew = grew || strings.Contains(problem.Error(), "changed while it was read")
		}
		f.has("a", nil)
	}
	close(stop)
	<-stopped
	if !grew {
		t.Error("no read has noticed that the file grows")
	}
	f.read()
	f.problems()
}

// TestPartsReported: each problem is logged once, in a line that names it, and counted.
func TestPartsReported(t *testing.T) {
	f := newFolder(t, map[string]string{"1.yaml": "machines: [{nodeName: a}, {nodeName: b}]", "2.yaml": "machines: ["})
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
		stopped := make(chan error)
		go func() { stopped <- f.Start(ctx) }()
		steps := []struct {
			write func()
			want  []string
		}{
			{func() {}, []string{`"parts"=2 "brokenParts"=1 "machines"=2 "refusedEntries"=0`, `"the inventory has an error; a part that cannot be read keeps the machines that it last had" "error"="part 2.yaml of the inventory`}},
			{func() {}, nil},
			{func() { f.write("3.yaml", "machines: [{nodeName: a}]") }, []string{`"brokenParts"=1 "machines"=1 "refusedEntries"=1`, `"error"="node a is in part 1.yaml`}},
			{func() { f.write("2.yaml", "machines: []") }, []string{`"brokenParts"=0 "machines"=1 "refusedEntries"=1`}},
			{func() { f.write("3.yaml", "machines: [{nodeName: c}]") }, []string{`"parts"=3 "brokenParts"=0 "machines"=3 "refusedEntries"=0`}},
		}
		for i, step := range steps {
			step.write()
			if i != 0 {
				time.Sleep(2 * inventoryInterval)
			}
			synctest.Wait()
			ok := len(lines) == len(step.want)
			for n := range min(len(lines), len(step.want)) {
				ok = ok && strings.Contains(lines[n], step.want[n])
			}
			if !ok {
				t.Errorf("step %d: %q, want %q", i, lines, step.want)
			}
			lines = nil
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	var entries []string
	for i := range 100 {
		entries = append(entries, fmt.Sprintf("{nodeName: node-%d}", i))
	}
	text := "machines: [" + strings.Join(entries, ", ") + "]"
	f = newFolder(t, map[string]string{"1.yaml": text, "2.yaml": text, "3.yaml": "-"})
	n := 0
	f.report(logr.NewContext(t.Context(), funcr.New(func(_, _ string) { n++ }, funcr.Options{})))
	if n != 1+maxReports+1 {
		t.Errorf("%d lines", n)
	}
	r := prometheus.NewPedanticRegistry()
	testkit.MustDo(f.Register(r))
	var values []string
	for _, family := range testkit.Must(r.Gather()) {
		for _, m := range family.Metric {
			value := family.GetName()
			for _, l := range m.GetLabel() {
				value += " " + l.GetValue()
			}
			values = append(values, fmt.Sprint(value, " ", m.GetGauge().GetValue()))
		}
	}
	if want := []string{"nodeattest_inventory_machines 0", "nodeattest_inventory_parts broken 1", "nodeattest_inventory_parts read 2",
		"nodeattest_inventory_refused_entries 100"}; !slices.Equal(values, want) {
		t.Errorf("metrics %q, want %q", values, want)
	}
}

// FuzzParseParts compares an inventory of two parts with what each part says alone.
func FuzzParseParts(f *testing.F) {
	f.Add([]byte("machines: [{nodeName: a}, {nodeName: b, uid: u}]"), []byte("machines: [{nodeName: c, uid: u}, {nodeName: a}, {nodeName: d}]"))
	f.Add([]byte("machines: [{nodeName: a, dnsNames: [B]}]"), []byte("machines: [{nodeName: b, providerID: 'p://1'}]"))
	f.Add([]byte("machines: [{nodeName: a}]"), []byte("machines"))
	s := known(f)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		l := s.ParseParts(map[string][]byte{"1": a, "2": b})
		first, errA := s.ParseInventory(a)
		second, errB := s.ParseInventory(b)
		broken := errA != nil || errB != nil
		for _, one := range []struct{ own, other map[string]csr.Machine }{{first, second}, {second, first}} {
			for name, m := range one.own {
				found, err := l.Machine(t.Context(), csr.Question{NodeName: name})
				if conflicts := conflict(&m, one.other); conflicts != errors.Is(err, refusal.ErrRetry) || !conflicts && (found == nil || found.UID != m.UID) {
					t.Errorf("%s: %v, %v; a conflict: %t", name, found, err, conflicts)
				}
			}
		}
		if _, err := l.Machine(t.Context(), csr.Question{NodeName: "-"}); errors.Is(err, refusal.ErrRetry) != broken || errors.Is(err, csr.ErrNoMachine) == broken {
			t.Errorf("a node of no part: %v; broken: %t", err, broken)
		}
		if problems := l.Problems(); (errA != nil && errB != nil) && len(problems) != 2 {
			t.Errorf("problems %q", problems)
		}
	})
}

// conflict says whether another part has a value of a machine, or a node of one of its DNS names.
func conflict(m *csr.Machine, others map[string]csr.Machine) bool {
	for _, o := range others {
		one, other := map[string]bool{}, entry{machine: &o}
		u := newUnique(0)
		u.add(other, func(entry, string) {})
		u.add(entry{machine: m}, func(_ entry, what string) { one[what] = true })
		served := slices.ContainsFunc(m.DNSNames, func(name string) bool { return strings.EqualFold(name, o.NodeName) && o.NodeName != m.NodeName })
		if len(one) != 0 || served {
			return true
		}
	}
	return false
}
