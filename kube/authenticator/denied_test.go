package authenticator

import (
	"bytes"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

var update = flag.Bool("update", false, "write the golden outputs anew")

// TestDeniedSentences: each refusal says in one sentence what was refused, why, who acts, and how.
func TestDeniedSentences(t *testing.T) {
	by := func(check refusal.Check, got, want string) certificatesv1.CertificateSigningRequestCondition {
		d := csr.Decide(&refusal.Error{Check: check, Got: got, Want: want})
		return certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied, Reason: d.Reason, Message: d.Message}
	}
	var all strings.Builder
	for _, c := range []certificatesv1.CertificateSigningRequestCondition{
		by("registry-name", "another machine", "that of node node-1"),
		by("registry-resting", "a name that rests until 2027-01-01", "a free name"),
		by("inventory-machine", "a machine that is not in the inventory", "one of it"),
		by("machine-unknown", "node-1", "a machine of the inventory"),
		by("provider-id-mismatch", "rack://2", "rack://1"),
		by("insecure-name-used", "node-1", "a name that no machine has had"),
		by("inherited-machine", "a certificate of another machine", "this machine's"),
		by("binding-cluster", "sha256:aa", "sha256:bb"),
		by("answer-late", "an answer after 11m", "one within 10m"),
		by("ring-key", "a key that is not in the ring", "one of the ring"),
		by("no-challenge", "evidence of gce", "evidence of tpm"),
		by("certificate-chain", "a chain that ends at issuer CN=other", "one of the roots"),
		{Type: certificatesv1.CertificateDenied, Reason: "PolicyViolation", Message: "violates policy 7"},
		{Type: certificatesv1.CertificateFailed, Reason: "SignerValidationFailure", Message: "usages"},
		{Type: certificatesv1.CertificateDenied},
		{Type: certificatesv1.CertificateDenied, Reason: "\x1b[2J\n", Message: "\x1b]0;x\x07\n" + strings.Repeat("é", 2*maxDenial)},
	} {
		err := (&join{nodeName: "node-1"}).denied(&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "nodeattest-node-1-x7k2p"}}, &c)
		sentence := err.Error()
		if !isDenied(err) || strings.ContainsAny(sentence, "\n\x1b\x07") || len(sentence) > maxErrorSize || !strings.Contains(sentence, "node-1") ||
			!regexp.MustCompile(`(an operator,?|administrator|the node) .*(kubectl |kubelet-authenticator |no command)`).MatchString(sentence) {
			t.Errorf("got %q", sentence)
		}
		all.WriteString(regexp.MustCompile("(é)+").ReplaceAllString(sentence, "é...") + "\n")
	}
	path := filepath.Join("testdata", "refusals.txt")
	if *update {
		testkit.MustDo(errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(all.String()), 0o644)))
	}
	if want := testkit.Must(os.ReadFile(path)); all.String() != string(want) {
		t.Errorf("%s (-update writes it): got\n%s", path, &all)
	}
}

// TestDeniedShown: log and status have the sentence of a denial, and those without access name the command.
func TestDeniedShown(t *testing.T) {
	f, log := newFakeAPI(t), new(bytes.Buffer)
	a, kind := newNode(t, f, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	kind.machine = attesttest.MachineTwo
	err := a.Rotate(t.Context())
	const remedy = "an operator decides whether this machine may be node "
	var status strings.Builder
	testkit.MustDo(a.Status().Write(&status, f.now()))
	for name, text := range map[string]string{"the error": err.Error(), "the log": log.String(), "status": status.String()} {
		if !strings.Contains(text, "with reason NotAMember, ") || !strings.Contains(text, remedy) {
			t.Errorf("%s: got %s", name, text)
		}
	}
	const command = "kubectl nodeattest token "
	a, _ = newNode(t, f, func(c *Config) {
		c.API = func() (*rest.Config, error) {
			config, err := f.config()
			config.BearerToken = "abcdef.0000000000000000"
			return config, err
		}
	})
	if err := a.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), command+a.config.NodeName) {
		t.Errorf("with a token that has ended: got %v", err)
	}
}
