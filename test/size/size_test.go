package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSize has 200 nodes join and renew at once through attestation: also when the controller that leads is
// killed in the middle, and when the API server refuses their requests with status 429 meanwhile. As many plain
// nodes join next to them, at a control plane of their own. The program makes the figures of
// docs/benchmarks.md, by hand.
func TestSize(t *testing.T) {
	results := make(chan *result, 10)
	t.Run("ways", func(t *testing.T) {
		for way, phases := range map[string][]string{attested: {phaseJoin, phaseRestart, phaseThrottle}, plain: {phaseJoin}} {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				begin(t, options{nodes: 200, way: way, lifetime: 5 * time.Minute, qps: 1000, throttle: 5 * time.Second, pause: 3 * time.Second,
					patience: time.Minute, phases: phases, done: func(r *result) { results <- r }})
			})
		}
	})
	close(results)
	var all []*result
	for r := range results {
		all = append(all, r)
	}
	m := newest(all)
	join, bare := m[phaseJoin][attested][200], m[phaseJoin][plain][200]
	restart, throttle := m[phaseRestart][attested][200], m[phaseThrottle][attested][200]
	if join == nil || bare == nil || restart == nil || throttle == nil {
		t.Fatal("phases are missing")
	}
	for name, row := range map[string]struct{ got, most float64 }{
		"writes a join":                {figWrites.of(join), 10.5},
		"requests a join, of plain":    {figAsked.of(join) / figAsked.of(bare), 3},
		"KB a join, of plain":          {figBytes.of(join) / figBytes.of(bare), 6},
		"MB of the controller":         {join.Controller.Peak, memoryLimitMB / 4},
		"controllers that crashed":     {float64(restart.Crashes), 1},
		"certificates, when it did":    {float64(restart.Certificates), 250},
		"certificates, when throttled": {float64(throttle.Certificates), 250},
	} {
		if row.got > row.most {
			t.Errorf("%s: %.2f, want at most %.2f", name, row.got, row.most)
		}
	}
	if restart.Crashes != 1 || throttle.Rejected < 200 {
		t.Errorf("%d controllers were killed and %.0f requests throttled, want 1 and at least 200", restart.Crashes, throttle.Rejected)
	}
}

// some are results of two sizes.
func some() []*result {
	var all []*result
	for _, n := range []int{100, 2500} {
		for way, times := range map[string]float64{plain: 1, attested: 2} {
			for _, phase := range phases {
				of := float64(n) * times
				all = append(all, &result{Nodes: n, Way: way, Phase: phase, Machine: "a <machine>", Of: n,
					Certificates: n, Seconds: of / 50, Requests: 5 * of,
					Writes: 3 * of, Bytes: 5000 * of, APIServer: usage{CPU: of / 100, Peak: 300 * times}, Controller: usage{CPU: of / 500, Peak: 40}})
			}
		}
	}
	return all
}

func TestTable(t *testing.T) {
	table := newest(some()).table()
	for _, line := range []string{
		"| nodes | 100 | 2,500 |",
		"| seconds until all have a new certificate | 4.0 (2.00 ×) | 100 (2.00 ×) |",
		"| requests a certificate | 10.0 (2.00 ×) | 10.0 (2.00 ×) |",
		"| controller: peak MB of a replica | 40.0 | 40.0 |",
	} {
		if !strings.Contains(table, line+"\n") {
			t.Errorf("no line %s in\n%s", line, table)
		}
	}
}

// TestCurves reads the picture as XML, and looks for each panel's curves.
func TestCurves(t *testing.T) {
	picture := newest(some()).curves("a <machine>")
	paths := 0
	for in := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" && e.Attr[0].Value != "axis" {
			paths++
		}
	}
	if paths != 3+3*2+2*2*2+2*2+2*2*2 {
		t.Errorf("%d curves, with those of the head", paths)
	}
	if strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") {
		t.Error("the picture has values that are no numbers")
	}
}

// TestPages: results are read as they were written, and the table replaces the one in the page.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	file, page := filepath.Join(dir, "results"), filepath.Join(dir, "benchmarks.md")
	for _, r := range some() {
		if err := r.append(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := writePages(file, dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a page: %v", err)
	}
	for _, text := range []string{"before\n" + tableBegin + tableEnd + "after\n", "before\n" + tableBegin + "old\n" + tableEnd + "after\n"} {
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := writePages(file, dir); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(page)
		if want := "before\n" + tableBegin + "\n" + newest(some()).table() + "\n" + tableEnd + "after\n"; err != nil || string(got) != want {
			t.Errorf("%v, got\n%s", err, got)
		}
	}
	if err := os.WriteFile(page, []byte("no place"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writePages(file, dir); err == nil {
		t.Error("a page without a place was taken")
	}
}

// TestMemoryLimit: the shipped Deployment has the same limits.
func TestMemoryLimit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "kube", "deploy", "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"value: " + strings.TrimPrefix(memoryLimit, "GOMEMLIMIT="), "memory: 512Mi", "replicas: 2"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("the Deployment has no line %q", line)
		}
	}
}
