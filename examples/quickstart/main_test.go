package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

var update = flag.Bool("update", false, "write testdata/output.golden instead of comparing with it")

// masks hide what differs from run to run.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(` +\d+\.\d\d ms`), " <time> ms"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "<date>"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "<sha256>"},
	{regexp.MustCompile(`\b\d+ bytes`), "<n> bytes"},
	{regexp.MustCompile(`\b\d+ different`), "<n> different"},
}

func masked(output string) string {
	for _, m := range masks {
		output = m.pattern.ReplaceAllString(output, m.with)
	}
	return output
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &story{w: &out}); err != nil {
		t.Fatalf("%v after\n%s", err, &out)
	}
	golden := filepath.Join("testdata", "output.golden")
	got := masked(out.String())
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the output differs (-want +got; run with -update if that is meant):\n%s", diff)
	}
	for line := range strings.Lines(out.String()) {
		if len(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("a line over 80 characters: %q", line)
		}
	}
}

// TestStory checks that the golden file itself shows the attacks.
func TestStory(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "output.golden"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(golden)
	refused := strings.Count(text, "REFUSED")
	if refused < 3 {
		t.Errorf("%d refusals, want at least 3", refused)
	}
	if want := fmt.Sprintf("\n1 certificate issued, %d attacks refused.\n", refused); !strings.HasSuffix(text, want) {
		t.Errorf("does not end with %q", want)
	}
	for _, check := range []error{attest.CheckBindingRequest, tpmcert.CheckCertificateChain, attest.CheckMembership} {
		if !strings.Contains(text, "check     "+check.Error()+"\n") {
			t.Errorf("nothing is refused by the check %s", check)
		}
	}
	for _, standing := range []attest.Standing{attest.Proven, attest.Asserted, attest.Vouched} {
		if !strings.Contains(text, "    "+string(standing)+" ") {
			t.Errorf("no fact that is %s", standing)
		}
	}
	_, end, _ := strings.Cut(text, "What node-1 has now\n")
	for _, want := range []string{"CN=system:node:node-1,O=system:nodes", providerID("node-1"), "<date> to <date>", "gce:example-project/4711000000000000001"} {
		if !strings.Contains(end, want) {
			t.Errorf("the end does not state %q", want)
		}
	}
}

func TestRunFails(t *testing.T) {
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := run(ctx, &story{w: &bytes.Buffer{}}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
	t.Run("no TPM", func(t *testing.T) {
		tpmsim.New(t, tpmsim.Options{})
		if err := run(t.Context(), &story{w: &bytes.Buffer{}}); !errors.Is(err, tpmsim.ErrInUse) {
			t.Errorf("got %v, want %v", err, tpmsim.ErrInUse)
		}
	})
	t.Run("no output", func(t *testing.T) {
		if err := run(t.Context(), &story{w: brokenPipe{}}); !errors.Is(err, errBroken) {
			t.Errorf("got %v, want %v", err, errBroken)
		}
	})
}

var errBroken = errors.New("broken pipe")

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

// TestExit runs the program in a process of its own.
func TestExit(t *testing.T) {
	const mode = "QUICKSTART_TEST"
	switch os.Getenv(mode) {
	case "good":
		main()
		return
	case "bad":
		tpmsim.New(t, tpmsim.Options{}) // main finds the only simulator taken
		main()
		return
	}
	for _, tt := range []struct {
		mode   string
		status int
		stderr string
	}{
		{"good", 0, ""},
		{"bad", 1, "quickstart: tpmsim: "},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExit$")
			cmd.Env = append(cmd.Environ(), mode+"="+tt.mode)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			err := cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != tt.status {
				t.Errorf("exit status %d, want %d (%v, %s)", got, tt.status, err, &stderr)
			}
			if !strings.HasPrefix(stderr.String(), tt.stderr) {
				t.Errorf("stderr %q, want %q", &stderr, tt.stderr)
			}
		})
	}
}

// TestAttackSucceeds puts a control plane that admits everybody in place of the
// real one: the program must notice.
func TestAttackSucceeds(t *testing.T) {
	cloud, err := tpmsim.NewCA(tpmsim.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	plane := newControlPlane(cloud.Root(), "gce:example-project/4711000000000000001 node-1\n")
	plane.config.Members = membership.With(
		func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: q.NodeName, NodeName: q.NodeName, BootstrapReady: true}, nil
		},
		attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			a := r.InsecureAdmitAnyone()
			a.ProviderID = providerID("node-1")
			return a, nil
		}))
	plane.Plane = must(join.NewPlane(plane.config))
	s := &story{w: &bytes.Buffer{}}
	err = ended(func() { attackWithOtherTPMs(t.Context(), s, plane, cloud) })
	if err == nil || !strings.Contains(err.Error(), "another customer's TPM") || !strings.Contains(err.Error(), "got a certificate") {
		t.Errorf("got %v, want an error that says which attack was approved", err)
	}
	if s.refused != 1 {
		t.Errorf("%d attacks refused, want the stranger's alone", s.refused)
	}
}

// ended is the error that a part of the story ends with.
func ended(part func()) (err error) {
	defer caught(&err)
	part()
	return nil
}

func TestRefusal(t *testing.T) {
	refused := &refusal.Error{Check: statement.CheckMagic, Got: "a", Want: "b"}
	for _, tt := range []struct {
		name string
		err  error
		want refusal.Check
		text string // of the error; "" for none
	}{
		{"refused", refused, statement.CheckMagic, ""},
		{"refused by a rule", csr.Errors{{Check: "usages"}}, refusal.Check("usages"), ""},
		{"accepted", nil, statement.CheckMagic, "got a certificate"},
		{"undecided", refusal.Retry(errors.New("no answer")), statement.CheckMagic, "retry"},
		{"broken", errors.New("disk full"), statement.CheckMagic, "retry"},
		{"by another check", refused, refusal.Check("certified-name"), "want " + refusal.Check("certified-name").Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			s := &story{w: &out}
			err := ended(func() { s.refusal("an attack", tt.err, tt.want) })
			if tt.text == "" {
				if err != nil || s.refused != 1 || !strings.Contains(out.String(), "check     "+tt.want.Error()) {
					t.Errorf("got %v, %d refused, %q", err, s.refused, &out)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.text) || s.refused != 0 || out.Len() != 0 {
				t.Errorf("got %v, %d refused, %q; want an error with %q", err, s.refused, &out, tt.text)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"one word", "one", "one"},
		{"two lines", "one two three", "one two|three"},
		{"a full line", "one two  three four", "one two|three four"},
		{"a word over the width", "incomprehensible to me", "incomprehensible|to me"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := wrap(tt.text, 10, "|"); got != tt.want {
				t.Errorf("wrap(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}
