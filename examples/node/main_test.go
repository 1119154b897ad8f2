package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const asProgram = "NODE_TEST"

// TestMain is the program where a test starts it, in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start runs the program. It returns its standard output and, if it failed,
// on standard error.
func start(t *testing.T, stdin any, args ...string) (stdout []byte, stderr string) {
	t.Helper()
	input, err := json.Marshal(stdin)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(cmd.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	if err := cmd.Run(); (err == nil) != (errs.Len() == 0) {
		t.Errorf("%v, and on standard error: %s", err, &errs)
	}
	return out.Bytes(), errs.String()
}

// filed stores an object as the API server does.
func filed(t *testing.T, object []byte, name string) *csr.Request {
	t.Helper()
	sent, err := csr.ParseServerObject(object)
	if err != nil {
		t.Fatal(err)
	}
	by := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	request := csr.Filed(&sent.Spec, by, time.Now())
	request.Metadata.Name, request.Metadata.UID = name, "uid-of-"+name
	return request
}

// TestJoin runs the three commands on swtpm, and plays the API server and the control
// plane.
func TestJoin(t *testing.T) {
	machine := attesttest.NewNode(t, attesttest.NodeOptions{TPM: tpmsim.Swtpm(t, tpmsim.Options{})})
	plane := attesttest.NewControlPlane(t, machine)
	folder := t.TempDir()
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: machine.TPM.CA().AKIntermediate().Raw})
	if err := os.WriteFile(filepath.Join(folder, "chain.pem"), chain, 0o600); err != nil {
		t.Fatal(err)
	}
	node := func(stdin any, command, wantError string) []byte {
		t.Helper()
		stdout, stderr := start(t, stdin, "-tpm", strings.TrimPrefix(machine.TPM.TCTI(), "swtpm:path="), "-folder", folder, "-chain", filepath.Join(folder, "chain.pem"),
			"-name", attesttest.NodeName, "-cluster", attesttest.ClusterID, "-provider-id", attesttest.ProviderID, command)
		if !strings.Contains(stderr, wantError) || (stderr == "") != (wantError == "") {
			t.Fatalf("%s: got %q, want %q", command, stderr, wantError)
		}
		return stdout
	}

	hello := filed(t, node(nil, "hello", ""), "hello")
	node(hello, "answer", "no-challenge")
	challenge, err := plane.Verifier.Challenge(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	denied := attest.ChallengeDecision(challenge, nil).For(hello)
	hello.Status.Conditions = []csr.Condition{{Type: denied.Condition, Status: "True", Reason: denied.Reason, Message: denied.Message}}
	answer := filed(t, node(hello, "answer", ""), "answer")
	node(answer, "install", "no certificate")
	result, err := plane.Verifier.Verify(t.Context(), answer)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := plane.CA.Issue(t.Context(), result.Attested())
	if err != nil {
		t.Fatal(err)
	}
	answer.Status.Certificate = issued.PEM
	node(answer, "install", "")
	holds(t, machine, folder)
}

// holds checks that the folder's key and certificate belong together.
func holds(t *testing.T, machine *attesttest.Node, folder string) {
	t.Helper()
	installed, err := os.ReadFile(filepath.Join(folder, "kubelet.crt"))
	if err != nil {
		t.Fatal(err)
	}
	chain, err := tpmcert.ParseCertificatesPEM(installed)
	if err != nil {
		t.Fatal(err)
	}
	file, err := tpmkey.ReadFile(filepath.Join(folder, "kubelet.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := tpmkey.Load(t.Context(), machine.TPM, file, tpmkey.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer key.Close()
	want, err := csr.CanonicalSPKI(key.Public())
	if err != nil || !bytes.Equal(chain[0].RawSubjectPublicKeyInfo, want) || chain[0].Subject.CommonName != "system:node:"+attesttest.NodeName {
		t.Errorf("a certificate for %s: %v", chain[0].Subject, err)
	}
}

func TestRefused(t *testing.T) {
	folder := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no command":      {nil, "want one of"},
		"another command": {[]string{"join"}, "want one of"},
		"no certificate":  {[]string{"install"}, "no certificate"},
		"no challenge":    {[]string{"answer"}, "no-challenge"},
		"no TPM":          {[]string{"-tpm", filepath.Join(folder, "absent"), "hello"}, "no such file"},
		"no chain":        {[]string{"-tpm", os.DevNull, "-chain", filepath.Join(folder, "absent"), "hello"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr := start(t, struct{}{}, append([]string{"-folder", folder}, c.args...)...)
			if len(stdout) != 0 || !strings.HasPrefix(stderr, "node: ") || !strings.Contains(stderr, c.want) {
				t.Errorf("got %q, %q, want %q", stdout, stderr, c.want)
			}
		})
	}
}
