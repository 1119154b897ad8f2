package nodeattest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A machine is a folder of programs that setup.sh finds instead of the real ones.
type machine struct {
	t   *testing.T
	bin string
}

func newMachine(t *testing.T, uid string) *machine {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("setup.sh is for Debian")
	}
	m := &machine{t: t, bin: t.TempDir()}
	for _, tool := range []string{"sh", "sed", "dirname", "cat", "rm", "mktemp", "tail", "touch", "chmod"} {
		p, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(p, filepath.Join(m.bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	m.program("id", "echo "+uid)
	m.release("go1.26.8")
	return m
}

func (m *machine) program(name, script string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// release installs a go command.
func (m *machine) release(version string) {
	m.program("go", `case $1 in version) echo "go version `+version+` linux/amd64" ;; env) echo cc ;; esac`)
}

// compiler installs a C compiler, with or without OpenSSL's headers beside it.
func (m *machine) compiler(openssl bool) {
	if openssl {
		m.program("cc", "cat >/dev/null")
		return
	}
	m.program("cc", `case "$*" in *-lcrypto*) cat >/dev/null; exit 1 ;; *) cat >/dev/null ;; esac`)
}

// apt installs an apt-get that writes its arguments to the file it returns, and
// puts programs on the machine.
func (m *machine) apt(exit string, brings ...string) (log string) {
	log = filepath.Join(m.t.TempDir(), "log")
	script := `echo "$DEBIAN_FRONTEND $*" >>` + log + "\n"
	for _, name := range brings {
		p := filepath.Join(m.bin, name)
		script += "printf '#!/bin/sh\\ncat >/dev/null\\n' >" + p + "; chmod +x " + p + "\n"
	}
	m.program("apt-get", script+"exit "+exit)
	return log
}

func (m *machine) setup(mode string) (out string, ok bool) {
	m.t.Helper()
	cmd := exec.Command(filepath.Join(m.bin, "sh"), "scripts/setup.sh", mode)
	cmd.Env = []string{"PATH=" + m.bin}
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

// want runs setup.sh and wants its success and each text in its output.
func (m *machine) want(mode string, success bool, texts ...string) {
	m.t.Helper()
	out, ok := m.setup(mode)
	if ok != success {
		m.t.Errorf("setup.sh %s: success %t, want %t:\n%s", mode, ok, success, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			m.t.Errorf("setup.sh %s does not say %q:\n%s", mode, text, out)
		}
	}
	if len(texts) == 0 && out != "" {
		m.t.Errorf("setup.sh %s: want no output, got:\n%s", mode, out)
	}
}

func TestSetupGo(t *testing.T) {
	m := newMachine(t, "1000")
	m.compiler(true)
	for release, ok := range map[string]bool{
		"go1.26": true, "go1.26.8": true, "go1.26rc1": true, "go1.27.1": true, "go2.0": true,
		"go1.25.9": false, "go1.9": false, "devel": false,
	} {
		m.release(release)
		if ok {
			m.want("build", true)
		} else {
			m.want("build", false, "Go 1.26 or newer is needed")
		}
	}
	if err := os.Remove(filepath.Join(m.bin, "go")); err != nil {
		t.Fatal(err)
	}
	m.want("test", false, "the go command is not in PATH; Go 1.26 or newer is needed")
}

func TestSetupUser(t *testing.T) {
	m := newMachine(t, "1000")
	m.apt("0", "cc", "swtpm", "swtpm_setup", "tpm2_certify", "openssl", "python3") // not for this user
	m.want("build", false, "sudo apt-get update && sudo apt-get install -y --no-install-recommends gcc libc6-dev libssl-dev\n")
	m.want("test", false, "sudo apt-get update && sudo apt-get install -y --no-install-recommends gcc libc6-dev libssl-dev swtpm swtpm-tools tpm2-tools openssl tpm2-openssl python3\n")
	m.compiler(false)
	m.want("build", false, "sudo apt-get install -y --no-install-recommends libssl-dev\n")
	m.compiler(true)
	m.want("build", true)
	m.want("test", true, "not installed: swtpm swtpm-tools tpm2-tools openssl tpm2-openssl python3; the tests that need them will skip",
		"sudo apt-get install -y --no-install-recommends swtpm swtpm-tools tpm2-tools openssl tpm2-openssl python3\n")
	m.want("all", false, "sudo apt-get install -y --no-install-recommends swtpm swtpm-tools tpm2-tools openssl tpm2-openssl python3\n")
	m.want("every", false, "unknown mode 'every'")
}

func TestSetupRoot(t *testing.T) {
	m := newMachine(t, "0")
	m.want("build", false, "on Debian: apt-get update && apt-get install") // no apt-get here
	log := m.apt("0", "cc", "swtpm", "swtpm_setup", "tpm2_certify", "openssl", "python3")
	m.want("test", true, "installing gcc libc6-dev libssl-dev swtpm swtpm-tools tpm2-tools openssl tpm2-openssl python3")
	const want = "noninteractive update -q\n" +
		"noninteractive install -q -y --no-install-recommends gcc libc6-dev libssl-dev swtpm swtpm-tools tpm2-tools openssl tpm2-openssl python3\n"
	if got := readFile(t, log); got != want {
		t.Errorf("apt-get was called with\n%s\nwant\n%s", got, want)
	}
	m.want("all", true)
}

// TestSetupWithoutNetwork: only what is needed to build is worth a failure.
func TestSetupWithoutNetwork(t *testing.T) {
	m := newMachine(t, "0")
	m.apt("100")
	m.want("build", false, "apt-get could not install gcc libc6-dev libssl-dev")
	m.compiler(true)
	m.want("test", true, "apt-get could not install", "the tests that need them will skip")
	m.want("all", false, "some programs are missing")
}
