package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
)

// The streams below are shortened recordings of go test -json, go1.26.
const (
	passing = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"    a_test.go:5: chatter\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"--- PASS: TestGood (0.00s)\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":0}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.002s\n"}
{"Action":"pass","Package":"m/a","Elapsed":0.002}
`
	skipping = `{"Action":"start","Package":"m/b"}
{"Action":"run","Package":"m/b","Test":"TestTool/rsa"}
{"Action":"output","Package":"m/b","Test":"TestTool/rsa","Output":"=== RUN   TestTool/rsa\n"}
{"Action":"output","Package":"m/b","Test":"TestTool/rsa","Output":"    b_test.go:5: swtpm is not installed\n"}
{"Action":"output","Package":"m/b","Test":"TestTool/rsa","Output":"--- SKIP: TestTool/rsa (0.00s)\n"}
{"Action":"skip","Package":"m/b","Test":"TestTool/rsa","Elapsed":0}
{"Action":"output","Package":"m/b","Output":"ok  \tm/b\t0.002s\n"}
{"Action":"pass","Package":"m/b","Elapsed":0.002}
`
	failing = `{"Action":"run","Package":"m/c","Test":"TestBad"}
{"Action":"output","Package":"m/c","Test":"TestBad","Output":"    c_test.go:7: got 1, want 2\n"}
{"Action":"fail","Package":"m/c","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"m/c","Output":"FAIL\tm/c\t0.002s\n"}
{"Action":"fail","Package":"m/c","Elapsed":0.002}
`
	crashing = `{"Action":"run","Package":"m/d","Test":"TestCrash"}
{"Action":"output","Package":"m/d","Test":"TestCrash","Output":"panic: oops\n"}
{"Action":"output","Package":"m/d","Output":"FAIL\tm/d\t0.002s\n"}
{"Action":"fail","Package":"m/d","Elapsed":0.002}
`
	unbuilt = `{"ImportPath":"m/e","Action":"build-output","Output":"e.go:3: syntax error\n"}
{"ImportPath":"m/e","Action":"build-fail"}
{"Action":"start","Package":"m/e"}
{"Action":"output","Package":"m/e","Output":"FAIL\tm/e [build failed]\n"}
{"Action":"fail","Package":"m/e","Elapsed":0,"FailedBuild":"m/e"}
`
	testless = `{"Action":"start","Package":"m/f"}
{"Action":"output","Package":"m/f","Output":"?   \tm/f\t[no test files]\n"}
{"Action":"skip","Package":"m/f","Elapsed":0}
`
)

func TestReporter(t *testing.T) {
	tests := []struct {
		name    string
		stream  string
		strict  bool
		allow   string
		want    []string
		absent  []string
		counts  string
		refusal string // "" for a nil verdict
	}{
		{
			name: "passes quietly", stream: passing,
			want: []string{"ok  \tm/a\t0.002s\n"}, absent: []string{"chatter", "PASS"},
			counts: "1 passed, 0 failed, 0 skipped",
		},
		{
			name: "skip with its reason", stream: skipping,
			want:   []string{"SKIP m/b TestTool/rsa: b_test.go:5: swtpm is not installed\n"},
			counts: "0 passed, 0 failed, 1 skipped",
		},
		{
			name: "skip that must run", stream: passing + skipping, strict: true,
			counts: "1 passed, 0 failed, 1 skipped", refusal: "1 tests skipped that must run",
		},
		{
			name: "skip for another reason than allowed", stream: skipping, strict: true, allow: "CORPUS",
			counts: "0 passed, 0 failed, 1 skipped", refusal: "1 tests skipped that must run",
		},
		{
			name: "skip for an allowed reason", stream: skipping, strict: true, allow: "swtpm",
			counts: "0 passed, 0 failed, 1 skipped",
		},
		{
			name: "failure with its output", stream: passing + failing,
			want:   []string{"c_test.go:7: got 1, want 2\n", "FAIL\tm/c"},
			counts: "1 passed, 1 failed, 0 skipped", refusal: "1 tests failed in 1 packages",
		},
		{
			name: "crash in the middle of a test", stream: passing + crashing,
			want:   []string{"panic: oops\n", "FAIL\tm/d"},
			counts: "1 passed, 0 failed, 0 skipped", refusal: "0 tests failed in 1 packages",
		},
		{
			name: "package that does not build", stream: passing + unbuilt,
			want:   []string{"e.go:3: syntax error\n", "[build failed]"},
			counts: "1 passed, 0 failed, 0 skipped", refusal: "0 tests failed in 1 packages",
		},
		{
			name: "no test at all", stream: testless, absent: []string{"m/f"},
			counts: "0 passed, 0 failed, 0 skipped", refusal: "no test ran",
		},
		{
			name: "line that is no event", stream: passing + "go: warning\n",
			want: []string{"go: warning\n"}, counts: "1 passed, 0 failed, 0 skipped",
		},
		{
			name: "last line without its end", stream: strings.TrimSuffix(passing, "\n"),
			counts: "1 passed, 0 failed, 0 skipped",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			r := &reporter{out: &out, failSkips: tt.strict}
			if tt.allow != "" {
				r.allowSkip = regexp.MustCompile(tt.allow)
			}
			if err := r.read(strings.NewReader(tt.stream)); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
			for _, absent := range tt.absent {
				if strings.Contains(out.String(), absent) {
					t.Errorf("output has %q:\n%s", absent, out.String())
				}
			}
			if got := r.counts(); got != tt.counts {
				t.Errorf("counts: got %q, want %q", got, tt.counts)
			}
			err := r.verdict()
			if (err == nil) != (tt.refusal == "") || err != nil && !strings.Contains(err.Error(), tt.refusal) {
				t.Errorf("verdict: got %v, want %q", err, tt.refusal)
			}
			if len(r.pending) != 0 {
				t.Errorf("output kept after the end: %v", r.pending)
			}
		})
	}
}

func TestReporterReadError(t *testing.T) {
	broken := errors.New("broken pipe")
	r := &reporter{out: io.Discard}
	if err := r.read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestReasonOfSilentSkip(t *testing.T) {
	if got := reason([]string{"=== RUN   TestX\n", "--- SKIP: TestX (0.00s)\n"}); got != "no reason given" {
		t.Errorf("got %q", got)
	}
}

// TestRun drives the real go command on a module of its own, so that a change in
// the format of the events is seen.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", "module m\n\ngo 1.26\n")
	write(t, dir, "m_test.go", `package m

import "testing"

func TestGood(t *testing.T) {}
func TestAway(t *testing.T) { t.Skip("no tool") }
`)
	t.Chdir(dir)
	var out bytes.Buffer
	counts := filepath.Join(dir, "counts")
	if err := run([]string{"-counts", counts, "./..."}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	const line = "1 passed, 0 failed, 1 skipped\n"
	if !strings.HasSuffix(out.String(), line) || !strings.Contains(out.String(), "SKIP m TestAway: m_test.go:6: no tool\n") {
		t.Errorf("output:\n%s", out.String())
	}
	if got, err := os.ReadFile(counts); err != nil || string(got) != line {
		t.Errorf("counts file: got %q, %v, want %q", got, err, line)
	}
	if err := run([]string{"-fail-skips", "./..."}, io.Discard, io.Discard); err == nil {
		t.Error("a skip was let through")
	}

	write(t, dir, "m_test.go", "package m\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Error(1) }\n")
	if err := run([]string{"./..."}, io.Discard, io.Discard); err == nil {
		t.Error("a failure was let through")
	}
	write(t, dir, "m_test.go", "package m\n\nfunc TestBad(\n")
	if err := run([]string{"./..."}, io.Discard, io.Discard); err == nil {
		t.Error("a package that does not build was let through")
	}
	if err := run([]string{"-allow-skip", "(", "./..."}, io.Discard, io.Discard); err == nil {
		t.Error("a broken -allow-skip was let through")
	}
	if err := run([]string{"-unknown"}, io.Discard, io.Discard); err == nil {
		t.Error("an unknown flag was let through")
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
