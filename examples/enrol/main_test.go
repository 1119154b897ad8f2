package main

import (
	"bytes"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const asProgram = "ENROL_TEST"

// TestMain is the program where a test starts it, in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start runs the program on swtpm.
func start(t *testing.T, device *tpmsim.TPM, maker *tpmsim.CA, machine string) (stdout, stderr string) {
	t.Helper()
	var cas []byte
	for _, ca := range append(maker.Intermediates(), maker.Root()) {
		cas = append(cas, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})...)
	}
	file := filepath.Join(t.TempDir(), "maker.pem")
	if err := os.WriteFile(file, cas, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-tpm", strings.TrimPrefix(device.TCTI(), "swtpm:path="), "-maker", file, "-machine", machine)
	cmd.Env = append(cmd.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); (err == nil) != (errs.Len() == 0) {
		t.Errorf("%v, and on standard error: %s", err, &errs)
	}
	return out.String(), errs.String()
}

// A machine that was bought enrols, twice, and is the same machine; no other machine does.
func TestEnrol(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	ek, err := tpmcert.ParseEK(device.EKCertificate(tpmsim.RSA2048).Raw)
	if err != nil {
		t.Fatal(err)
	}
	machine := string(ek.Identity())
	first, stderr := start(t, device, device.CA(), machine)
	if stderr != "" {
		t.Fatal(stderr)
	}
	for _, want := range []string{"enrolled " + machine + "\ncertified othername:1.3.6.1.5.5.7.8.3:", "joined as node-1 on road ak\n", "asserted: restricted AK in a TPM by CN=AK CA"} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	again, stderr := start(t, device, device.CA(), machine)
	if of := func(s string) string { return strings.Split(s, "\n")[1] }; stderr != "" || of(again) != of(first) {
		t.Errorf("again: %s, %s, want %s", stderr, again, first)
	}
	stranger, err := tpmsim.NewCA(tpmsim.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		maker         *tpmsim.CA
		machine, want string
	}{
		"another machine": {device.CA(), "ek:sha256:" + strings.Repeat("0", 64), "not-a-member"},
		"another maker":   {stranger, machine, "certificate-chain"},
		"no machine":      {device.CA(), "", "identity"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr := start(t, device, c.maker, c.machine)
			if stdout != "" || !strings.HasPrefix(stderr, "enrol: ") || !strings.Contains(stderr, c.want) {
				t.Errorf("got %q, %q, want %q", stdout, stderr, c.want)
			}
		})
	}
}
