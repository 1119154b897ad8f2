package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	inventory "github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// runMain runs the program as its user does.
func runMain(kinds []Evidence, args ...string) (status int, out string) {
	var stdout, stderr bytes.Buffer
	status = Main(args, &stdout, &stderr, kinds...)
	return status, stdout.String() + stderr.String()
}

// devicePath is the path of a simulated TPM.
func devicePath(device *tpmsim.TPM) string { return strings.TrimPrefix(device.TCTI(), "swtpm:path=") }

// pemFile is a file with the root and the intermediates of a CA.
func pemFile(t *testing.T, ca *tpmsim.CA) string {
	t.Helper()
	text := pemOf("CERTIFICATE", ca.Root().Raw)
	for _, c := range ca.Intermediates() {
		text = append(text, pemOf("CERTIFICATE", c.Raw)...)
	}
	return written(t, "roots.pem", text)
}

// counted is the number of wrong passwords that the TPM has counted.
func counted(t *testing.T, device *tpmsim.TPM) uint32 {
	t.Helper()
	got := testkit.Must(tpm2.GetCapability{Capability: tpm2.TPMCapTPMProperties, Property: uint32(tpm2.TPMPTLockoutCounter), PropertyCount: 1}.Execute(device))
	return testkit.Must(got.CapabilityData.Data.TPMProperties()).TPMProperty[0].Value
}

// guess tries wrong passwords, at most 40, until the TPM locks.
func guess(t *testing.T, device *tpmsim.TPM, most int) {
	t.Helper()
	const index = tpm2.TPMHandle(0x01800f00)
	if _, err := (tpm2.NVReadPublic{NVIndex: index}).Execute(device); err != nil {
		tpmlab.DefineNV(t, device, index, tpm2.TPMANV{OwnerWrite: true, AuthRead: true, NT: tpm2.TPMNTOrdinary}, 1, []byte{1})
	}
	public := testkit.Must(tpm2.NVReadPublic{NVIndex: index}.Execute(device))
	for range most {
		_, err := tpm2.NVRead{AuthHandle: tpm2.AuthHandle{Handle: index, Name: public.NVName, Auth: tpm2.PasswordAuth([]byte("guess"))},
			NVIndex: tpm2.NamedHandle{Handle: index, Name: public.NVName}, Size: 1}.Execute(device)
		if errors.Is(err, tpm2.TPMRCLockout) {
			return
		}
	}
}

// TestIdentity shows machines, before there is any configuration file.
func TestIdentity(t *testing.T) {
	maker, other := tpmsim.Swtpm(t, tpmsim.Options{AKs: []tpmsim.AK{}}), testkit.Must(tpmsim.NewCA(tpmsim.CAOptions{}))
	bare := tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}})
	roots, foreign := pemFile(t, maker.CA()), pemFile(t, other)
	guess(t, maker, 1)
	var all string
	for _, c := range []struct {
		name   string
		args   []string
		status int
	}{
		{"rsa", []string{"--device", devicePath(maker)}, 0},
		{"p-256", []string{"--device", devicePath(maker), "--ek", "p-256"}, 0},
		{"root", []string{"--device", devicePath(maker), "--roots", roots}, 0},
		{"other-maker", []string{"--device", devicePath(maker), "--roots", foreign}, 1},
		{"other-maker-line", []string{"--device", devicePath(maker), "--roots", foreign, "-o", "inventory", "--node", "node-1"}, 1},
		{"bare", []string{"--device", devicePath(bare)}, 0},
		{"bare-root", []string{"--device", devicePath(bare), "--roots", roots}, 1},
		{"line", []string{"--device", devicePath(maker), "--roots", roots, "-o", "inventory", "--node", "node-1"}, 0},
		{"no-tpm", []string{"--device", "/nonexistent"}, 1},
		{"no-key", []string{"--ek", "rsa-1024"}, 1},
		{"form", []string{"-o", "xml"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, out := runMain(nil, append([]string{"identity"}, c.args...)...)
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			all += masked(c.name, out, foreign, "<roots>", roots, "<roots>")
		})
	}
	golden(t, "identity", all)
	if n := counted(t, maker); n != 1 {
		t.Errorf("the TPM has counted %d wrong passwords, want 1", n)
	}
	guess(t, maker, 40)
	if status, out := runMain(nil, "identity", "--device", devicePath(maker)); status != 0 || !strings.Contains(out, identityOf(maker, tpmsim.RSA2048)) {
		t.Errorf("of a TPM in lockout: %d\n%s", status, out)
	}
}

func identityOf(device *tpmsim.TPM, a tpmsim.Algorithm) string {
	return fmt.Sprintf("ek:sha256:%x", sha256.Sum256(testkit.Must(csr.CanonicalSPKI(device.EKPublic(a)))))
}

// TestIdentityLine: the controller reads the line, as the machine that its verifier names.
func TestIdentityLine(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	config := written(t, "config.yaml", []byte("apiVersion: "+configfile.APIVersion+"\nkind: "+settingsKind+"\nnodeName: node-7\nproviderID: rack://7\nevidence: {tpm: {ek: p-256, device: "+devicePath(device)+"}}\n"))
	rack := Evidence{Name: "rack", Open: func(func(any) error) (authenticator.Evidence, error) {
		return authenticator.EvidenceOf("rack", func(context.Context) (attest.Prover, error) { return nil, errors.New("slot 7 is empty") }), nil
	}}
	for _, c := range []struct {
		args []string
		want csr.Machine
	}{
		{[]string{"--config", config, "identity", "-o", "inventory"}, csr.Machine{NodeName: "node-7", Identity: identityOf(device, tpmsim.P256), ProviderID: "rack://7"}},
		{[]string{"--config", config, "identity", "-o", "inventory", "--node", "no"}, csr.Machine{NodeName: "no", Identity: identityOf(device, tpmsim.P256), ProviderID: "rack://7"}},
		{[]string{"identity", "--device", devicePath(device), "-o", "inventory", "--node", "node-1"}, csr.Machine{NodeName: "node-1", Identity: identityOf(device, tpmsim.RSA2048)}},
	} {
		status, line := runMain(nil, c.args...)
		machines, err := new(inventory.Settings).ParseInventory([]byte("machines:\n" + line))
		got := machines[c.want.NodeName]
		if status != 0 || strings.Count(line, "\n") != 1 || err != nil || len(machines) != 1 || got.Identity != c.want.Identity || got.ProviderID != c.want.ProviderID || got.Provider != "tpm" {
			t.Errorf("%q: status %d, %v: %+v of\n%s", c.args, status, err, got, line)
		}
	}
	other := written(t, "rack.yaml", []byte("apiVersion: "+configfile.APIVersion+"\nkind: "+settingsKind+"\nnodeName: node-7\nevidence: {rack: {}}\n"))
	if status, out := runMain([]Evidence{rack}, "--config", other, "identity"); status != 1 || !strings.Contains(out, "slot 7 is empty") {
		t.Errorf("another kind: status %d\n%s", status, out)
	}
	if status, out := runMain(nil, "--config", filepath.Join(t.TempDir(), "absent"), "identity"); status != 1 || !strings.Contains(out, "absent") {
		t.Errorf("a named file that is absent: status %d\n%s", status, out)
	}
}

// TestIdentityWritesNothing: no managed password is set, and the folders of the configuration are not made.
func TestIdentityWritesNothing(t *testing.T) {
	device, dir := tpmsim.Swtpm(t, tpmsim.Options{}), t.TempDir()
	config := written(t, "config.yaml", []byte("apiVersion: "+configfile.APIVersion+"\nkind: "+settingsKind+"\nnodeName: node-1\nstateDir: "+dir+"/state\n"+
		"evidence: {tpm: {device: "+devicePath(device)+", endorsementPassword: managed, endorsementPasswordFile: "+dir+"/tpm/password}}\n"))
	if status, out := runMain(nil, "--config", config, "identity"); status != 0 {
		t.Errorf("status %d\n%s", status, out)
	}
	if _, err := os.Stat(dir + "/tpm"); !errors.Is(err, fs.ErrNotExist) || len(testkit.Must(os.ReadDir(dir))) != 0 || !makesAK(t, device, nil) {
		t.Errorf("it has written: %v", err)
	}
}

// TestHelp: each command's help goes to standard output, with status 0, and needs no file.
func TestHelp(t *testing.T) {
	status, out := runMain(nil, "--help")
	all := masked("all", out)
	if status != 0 {
		t.Errorf("--help: status %d", status)
	}
	for _, c := range commands() {
		for _, flag := range []string{"-h", "--help"} {
			var stdout, stderr bytes.Buffer
			if status := Main([]string{"--config", "/nonexistent", c.name, flag}, &stdout, &stderr); status != 0 || stderr.Len() != 0 || !strings.Contains(stdout.String(), c.does) {
				t.Errorf("%s %s: status %d\n%s%s", c.name, flag, status, &stdout, &stderr)
			}
			out = stdout.String()
		}
		all += masked(c.name, out)
	}
	golden(t, "help", all)
	if status, out := runMain(nil, "--version"); status != 0 || !strings.HasPrefix(out, "kubelet-authenticator ") || strings.Count(out, "\n") != 1 {
		t.Errorf("--version: status %d, %q", status, out)
	}
	if status, out := runMain(nil, "join", "--help"); status != 2 || !strings.Contains(out, "want credential, daemon") {
		t.Errorf("an unknown command: status %d, %s", status, out)
	}
}
