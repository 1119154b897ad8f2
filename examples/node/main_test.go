package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
)

// TestJoin runs the three commands, each as if in a process of its own, and plays the API
// server and the control plane.
func TestJoin(t *testing.T) {
	machine, err := attesttest.OpenNode(&attesttest.NodeOptions{Profile: attest.ProfileTCG()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = machine.Close() })
	plane := attesttest.NewControlPlane(t, machine)
	folder := t.TempDir()
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: machine.TPM.CA().AKIntermediate().Raw})
	if err := os.WriteFile(filepath.Join(folder, "chain.pem"), chain, 0o600); err != nil {
		t.Fatal(err)
	}
	node := func(stdin any, command string) (*csr.Request, error) {
		input, err := json.Marshal(stdin)
		if err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		n := node{
			tpm: machine.TPM, name: attesttest.NodeName, cluster: attesttest.ClusterID, provider: attesttest.ProviderID,
			chain: filepath.Join(folder, "chain.pem"), folder: folder, stdin: bytes.NewReader(input), stdout: &stdout,
		}
		if err := n.run(t.Context(), command); err != nil || stdout.Len() == 0 {
			return nil, err
		}
		request, err := csr.ParseRequest(stdout.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		request.Metadata.Name, request.Metadata.UID = command, "uid-of-"+command // as the API server does
		request.Metadata.CreationTimestamp = time.Now().Truncate(time.Second)
		request.Spec.Username = csr.BootstrapUserPrefix + "abcdef"
		request.Spec.Groups = []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}
		return request, nil
	}

	hello, err := node(nil, "hello")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node(hello, "answer"); err == nil || !strings.Contains(err.Error(), "no challenge") {
		t.Errorf("an answer without a challenge: %v", err)
	}
	challenge, err := plane.Verifier.Challenge(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	denied := attest.ChallengeDecision(challenge).For(hello)
	hello.Status.Conditions = []csr.Condition{{Type: denied.Condition, Status: "True", Reason: denied.Reason, Message: denied.Message}}
	answer, err := node(hello, "answer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node(answer, "install"); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("nothing to install: %v", err)
	}
	result, err := plane.Verifier.Verify(t.Context(), answer)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := plane.CA.Issue(t.Context(), result.Checked(), result.Verified())
	if err != nil {
		t.Fatal(err)
	}
	answer.Status.Certificate = issued.PEM
	if _, err := node(answer, "install"); err != nil {
		t.Fatal(err)
	}
	holds(t, machine, folder)
}

// holds checks that the folder's key and certificate belong together.
func holds(t *testing.T, machine *attesttest.Node, folder string) {
	t.Helper()
	installed, err := os.ReadFile(filepath.Join(folder, "kubelet.crt"))
	if err != nil {
		t.Fatal(err)
	}
	chain, err := attest.ParseCertificatesPEM(installed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "kubelet.key"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := attest.ParseTPMKeyFile(text)
	if err != nil {
		t.Fatal(err)
	}
	key, err := attest.LoadTPMKey(t.Context(), machine.TPM, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer key.Close()
	if public, ok := key.Public().(interface{ Equal(x any) bool }); ok && !public.Equal(chain[0].PublicKey) {
		t.Error("the certificate is for another key")
	}
	want, _ := x509.MarshalPKIXPublicKey(key.Public())
	if !bytes.Equal(chain[0].RawSubjectPublicKeyInfo, want) || chain[0].Subject.CommonName != "system:node:"+attesttest.NodeName {
		t.Errorf("a certificate for %s", chain[0].Subject)
	}
}

func TestRefused(t *testing.T) {
	n := node{folder: t.TempDir(), stdin: strings.NewReader("{}"), stdout: &bytes.Buffer{}}
	for command, want := range map[string]string{"": "which of", "join": "which of", "install": "no certificate", "answer": "no challenge"} {
		t.Run(command, func(t *testing.T) {
			n.stdin = strings.NewReader("{}")
			if err := n.run(t.Context(), command); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	if _, err := openTPM(filepath.Join(n.folder, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a TPM that is not there: %v", err)
	}
}
