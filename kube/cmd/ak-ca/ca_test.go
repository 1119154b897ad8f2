package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write writes a file that only its owner reads.
func write(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	testkit.MustDo(os.WriteFile(path, text, 0o600))
	return path
}

// filesOf writes the files of a CA with a list of machines.
func filesOf(t *testing.T, list string) *config {
	t.Helper()
	dir := t.TempDir()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "keys of ours"}, NotBefore: time.Now().Add(-time.Second), // it is new
		NotAfter: time.Now().Add(48 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	certificate := testkit.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	private := testkit.Must(x509.MarshalPKCS8PrivateKey(key))
	return &config{certificate: write(t, dir, "ca.pem", pemOf("CERTIFICATE", certificate)),
		key:  write(t, dir, "ca.key", pemOf("PRIVATE KEY", private)),
		ring: filepath.Join(dir, "ring.json"), machines: write(t, dir, "machines", []byte(list)), issuer: "ours", lifetime: time.Hour}
}

// open opens a CA at a time.
func open(t *testing.T, f *config, at time.Time) *ca {
	t.Helper()
	c := testkit.Must(f.open(func() time.Time { return at }))
	return c
}

// A machine is a simulated TPM that wants its attestation key certified.
type machine struct {
	identity attest.Identity // of its endorsement key
	attester *attest.Attester
	subject  attest.Subject
	key      *ecdsa.PrivateKey
}

func newMachine(t *testing.T, device *tpmsim.TPM, name string) *machine {
	t.Helper()
	ek := testkit.Must(tpmcert.ParseEK(device.EKCertificate(tpmsim.RSA2048).Raw))
	prover := testkit.Must(tpm.NewProver(device, tpm.AKSource{Template: tpm.AKTemplateECDSAP256()}, tpm.ProverOptions{EK: new(tpm.EKRSA2048())}))
	m := &machine{identity: ek.Identity()}
	m.attester = testkit.Must(attest.NewAttester(prover))
	m.key = testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := testkit.Must(csr.Create(csr.PurposeClient, m.key, name, csr.CreateOptions{}))
	m.subject = attest.Subject{Request: request, SignerName: csr.SignerClientTPM}
	return m
}

// hello makes the first message, to a CA.
func (m *machine) hello(t *testing.T, c *ca) *csr.Spec {
	t.Helper()
	m.subject.ClusterID = testkit.Must(attest.ClusterID(c.certificate))
	spec := testkit.Must(m.attester.Hello(t.Context(), m.subject))
	return spec
}

// answer makes the second message, from the reply to the first.
func (m *machine) answer(t *testing.T, hello *csr.Spec, status csr.Status) *csr.Spec {
	t.Helper()
	replied := csr.Filed(hello, csr.User{}, time.Now())
	replied.Status = status
	challenge := testkit.Must(attest.ChallengeOf(replied))
	answer := testkit.Must(m.attester.Answer(t.Context(), challenge, m.key, m.subject))
	return answer
}

const machineOfNobody = "ek:sha256:fd670dd27c4dbd1cdf8fe6d4e9d05f2ace30339fae9cd78a21691bc06ee9180b node-1\n"

// TestDecide has a simulated TPM enrol. A changed answer and one that is too late get nothing; the
// same answer again gets a certificate for the same key, which is of use to that TPM only.
func TestDecide(t *testing.T) {
	m := newMachine(t, tpmsim.New(t, tpmsim.Options{}), "node-1")
	now := time.Now()
	f := filesOf(t, string(m.identity)+" node-1\n")
	c := open(t, f, now)
	spec := m.hello(t, c)
	status, made, err := c.decide(t.Context(), spec)
	if err != nil || made != "" {
		t.Fatalf("the hello: %q, %v", made, err)
	}
	answer := m.answer(t, spec, status)
	changed := *answer
	changed.Request = bytes.Replace(answer.Request, []byte("node-1"), []byte("node-2"), 1)
	if bytes.Equal(changed.Request, answer.Request) {
		changed.Request = append([]byte("x"), answer.Request[1:]...)
	}
	if status, made, err := c.decide(t.Context(), &changed); err == nil || made != "" || len(status.Certificate) != 0 {
		t.Errorf("a changed answer: %q, %v", made, err)
	}
	var first *x509.Certificate
	for range 2 {
		status, made, err := c.decide(t.Context(), answer)
		if err != nil || !strings.HasPrefix(made, "node-1 othername:ours/") {
			t.Fatalf("the answer: %q, %v", made, err)
		}
		block, _ := pem.Decode(status.Certificate)
		certificate := testkit.Must(x509.ParseCertificate(block.Bytes))
		if err := certificate.CheckSignatureFrom(c.certificate); err != nil || certificate.NotAfter.Sub(now) > f.lifetime {
			t.Errorf("signature: %v, ends at %s", err, certificate.NotAfter)
		}
		if first == nil {
			first = certificate
		}
		if !first.PublicKey.(*ecdsa.PublicKey).Equal(certificate.PublicKey) {
			t.Error("the same answer gave a certificate for another key")
		}
	}
	if _, made, err := open(t, f, now.Add(2*time.Hour)).decide(t.Context(), answer); err == nil || made != "" {
		t.Errorf("the answer two hours later: %q, %v", made, err)
	}
	// A CA with another ring has made no such challenge.
	f.ring += ".other"
	if _, made, err := open(t, f, now).decide(context.Background(), answer); err == nil || made != "" {
		t.Errorf("the answer to another CA's challenge: %q, %v", made, err)
	}
}

// TestOpenRefuses changes one file of a CA: an error names the flag, and has no byte of a secret.
func TestOpenRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change func(t *testing.T, f *config)
		want   string
	}{
		"another CA's key":   {func(t *testing.T, f *config) { f.key = filesOf(t, machineOfNobody).key }, "--key"},
		"a key others read":  {func(t *testing.T, f *config) { _ = os.Chmod(f.key, 0o644) }, "--key"},
		"no key":             {func(t *testing.T, f *config) { _ = os.WriteFile(f.key, []byte("secret"), 0o600) }, "--key"},
		"a ring others read": {func(t *testing.T, f *config) { open(t, f, time.Now()); _ = os.Chmod(f.ring, 0o640) }, "--ring"},
		"no ring":            {func(t *testing.T, f *config) { _ = os.WriteFile(f.ring, []byte("secret"), 0o600) }, "--ring"},
		"no machines":        {func(t *testing.T, f *config) { _ = os.WriteFile(f.machines, nil, 0o600) }, "--machines"},
		"a list of no form":  {func(t *testing.T, f *config) { _ = os.WriteFile(f.machines, []byte("node-1\n"), 0o600) }, "--machines"},
		"no makers":          {func(_ *testing.T, f *config) { f.makers = f.machines }, "--makers"},
		"no certificate":     {func(_ *testing.T, f *config) { f.certificate = f.machines }, "--certificate"},
		"an odd name":        {func(_ *testing.T, f *config) { f.issuer = "a/b" }, "--issuer"},
		"no lifetime":        {func(_ *testing.T, f *config) { f.lifetime = 0 }, "--lifetime"},
	} {
		t.Run(name, func(t *testing.T) {
			f := filesOf(t, machineOfNobody)
			row.change(t, f)
			if _, err := f.open(time.Now); err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want an error about %s", err, row.want)
			}
		})
	}
}

// TestRing: the ring is made for its owner only, stays for thirty days, and then gets a key next to
// the one before, whose challenges are still out.
func TestRing(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "ring.json"), time.Now()
	keys := func(at time.Time) map[string][]byte {
		t.Helper()
		_ = testkit.Must(openRing(path, at))
		text := testkit.Must(os.ReadFile(path))
		var data map[string][]byte
		testkit.MustDo(json.Unmarshal(text, &data))
		return data
	}
	first := keys(now)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if len(first) != 1 || len(keys(now.Add(rotateAfter-time.Minute))) != 1 {
		t.Errorf("%d keys, want one", len(first))
	}
	second := keys(now.Add(rotateAfter + time.Minute))
	for id := range first {
		if len(second) != 2 || second[id] == nil {
			t.Errorf("after thirty days %d keys, the first among them: %t", len(second), second[id] != nil)
		}
	}
}

// TestFlags: names of files are not taken for flags.
func TestFlags(t *testing.T) {
	f := filesOf(t, machineOfNobody)
	args := []string{"--certificate", f.certificate, "--key", f.key, "--ring", f.ring, "--machines", f.machines}
	for name, row := range map[string]struct {
		files  []string
		status int
	}{
		"no dashes":            {[]string{"hello.json"}, 2},
		"a flag for a file":    {[]string{"--machines=evil.json", "hello.json"}, 2},
		"a dash too late":      {[]string{"hello.json", "--"}, 2},
		"no file":              {[]string{"--"}, 2},
		"no flag":              {[]string{"--", "--machines=evil.json"}, 1},
		"no TLS":               {[]string{"--listen=127.0.0.1:0"}, 2},
		"no key":               {[]string{"--listen=127.0.0.1:0", "--tls-certificate=" + f.certificate}, 2},
		"no address":           {[]string{"--tls-certificate=" + f.certificate, "--tls-key=" + f.key}, 2},
		"a server of files":    {[]string{"--listen=127.0.0.1:0", "--tls-certificate=" + f.certificate, "--tls-key=" + f.key, "--", "hello.json"}, 2},
		"files and an address": {[]string{"--listen=127.0.0.1:0", "--", "hello.json"}, 2},
		"a key of another":     {[]string{"--listen=127.0.0.1:0", "--tls-certificate=" + f.certificate, "--tls-key=" + f.ring}, 1},
	} {
		var stderr strings.Builder
		if status := run(t.Context(), append(slices.Clip(args), row.files...), io.Discard, &stderr); status != row.status {
			t.Errorf("%s: status %d, want %d: %s", name, status, row.status, &stderr)
		}
	}
}

// TestErrorsAreEscaped: nothing in the name of a foreign file, or in its text, acts on a terminal.
func TestErrorsAreEscaped(t *testing.T) {
	f := filesOf(t, machineOfNobody)
	var stderr strings.Builder
	status := run(t.Context(), []string{"--certificate", f.certificate, "--key", f.key, "--ring", f.ring, "--machines", f.machines, "--", "\u009b31m\u202e.json"}, io.Discard, &stderr)
	if text := stderr.String(); status != 1 || strings.ContainsAny(text, "\u009b\u202e") || !strings.Contains(text, `\u009b31m\u202e`) {
		t.Errorf("status %d, %q", status, text)
	}
}

// TestServe: a file that is no request gets no reply.
func TestServe(t *testing.T) {
	c := open(t, filesOf(t, machineOfNobody), time.Now())
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "{}", "b.json": "{", "c.json": strings.Repeat(" ", maxRequest+1)} {
		path := write(t, dir, name, []byte(text))
		if err := c.serve(t.Context(), path, io.Discard); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(path + ".reply"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: there is a reply", name)
		}
	}
	// A pipe is refused without waiting.
	if pipe := filepath.Join(dir, "pipe.json"); exec.Command("mkfifo", pipe).Run() == nil {
		if err := c.serve(t.Context(), pipe, io.Discard); err == nil {
			t.Error("a pipe: no error")
		}
	}
	odd := "x\nnode-1 othername:own.json"
	if err := c.serve(t.Context(), write(t, dir, odd, []byte("{")), io.Discard); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a name of two lines: %v", err)
	}
	path := write(t, dir, "empty.json", []byte("{}"))
	if err := c.serve(t.Context(), path, io.Discard); err == nil || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("an empty request: %v", err)
	}
	if text, err := os.ReadFile(path + ".reply"); err != nil || !strings.Contains(string(text), "Denied") {
		t.Errorf("the reply is %s, %v", text, err)
	}
}
