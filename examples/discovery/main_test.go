package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
)

var update = flag.Bool("update", false, "write testdata/output.golden instead of comparing with it")

// masks hide what differs from run to run.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:<port>"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "sha256:<digest>"},
	{regexp.MustCompile(`[a-z0-9]{6}\.\[secret\]`), "<id>.[secret]"},
	{regexp.MustCompile(`jws-kubeconfig-[a-z0-9]{6}`), "jws-kubeconfig-<id>"},
	{regexp.MustCompile(`that of [a-z0-9]{6}\b`), "that of <id>"},
}

func masked(output string) string {
	for _, m := range masks {
		output = m.pattern.ReplaceAllString(output, m.with)
	}
	return output
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
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
		t.Errorf("the output is another (-want +got); go test -update writes it\n%s", diff)
	}
	if n := strings.Count(got, "REFUSED "); n != 4 {
		t.Errorf("%d refusals, want 4", n)
	}
}

func TestRunFails(t *testing.T) {
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := run(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
	t.Run("no output", func(t *testing.T) {
		if err := run(t.Context(), brokenPipe{}); !errors.Is(err, errBroken) {
			t.Errorf("got %v, want %v", err, errBroken)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "absent"))
		if err := run(t.Context(), &bytes.Buffer{}); err == nil && os.TempDir() == os.Getenv("TMPDIR") {
			t.Error("ran without a folder")
		}
	})
}

var errBroken = errors.New("broken pipe")

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

// A node that would believe anybody: the program must notice that the attack succeeds.
func TestAttackSucceeds(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	impostor := cluster.NewImpostor(t, bootstraptokentest.WrongCA)
	deceived := ticket{token: cluster.Token().Reveal(), pin: impostor.Info().Pins()[0].String()}
	// The impostor that run starts has another CA than this one, so the attack is
	// refused by a pin; with the wanted check another, the program says so.
	a := attack{"an impostor", bootstraptokentest.WrongCA, bootstraptoken.CheckSignature}
	if err := a.run(t.Context(), &printer{w: &bytes.Buffer{}}, cluster, deceived); err == nil || !strings.Contains(err.Error(), "want "+bootstraptoken.CheckSignature.Error()) {
		t.Errorf("got %v, want an error about the check", err)
	}
	for _, bad := range []ticket{{token: "x", pin: deceived.pin}, {token: deceived.token, pin: "x"}} {
		if err := a.run(t.Context(), &printer{w: &bytes.Buffer{}}, cluster, bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if err := (&attack{kind: 0}).run(t.Context(), &printer{w: &bytes.Buffer{}}, cluster, deceived); err == nil {
		t.Error("an impostor of no kind was started")
	}
}

func TestRefusal(t *testing.T) {
	refused := &bootstraptoken.Error{Check: bootstraptoken.CheckPinned}
	for name, test := range map[string]struct {
		err  error
		want bootstraptoken.Check
		text string
	}{
		"refused":       {refused, bootstraptoken.CheckPinned, ""},
		"until the end": {&bootstraptoken.Error{Check: refusal.ErrRetry, Err: refused}, bootstraptoken.CheckPinned, ""},
		"accepted":      {nil, bootstraptoken.CheckPinned, "was taken for the cluster"},
		"undecided":     {refusal.ErrRetry, bootstraptoken.CheckPinned, ", want "},
		"broken":        {errBroken, bootstraptoken.CheckPinned, ", want "},
		"another check": {refused, bootstraptoken.CheckSignature, ", want "},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := (&printer{w: &out}).refused("somebody", test.err, test.want)
			if test.text == "" && (err != nil || !strings.Contains(out.String(), "REFUSED somebody")) {
				t.Errorf("%s: %v, %q", name, err, &out)
			}
			if test.text != "" && (err == nil || !strings.Contains(err.Error(), test.text) || out.Len() != 0) {
				t.Errorf("%s: %v, %q", name, err, &out)
			}
		})
	}
}

// TestExit runs the program in a process of its own.
func TestExit(t *testing.T) {
	const mode = "DISCOVERY_TEST"
	if os.Getenv(mode) != "" {
		main()
		return
	}
	run := func(env ...string) (int, string) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExit$")
		cmd.Env = append(append(cmd.Environ(), mode+"=run"), env...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), stderr.String()
	}
	if status, stderr := run(); status != 0 || stderr != "" {
		t.Errorf("exit status %d, %q", status, stderr)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	if status, stderr := run("TMPDIR=" + absent); status != 1 || !strings.HasPrefix(stderr, "discovery: ") {
		t.Errorf("without a folder: exit status %d, %q", status, stderr)
	}
}
