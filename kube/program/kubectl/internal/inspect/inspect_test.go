package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden outputs anew")

// inputs are the messages of the core's worked example and the parts of them, and each form in
// which they come.
func inputs(t testing.TB) map[string][]byte {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "..", "..", "attest", "testdata", "messages")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if name := e.Name(); name != "README.md" && name != "example.json" {
			if all[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	object := func(signer string, text []byte, status map[string]any) []byte {
		object, err := json.Marshal(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
			"metadata": map[string]any{"name": "csr-1", "creationTimestamp": "2026-03-02T11:59:30Z", "annotations": map[string]string{"a": "b"}},
			"spec":     map[string]any{"request": text, "signerName": signer, "username": "system:bootstrap:zzzzzz", "expirationSeconds": 86400}, "status": status})
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	all["denied.json"] = object(csr.SignerChallengeTPM, all["hello.pem"], map[string]any{"conditions": []any{map[string]string{"type": "Denied", "reason": "AttestationChallenge", "message": string(all["challenge.txt"])}}})
	all["issued.json"] = object(csr.SignerClientTPM, all["answer.pem"], map[string]any{"certificate": all["root.pem"]})
	all["issued.yaml"] = []byte("---\napiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequestList\nitems: [" + string(all["issued.json"]) + "]\n")
	public := all["ak-public.bin"]
	all["ak-public2b.bin"] = append([]byte{byte(len(public) >> 8), byte(len(public))}, public...)
	return all
}

// show runs Show, and checks what holds for every input.
func show(t testing.TB, input []byte) (string, []string) {
	t.Helper()
	var out bytes.Buffer
	faults, err := Show(&out, "input", input, []attest.Kind{new(tpm.Kind)})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(slices.Clone(faults), out.String()) {
		for _, r := range text {
			if r != '\n' && !strconv.IsPrint(r) {
				t.Fatalf("%U in the output", r)
			}
		}
	}
	if (len(faults) != 0) != strings.Contains(out.String(), "  !! ") {
		t.Fatalf("faults %q, and the output is\n%s", faults, &out)
	}
	if strings.Count(out.String(), "\n") > maxLines || len(faults) > maxFaults+1 {
		t.Fatalf("%d lines, %d faults", strings.Count(out.String(), "\n"), len(faults))
	}
	return out.String(), faults
}

// TestGolden shows every input whole. That of the messages is kept.
func TestGolden(t *testing.T) {
	for name, input := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			got, faults := show(t, input)
			if len(faults) != 0 && name != "tls-key.pem" && name != "request-proposal.pem" {
				t.Errorf("faults: %q", faults)
			}
			golden := filepath.Join("testdata", name+".txt")
			want, err := os.ReadFile(golden)
			if errors.Is(err, os.ErrNotExist) && !slices.Contains([]string{"denied.json", "issued.json"}, name) {
				return
			}
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestRecognize names what each part is.
func TestRecognize(t *testing.T) {
	files := inputs(t)
	for file, want := range map[string]string{"request.der": "CertificationRequest", "certify.der": "TcgAttestCertify", "attest.bin": "TPMS_ATTEST",
		"ak-public.bin": "TPMT_PUBLIC", "signature.bin": "TPMT_SIGNATURE", "hello.der": "", "proof.der": "", "challenge.der": "", "ak-public2b.bin": ""} {
		if got := recognize(files[file]); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}

// TestDamaged truncates every input, and changes single bytes in it: nothing panics, the output has no
// control characters, and a truncated text is a fault.
func TestDamaged(t *testing.T) {
	for name, input := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 0; n < len(input); n += 1 + len(input)/50 {
				cut, changed := bytes.TrimSpace(input[:n]), bytes.Clone(input)
				changed[n] ^= 1 << (n % 8)
				show(t, changed)
				_, faults := show(t, cut)
				if len(faults) == 0 && !bytes.HasSuffix(cut, []byte("-----")) && !strings.HasSuffix(name, ".txt") {
					t.Errorf("%d of %d bytes have no fault", n, len(input))
				}
			}
		})
	}
}

// evil clears a terminal, renames its window, and turns the direction of the text.
const evil = "\x1b[2J\x1b]0;root\x07\u202egpj\u009b31m\r\n\x00\x7f"

// TestNotShown keeps terminal escapes, secrets and endless outputs from the reader.
func TestNotShown(t *testing.T) {
	object, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": evil, "annotations": map[string]string{evil: evil}},
		"spec":   map[string]any{"request": inputs(t)["answer.pem"], "username": evil, "groups": slices.Repeat([]string{"a"}, 2*maxLines)},
		"status": map[string]any{"conditions": []any{map[string]string{"type": evil, "reason": evil, "message": evil}}}})
	if err != nil {
		t.Fatal(err)
	}
	out, faults := show(t, object)
	if !strings.Contains(out, `\x1b[2J`) || len(faults) == 0 || !strings.Contains(out, "the rest is not shown") {
		t.Errorf("faults %.300q", faults)
	}
	secret := "f4607c2285f600701b2f70fd18b442bedfe74f2168489f20881ff30ecd54d003" // of the challenge
	for _, name := range []string{"challenge.der", "challenge.txt", "denied.json", "tls-key.pem"} {
		if out, _ := show(t, inputs(t)[name]); strings.Contains(out, secret) || strings.Contains(out, "PrivateKey") {
			t.Errorf("%s: a secret is shown:\n%s", name, out)
		}
	}
	for _, input := range [][]byte{make([]byte, MaxSize+1), bytes.Repeat([]byte{0x30, 0x80}, 1000), []byte(strings.Repeat("[", 10000)), []byte("apiVersion: v1\n---\n"), []byte(`{"kind":"List","items":[1]}`)} {
		if _, faults := show(t, input); len(faults) == 0 {
			t.Errorf("%.20q has no fault", input)
		}
	}
}

// FuzzShow neither panics nor writes control characters.
func FuzzShow(f *testing.F) {
	testkit.BeginFuzz(f)
	for _, input := range inputs(f) {
		f.Add(input)
		f.Add(input[:len(input)*2/3])
	}
	f.Add([]byte("-----BEGIN "))
	f.Add([]byte("{\"spec\":{\"request\":\"" + evil))
	f.Add([]byte("\x30\x80\x00\x00"))
	f.Fuzz(func(t *testing.T, input []byte) { show(t, input) })
}
