package tpmsim_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// folder is the temporary folder of an swtpm, which its TCTI names.
func folder(tpm *tpmsim.TPM) string {
	return filepath.Dir(strings.TrimPrefix(tpm.TCTI(), "swtpm:path="))
}

// processes lists the processes whose command line names a folder. A zombie has no
// command line, so the state is looked at too.
func processes(t *testing.T, dir string) (pids []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	testkit.NoError(t, err)
	for _, p := range all {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(dir)) && bytes.HasPrefix(b, []byte("/")) {
			pids = append(pids, filepath.Base(filepath.Dir(p)))
		}
	}
	return pids
}

func TestSwtpmLeavesNothing(t *testing.T) {
	tpm := tpmsim.Swtpm(t, bare())
	dir := folder(tpm)
	pids := processes(t, dir)
	if len(pids) != 1 {
		t.Fatalf("processes %v, want one", pids)
	}
	testkit.NoError(t, tpm.Close())
	if _, err := os.Stat("/proc/" + pids[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("process %s after Close: %v", pids[0], err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s after Close: %v", dir, err)
	}
	if err := getRandom(tpm); !errors.Is(err, tpmsim.ErrClosed) {
		t.Errorf("command after Close: %v, want ErrClosed", err)
	}
}

func TestManySwtpms(t *testing.T) {
	const n = 4
	ca := newCA(t, tpmsim.CAOptions{})
	tpms := make([]*tpmsim.TPM, n)
	var wg sync.WaitGroup
	tpmsim.Swtpm(t, bare()) // skips here where there is no swtpm
	for i := range tpms {
		wg.Go(func() {
			var err error
			if tpms[i], err = tpmsim.OpenSwtpm(tpmsim.Options{CA: ca}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	serials := map[string]bool{}
	for _, tpm := range tpms {
		if tpm == nil {
			continue
		}
		verifyChain(t, ca, tpm.EKCertificate(tpmsim.RSA2048))
		serials[string(tpm.EKCertificate(tpmsim.RSA2048).RawSubjectPublicKeyInfo)] = true
		if err := tpm.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(serials) != n {
		t.Errorf("%d swtpms have %d different EKs", n, len(serials))
	}
}

// kill ends a process, and needs no program to do it.
func kill(t *testing.T, pid string) {
	t.Helper()
	number, err := strconv.Atoi(pid)
	testkit.NoError(t, err)
	process, err := os.FindProcess(number)
	testkit.NoError(t, err)
	testkit.NoError(t, process.Kill())
}

// An swtpm that is gone gives errors, and Close still cleans up.
func TestSwtpmDied(t *testing.T) {
	tpm := tpmsim.Swtpm(t, bare())
	dir := folder(tpm)
	for _, pid := range processes(t, dir) {
		kill(t, pid)
	}
	deadline := time.Now().Add(time.Minute)
	for getRandom(tpm) == nil {
		if time.Now().After(deadline) {
			t.Fatal("a killed swtpm answers")
		}
	}
	if err := tpm.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s after Close: %v", dir, err)
	}
}

// TestSwtpmEndsWithItsParent starts itself as a child that opens an swtpm and is
// killed.
func TestSwtpmEndsWithItsParent(t *testing.T) {
	if os.Getenv("TPMSIM_TEST_CHILD") != "" {
		tpm, err := tpmsim.OpenSwtpm(bare())
		testkit.NoError(t, err)
		fmt.Printf("child: %s\n", tpm.TCTI())
		select {}
	}
	tpmsim.Swtpm(t, bare()).Close() // skips here where there is no swtpm
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSwtpmEndsWithItsParent$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), "TPMSIM_TEST_CHILD=1")
	out, err := cmd.StdoutPipe()
	testkit.NoError(t, err)
	testkit.NoError(t, cmd.Start())
	tcti := ""
	for s := bufio.NewScanner(out); tcti == "" && s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "child: swtpm:path="); ok {
			tcti = rest
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if tcti == "" {
		t.Fatal("the child opened no swtpm")
	}
	dir := filepath.Dir(tcti)
	defer os.RemoveAll(dir)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if len(processes(t, dir)) == 0 {
			return
		}
	}
	t.Errorf("processes %v outlive their parent", processes(t, dir))
}

func TestSwtpmMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := tpmsim.OpenSwtpm(tpmsim.Options{})
	if !errors.Is(err, tpmsim.ErrNoSwtpm) || !strings.Contains(err.Error(), "apt-get install swtpm") {
		t.Errorf("OpenSwtpm: %v, want ErrNoSwtpm with the command that installs it", err)
	}
	rec := &recorder{TB: t}
	rec.run(func() { tpmsim.Swtpm(rec, tpmsim.Options{}) })
	if !rec.skipped || !strings.Contains(rec.text, "apt-get install swtpm") {
		t.Errorf("Swtpm: skipped %v, %q", rec.skipped, rec.text)
	}
}

func TestSwtpmFailsToStart(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'no such flag' >&2\nexit 3\n"
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "swtpm"), []byte(script), 0o700))
	tmp := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("TMPDIR", tmp)
	_, err := tpmsim.OpenSwtpm(tpmsim.Options{})
	if err == nil || !strings.Contains(err.Error(), "no such flag") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("OpenSwtpm: %v, want what swtpm wrote and how it ended", err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "swtpm"), []byte("no program"), 0o700))
	if _, err := tpmsim.OpenSwtpm(tpmsim.Options{}); err == nil {
		t.Error("OpenSwtpm with a missing program succeeded")
	}
}

func TestSwtpmTakesNoSeed(t *testing.T) {
	if _, err := tpmsim.OpenSwtpm(tpmsim.Options{Seed: []byte("a")}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("OpenSwtpm: %v, want ErrOptions", err)
	}
}

// tpm2-tools read the provisioned indexes, and OpenSSL accepts the chain.
func TestToolsReadSwtpm(t *testing.T) {
	for _, tool := range []string{"tpm2_nvread", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (Debian: apt-get install tpm2-tools libtss2-tcti-swtpm0 openssl)", tool)
		}
	}
	tpm := tpmsim.Swtpm(t, tpmsim.Options{})
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "TPM2TOOLS_TCTI="+tpm.TCTI())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	writePEM(t, filepath.Join(dir, "root.pem"), tpm.CA().Root())
	for index, alg := range map[tpm2.TPMHandle]tpmsim.Algorithm{
		tpmsim.EKCertificateIndexRSA2048: tpmsim.RSA2048,
		tpmsim.EKCertificateIndexP256:    tpmsim.P256,
		tpmsim.AKCertificateIndexRSA:     0,
	} {
		cert, above := tpm.EKCertificate(alg), tpm.CA().EKIntermediate()
		if alg == 0 {
			cert, above = tpm.AKCertificate(tpmsim.RSA2048), tpm.CA().AKIntermediate()
		}
		at := fmt.Sprintf("%#x", uint32(index))
		run("tpm2_nvread", "-C", at, "-o", "cert.der", at) // the index authorises itself
		run("tpm2_nvread", "-C", "o", "-o", "again.der", at)
		for _, file := range []string{"cert.der", "again.der"} {
			if der, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !bytes.Equal(der, cert.Raw) {
				t.Errorf("tpm2_nvread of %s: %v, other bytes than the certificate", at, err)
			}
		}
		writePEM(t, filepath.Join(dir, "inter.pem"), above)
		run("openssl", "x509", "-inform", "DER", "-in", "cert.der", "-out", "cert.pem")
		run("openssl", "verify", "-x509_strict", "-CAfile", "root.pem", "-untrusted", "inter.pem", "cert.pem")
		if err := getRandom(tpm); err != nil {
			t.Errorf("between tools: %v", err)
		}
	}
}
