package kube

import (
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// An akCA is an operator's CA of attestation keys: the program ak-ca and its files.
type akCA struct {
	program, dir string
	ca           *tpmlab.CA
	args         []string
}

func newAKCA(t *testing.T, list string, args ...string) *akCA {
	t.Helper()
	a := &akCA{buildProgram(t, "ak-ca"), t.TempDir(), tpmlab.Sign(t, nil, "AK CA", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(24 * time.Hour) }), nil}
	key, err := x509.MarshalPKCS8PrivateKey(a.ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	a.args = append([]string{"--certificate", controlplane.Write(t, a.dir, "ca.pem", controlplane.CertificatePEM(a.ca.Cert)),
		"--key", controlplane.Write(t, a.dir, "ca.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
		"--ring", filepath.Join(a.dir, "ring.json"), "--machines", controlplane.Write(t, a.dir, "machines", []byte(list)), "--issuer", "own"}, args...)
	return a
}

// serve runs the program for each request that a machine puts into a folder, until the context
// ends, and returns its output.
func (a *akCA) serve(ctx context.Context, folder string) (stdout, stderr string) {
	served := map[string]string{}
	for ctx.Err() == nil {
		paths, _ := filepath.Glob(filepath.Join(folder, "*.json"))
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if _, replied := os.Stat(path + ".reply"); err != nil || replied == nil && served[path] == string(text) {
				continue
			}
			served[path] = string(text)
			cmd := exec.Command(a.program, append(append([]string{}, a.args...), "--", path)...)
			out, err := cmd.Output()
			stdout += string(out)
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				stderr += string(exit.Stderr)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return stdout, stderr
}

// enrol runs the command on the CA's machine.
func (a *akCA) enrol(t *testing.T, m *nodeMachine, args ...string) (said, ca string, err error) {
	t.Helper()
	folder := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	var out, refusals string
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, refusals = a.serve(ctx, folder)
	}()
	stdout, stderr, err := m.run(t.Context(), append([]string{"enrol", "--ca", filepath.Join(a.dir, "ca.pem"), "--dir", folder}, args...)...)
	stop()
	<-done
	return stdout + stderr, out + refusals, err
}

// enrolOverHTTPS runs the command on a machine that reaches the CA's server.
func (a *akCA) enrolOverHTTPS(t *testing.T, m *nodeMachine, args ...string) (said, ca string, err error) {
	t.Helper()
	dir, own := t.TempDir(), controlplane.NewAuthority(t)
	certificate, key := own.Issue(t, pkix.Name{CommonName: "ak-ca"}, x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	address := "127.0.0.1:" + controlplane.FreePorts(t, 1)[0]
	p := start(t, a.program, dir, append(slices.Clip(a.args), "--listen", address,
		"--tls-certificate", controlplane.Write(t, dir, "tls.pem", certificate), "--tls-key", controlplane.Write(t, dir, "tls.key", key))...)
	url := "https://" + address + "/enrol"
	p.ready(t, func() error {
		if !strings.Contains(p.text(t), url) {
			return errNotYet
		}
		return nil
	})
	stdout, stderr, err := m.run(t.Context(), append([]string{"enrol", "--ca", filepath.Join(a.dir, "ca.pem"), "--url", url,
		"--server-ca", controlplane.Write(t, dir, "ca.pem", controlplane.CertificatePEM(own.Cert))}, args...)...)
	if status := p.stop(t); status != 0 {
		t.Errorf("the server ends with status %d", status)
	}
	_, ca, _ = strings.Cut(p.text(t), url+"\n")
	return stdout + stderr, ca, err
}

// listed is a line of the CA's list.
func listed(t *testing.T, device *tpmsim.TPM, name string) string {
	t.Helper()
	ek, err := tpmcert.ParseEK(device.EKCertificate(tpmsim.RSA2048).Raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(ek.Identity()) + " " + name + "\n"
}

// TestEnrol has the programs take machines from their TPMs' makers to the cluster: the operator's
// CA, by files or over HTTPS, certifies the AK of a machine on its list, the certificate goes to NV
// or to a file, and the controller, which knows that CA only, admits the machine.
func TestEnrol(t *testing.T) {
	t.Parallel()
	program, authenticator := buildProgram(t, "node-attestation-controller"), buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)
	maker := newCA(t, "")
	makers := controlplane.Write(t, c.dir, "makers.pem", certificatesPEM(append(maker.Intermediates(), maker.Root())))
	bare := func() *tpmsim.TPM { return tpmsim.Swtpm(t, tpmsim.Options{CA: maker, AKs: []tpmsim.AK{}}) }
	inNV, inFile, stranger := bare(), bare(), bare()
	password := controlplane.Write(t, c.dir, "owner", []byte("owner's\n"))
	tpmlab.SetHierarchyPassword(t, inNV, 0x40000001, nil, []byte("owner's"))
	ca := newAKCA(t, listed(t, inNV, "own-nv")+listed(t, inFile, "own-file"), "--makers", makers)

	install := func(name string, device *tpmsim.TPM, where map[string]any) *nodeMachine {
		ak := map[string]any{"template": "p-256"}
		maps.Copy(ak, where)
		m := &certifiedMachine{device: device, ak: ak}
		if device == inFile {
			m.password = filepath.Join(c.dir, "endorsement-password")
		}
		return c.installCertified(t, authenticator, name, m)
	}
	nodes := map[string]*nodeMachine{
		"own-nv":   install("own-nv", inNV, map[string]any{"certificateIndex": "0x01800a00"}),
		"own-file": install("own-file", inFile, map[string]any{"certificatesFile": filepath.Join(t.TempDir(), "ak.pem")}),
	}
	var inventory strings.Builder
	inventory.WriteString("machines:\n")
	for name, row := range map[string]struct {
		enrol func(*testing.T, *nodeMachine, ...string) (string, string, error)
		args  []string
	}{"own-nv": {ca.enrol, []string{"--owner-password-file", password}}, "own-file": {ca.enrolOverHTTPS, nil}} {
		said, made, err := row.enrol(t, nodes[name], row.args...)
		if err != nil || !strings.Contains(said, "enrolled as othername:1.3.6.1.5.5.7.8.3:") {
			t.Fatalf("%s: %v: %s%s", name, err, said, made)
		}
		line := strings.Fields(made)
		if len(line) != 2 || line[0] != name || !strings.HasPrefix(line[1], "othername:own/1.3.6.1.5.5.7.8.3:") {
			t.Fatalf("%s: the CA says %q", name, made)
		}
		fmt.Fprintf(&inventory, "- {nodeName: %s, identity: '%s'}\n", name, line[1])
	}
	t.Run("refused", func(t *testing.T) { testEnrolRefused(t, ca, install, inNV, stranger) })

	controlplane.Write(t, c.dir, "inventory.yaml", []byte(inventory.String()))
	r := c.startController(t, program, "controller", func(config map[string]any) {
		config["tpm"] = map[string]any{"akIssuers": []any{map[string]any{"rootsFile": filepath.Join(ca.dir, "ca.pem"), "profile": "tcg", "othername": map[string]any{"issuer": "own"}}}}
		config["membership"] = map[string]any{"mode": "Inventory", "kind": "tpm", "road": "ak"}
	})
	r.isReady(t)
	for name, m := range nodes {
		t.Run(name, func(t *testing.T) { c.joinsAndRenews(t, m) })
	}
	t.Run("enrolled again", func(t *testing.T) { // as before the certificate ends
		if said, made, err := ca.enrol(t, nodes["own-nv"], "--owner-password-file", password); err != nil {
			t.Fatalf("%v: %s%s", err, said, made)
		}
		if stdout, stderr, err := nodes["own-nv"].run(t.Context(), "rotate"); err != nil {
			t.Errorf("%v: %s%s", err, stdout, stderr)
		}
	})
	r.checkLog(t)
	r.stop(t)
}

// testEnrolRefused enrols machines that get no certificate, or do not store it.
func testEnrolRefused(t *testing.T, ca *akCA, install func(string, *tpmsim.TPM, map[string]any) *nodeMachine, known, stranger *tpmsim.TPM) {
	index := map[string]any{"certificateIndex": "0x01800a00"}
	another := newAKCA(t, listed(t, known, "own-nv"))
	another.args[1], another.args[3] = ca.args[1], ca.args[3] // the CA with another list and ring, and without makers
	strangers := controlplane.Write(t, t.TempDir(), "other.pem", controlplane.CertificatePEM(controlplane.NewAuthority(t).Cert))
	for name, row := range map[string]struct {
		ca     *akCA
		m      *nodeMachine
		args   []string
		said   string
		wanted string // of the CA
	}{
		"a TPM that is not on the list":  {ca, install("own-nv", stranger, index), nil, "NotAMember", "not-a-member"},
		"a name that is not on the list": {ca, install("own-2", known, index), nil, "MachineUnknown", "machine-unknown"},
		"another machine's name":         {ca, install("own-file", known, index), nil, "NotAMember", "not-a-member"},
		"another CA than that of --ca":   {newAKCA(t, listed(t, known, "own-nv")), install("own-nv", known, index), []string{"--ca", filepath.Join(ca.dir, "ca.pem")}, "Binding", ""},
		"no EK of that name":             {ca, install("own-nv", known, index), []string{"--ek", "rsa-1024"}, "--ek", ""},
		"no password of the owner":       {another, install("own-nv", known, map[string]any{"certificateIndex": "0x01800b00"}), []string{"--ca", filepath.Join(ca.dir, "ca.pem")}, "owner", "othername:"},
		"a key that has a name":          {ca, install("own-nv", known, nil), nil, "evidence.tpm.ak", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, enrol := range []func(*testing.T, *nodeMachine, ...string) (string, string, error){row.ca.enrol, row.ca.enrolOverHTTPS} {
				said, made, err := enrol(t, row.m, row.args...)
				if err == nil || !strings.Contains(said, row.said) || !strings.Contains(made, row.wanted) {
					t.Errorf("got %v: %s\nthe CA: %s", err, said, made)
				}
			}
		})
	}
	t.Run("a server of another CA", func(t *testing.T) {
		said, made, err := ca.enrolOverHTTPS(t, install("own-nv", known, index), "--server-ca", strangers)
		if err == nil || !strings.Contains(said, "certificate signed by unknown authority") || made != "" {
			t.Errorf("got %v: %s\nthe CA: %s", err, said, made)
		}
	})
	t.Run("a folder and a server", func(t *testing.T) {
		if said, _, err := ca.enrolOverHTTPS(t, install("own-nv", known, index), "--dir", t.TempDir()); err == nil || !strings.Contains(said, "want enrol --ca FILE (--dir FOLDER | --url URL --server-ca FILE)") {
			t.Errorf("got %v: %s", err, said)
		}
	})
	t.Run("an invalid request", func(t *testing.T) {
		for _, text := range []string{"", "{}", "[]", `{"request": "` + base64.StdEncoding.EncodeToString([]byte("x")) + `"}`} {
			path := controlplane.Write(t, t.TempDir(), "request.json", []byte(text))
			if out, err := exec.Command(ca.program, append(append([]string{}, ca.args...), path)...).CombinedOutput(); err == nil || len(out) == 0 {
				t.Errorf("%q: got %v: %s", text, err, out)
			}
		}
	})
	t.Run("another key of the CA's", func(t *testing.T) {
		key, err := x509.MarshalPKCS8PrivateKey(tpmlab.NewECDSA(t, elliptic.P384()))
		if err != nil {
			t.Fatal(err)
		}
		args := append([]string{}, ca.args...)
		args[3] = controlplane.Write(t, t.TempDir(), "ca.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
		if out, err := exec.Command(ca.program, append(args, "request.json")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "--key") {
			t.Errorf("got %v: %s", err, out)
		}
	})
}
