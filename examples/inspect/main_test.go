package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden outputs anew")

// inputs are the files in testdata, by name.
func inputs(t testing.TB) map[string][]byte {
	t.Helper()
	entries := must(os.ReadDir("testdata"))(t)
	files := map[string][]byte{}
	for _, e := range entries {
		if !e.IsDir() {
			files[e.Name()] = must(os.ReadFile(filepath.Join("testdata", e.Name())))(t)
		}
	}
	if len(files) < 20 {
		t.Fatalf("testdata has %d inputs", len(files))
	}
	return files
}

// inspect runs the program over standard input, and checks what holds for every input.
func inspect(t testing.TB, input []byte) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(nil, bytes.NewReader(input), &out, &errs)
	stdout, stderr = out.String(), errs.String()
	for _, text := range []string{stdout, stderr} {
		for _, r := range text {
			if r != '\n' && !strconv.IsPrint(r) {
				t.Fatalf("%U in the output", r)
			}
		}
	}
	if status != 0 && status != 1 || (status == 1) != (stderr != "") {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	if status == 0 && strings.Contains(stdout, "\n  !! ") {
		t.Fatalf("status 0 with a fault:\n%s", stdout)
	}
	return status, stdout, stderr
}

func TestGolden(t *testing.T) {
	for name, input := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			status, got, stderr := inspect(t, input)
			if status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			golden := filepath.Join("testdata", "golden", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(must(os.ReadFile(golden))(t)), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestFits checks that good evidence gives no line that says no.
func TestFits(t *testing.T) {
	files := inputs(t)
	for name, lines := range map[string][]string{
		"answer.pem": {"certified Name is that", "certified key is the request's: yes", "AK is the key of the first certificate: yes",
			"qualified signer is the AK", "statement verifies under the AK", "signed with: RSASSA/SHA256",
			"binding is for this request: yes", "binding is for this AK: yes", "certificate 1 is signed by certificate 2: yes"},
		"answer-gce.pem": {"statement verifies under the AK", "signed with: ECDSA/SHA256", "certified key lives in the TPM, if the AK does: yes"},
		"denied.json":    {"binding is for this request: yes", "binding is for this AK: yes"},
		"issued.json":    {"statement verifies under the AK", "certificate 1 is signed by certificate 2: yes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, out, _ := inspect(t, files[name])
			_, fit, _ := strings.Cut(out, "how the parts fit\n")
			for _, line := range lines {
				if !strings.Contains(fit, line) {
					t.Errorf("%s: no line %q in\n%s", name, line, fit)
				}
			}
			if name != "answer.pem" && name != "issued.json" && strings.Contains(fit, ": NO") {
				t.Errorf("%s:\n%s", name, fit)
			}
		})
	}
	if _, out, _ := inspect(t, files["answer.pem"]); strings.Count(out, ": NO") != 1 || !strings.Contains(out, "certified key lives in the TPM, if the AK does: NO") {
		t.Error("a software key is not told from a resident one")
	}
}

// TestParts takes several files for the parts of one piece of evidence.
func TestParts(t *testing.T) {
	var out, errs bytes.Buffer
	status := run([]string{"testdata/attest.bin", "testdata/public.bin", "testdata/signature.bin", "testdata/ak.der"}, nil, &out, &errs)
	_, fit, _ := strings.Cut(out.String(), "how the parts fit\n")
	if status != 0 || !strings.Contains(fit, "statement verifies under the AK, whatever its qualifying data: yes") {
		t.Errorf("status %d, %s\n%s", status, errs.String(), fit)
	}
	out.Reset()
	run([]string{"testdata/attest.bin", "testdata/public2b.bin", "testdata/signature.bin", "testdata/chain.pem"}, nil, &out, &errs)
	if !strings.Contains(out.String(), "a TPM2B") || !strings.Contains(out.String(), "qualifying data: yes") {
		t.Error(out.String())
	}
}

// TestNo checks that parts which do not fit are told apart.
func TestNo(t *testing.T) {
	var out, errs bytes.Buffer
	run([]string{"testdata/attest.bin", "testdata/public.bin", "testdata/signature.bin", "testdata/answer-gce.pem", "testdata/serving.pem"}, nil, &out, &errs)
	for _, line := range []string{
		"the certified key is the request's: NO",
		"the qualified signer is the AK, a primary key of the endorsement hierarchy: NO",
		"whatever its qualifying data: NO: signature-scheme: ",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out.String()[strings.Index(out.String(), "how the parts"):])
		}
	}
	if errs.Len() != 0 {
		t.Error(errs.String())
	}
}

func TestCommandLine(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxInput+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"testdata/ak.der"}, 0, ""},
		{[]string{"-h"}, 0, "usage: inspect"},
		{[]string{"-x"}, 2, "usage: inspect"},
		{[]string{"testdata/absent"}, 1, "testdata/absent"},
		{[]string{"testdata/ab\x1b[31msent"}, 1, `\x1b[31msent`},
		{[]string{"testdata"}, 1, "testdata"},
		{[]string{large}, 1, "more than 2097152 bytes"},
		{[]string{"testdata/absent", "testdata/ak.der"}, 1, "testdata/absent"},
	} {
		t.Run(fmt.Sprint(test.status), func(t *testing.T) {
			var out, errs bytes.Buffer
			status := run(test.args, strings.NewReader(""), &out, &errs)
			if status != test.status || !strings.Contains(errs.String(), test.stderr) || test.stderr == "" && errs.Len() > 0 {
				t.Errorf("%q: status %d, %q", test.args, status, errs.String())
			}
			if got := strings.Contains(out.String(), "tpmsim AK CA"); got != strings.Contains(strings.Join(test.args, " "), "ak.der") {
				t.Errorf("%q: certificate shown: %v", test.args, got)
			}
		})
	}
	var errs bytes.Buffer
	if run(nil, iotest.ErrReader(errors.New("broken pipe")), &bytes.Buffer{}, &errs) != 1 || !strings.Contains(errs.String(), "broken pipe") {
		t.Errorf("an unreadable input: %s", errs.String())
	}
	if run([]string{"testdata/ak.der"}, nil, brokenWriter{}, &errs) != 1 || !strings.Contains(errs.String(), "no space") {
		t.Errorf("an output that cannot be written: %s", errs.String())
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestCorpus(t *testing.T) {
	corpus := os.Getenv("NODEATTEST_CORPUS")
	if corpus == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names the folder with real evidence and certificates")
	}
	_, out, stderr := inspect(t, must(os.ReadFile(filepath.Join(corpus, "lamps", "tcg-attest-certify-csr.pem")))(t))
	for _, line := range []string{"self-signature: holds", "whatever its qualifying data: yes", "bare signature", "ExtraData: 00ff55aa"} {
		if !strings.Contains(out, line) {
			t.Errorf("lamps: no line %q: %s", line, stderr)
		}
	}
	for _, folder := range must(filepath.Glob(filepath.Join(corpus, "webauthn-tpm", "real-*")))(t) {
		var args []string
		for _, name := range []string{"certinfo.bin", "pubarea.bin", "sig.tpmt.bin", "x5c-0.der"} {
			args = append(args, filepath.Join(folder, name))
		}
		var out, errs bytes.Buffer
		if status := run(args, nil, &out, &errs); status != 0 || !strings.Contains(out.String(), "whatever its qualifying data: yes") {
			t.Errorf("%s: status %d, %s", folder, status, errs.String())
		}
	}
	leaves := must(filepath.Glob(filepath.Join(corpus, "ek-certs", "leaf", "*.der")))(t)
	if len(leaves) == 0 {
		t.Fatal("no certificates in ek-certs/leaf")
	}
	for _, leaf := range leaves {
		status, out, stderr := inspect(t, must(os.ReadFile(leaf))(t))
		// One has a tcg-at-tpmSpecification whose SEQUENCE is missing.
		if status != 0 && !strings.Contains(stderr, "TPM specification") || !strings.Contains(out, "not after: ") {
			t.Errorf("%s: %s", leaf, stderr)
		}
		if strings.Contains(leaf, "GOOG-gce") && !strings.Contains(out, "GCE instance") {
			t.Errorf("%s: no instance", leaf)
		}
	}
}
