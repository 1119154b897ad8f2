package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// kubeletHead is what each of a kubelet's files says it is.
const kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// TestCheck looks at files.
func TestCheck(t *testing.T) {
	const on, off, bad = kubeletHead + "rotateCertificates: true\n", kubeletHead + "rotateCertificates: false\n", "--bootstrap-kubeconfig=/b"
	type files map[string]string
	for name, row := range map[string]struct {
		files   files
		serving bool
		want    string // in the error; "" for none
		check   error
	}{
		"nothing there":                {},
		"kubeadm's":                    {files: files{"config.yaml": on}, want: "rotateCertificates: true in ", check: CheckConfiguration},
		"as it should be":              {files: files{"config.yaml": off + "serverTLSBootstrap: true\n", "flags/a.env": "X=--kubeconfig=/k\n"}},
		"on in a drop-in":              {files: files{"config.yaml": off, "d/90.conf": on}, want: "90.conf", check: CheckConfiguration},
		"serving":                      {files: files{"config.yaml": kubeletHead + "serverTLSBootstrap: true\n"}, serving: true, want: "serverTLSBootstrap: true in", check: CheckConfiguration},
		"serving by flag":              {files: files{"flags/a.env": "X=--rotate-server-certificates\n"}, serving: true, want: "--rotate-server-certificates in", check: CheckConfiguration},
		"serving, which is allowed":    {files: files{"flags/a.env": "X=--rotate-server-certificates\n"}},
		"no serving by flag":           {files: files{"config.yaml": kubeletHead + "serverTLSBootstrap: true\n", "flags/a.env": "X=--rotate-server-certificates=false\n"}, serving: true},
		"both kinds":                   {files: files{"config.yaml": on + "serverTLSBootstrap: true\n"}, serving: true, want: "\nkubelet-configuration: got serverTLSBootstrap: true", check: CheckConfiguration},
		"no YAML":                      {files: files{"config.yaml": "{"}, want: "config.yaml", check: CheckFile},
		"a bootstrap flag":             {files: files{"flags/a.env": "X=" + bad + "\n"}, want: bad, check: CheckConfiguration},
		"a line that goes on":          {files: files{"flags/a.env": "X=--rotate-certificates\\\n --v=2\n"}, want: "--rotate-certificates", check: CheckConfiguration},
		"rotation by flag":             {files: files{"flags/a.env": "X=--rotate-certificates\n"}, want: "--rotate-certificates", check: CheckConfiguration},
		"no rotation by flag":          {files: files{"config.yaml": on, "flags/a.env": "X=--rotate-certificates=false\n"}},
		"both":                         {files: files{"flags/a.env": "X=--rotate-certificates\n", "flags/x.d/10.conf": "X=--rotate-certificates=false\n"}, want: "a.env", check: CheckConfiguration},
		"hidden by one before":         {files: files{"flags/x.d/10.conf": "--kubeconfig=/k\n", "flags2/x.d/10.conf": bad + "\n"}},
		"not hidden by another's name": {files: files{"flags/x.d/11.conf": "--kubeconfig=/k\n", "flags2/x.d/10.conf": bad + "\n"}, want: bad, check: CheckConfiguration},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range row.files {
				write(t, filepath.Join(dir, file), text)
			}
			r := &Rules{Serving: row.serving, Places: Places{ConfigFile: filepath.Join(dir, "config.yaml"), ConfigDir: filepath.Join(dir, "d"),
				FlagFiles: []string{filepath.Join(dir, "flags", "*.env"), filepath.Join(dir, "flags", "x.d", "*.conf"), filepath.Join(dir, "flags2", "x.d", "*.conf")}}}
			if err := r.Check(); !errors.Is(err, row.check) || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
	if err := (&Rules{Places: Places{FlagFiles: []string{"["}}}).Check(); err == nil {
		t.Error("a bad pattern")
	}
}

// TestOtherFiles: before a kubelet runs, its unit says which files it will read.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	config, unit := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "kubelet.env")
	for flags, want := range map[string]bool{
		"":                                  false,
		"--config=" + config:                false,
		"--config=" + dir + "//config.yaml": false, // which is not there yet
		"--config=/etc/other.yaml":          true,
		"--config " + config + " --config-dir=/etc/d": true,
		"--config=$CONFIG":                            false,
		"--config=/etc/other.yaml --config-dir=/%i":   true,
		"--config=" + config + "\\\n --v=2":           false,
		"--config \\\n " + config:                     false,
	} {
		write(t, unit, "KUBELET_EXTRA_ARGS=\""+flags+"\"\n")
		r := &Rules{Places: Places{ConfigFile: config, FlagFiles: []string{unit}}}
		if err := r.CheckRunning(); (err != nil) != want || want && !strings.Contains(err.Error(), "in "+unit+", want ") {
			t.Errorf("%s: got %v", flags, err)
		}
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", flags, err)
		}
	}
}

func TestSamePath(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, link)); err != nil {
		t.Skip(err) // Windows has rights for it
	}
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{"", "", true}, {real, real, true}, {link, link, true}, {real + "/", real, true}, {dir + "//real/.", real, true},
		{"", real, false}, {link + "/", link, false}, {real + "/../real", real, false}, {dir + "/other", real, false},
	} {
		if got := samePath(row.a, row.b); got != row.want {
			t.Errorf("%q, %q: got %v", row.a, row.b, got)
		}
	}
}

// TestCheckProcesses looks at the kubelet that has started this process, whose files are read, and
// at those that run, whose files are not opened.
func TestCheckProcesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it takes /proc")
	}
	self := testkit.Must(os.Executable())
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	write(t, config, kubeletHead+"rotateCertificates: true\n")
	const bad = "--bootstrap-kubeconfig=/b"
	for name, row := range map[string]struct {
		arguments       []string
		parent, running string // in the errors; "" for none
	}{
		"as it should be":    {[]string{"--kubeconfig=/k"}, "", ""},
		"bootstrap":          {[]string{bad}, bad, bad},
		"rotation":           {[]string{"--rotate-certificates"}, "--rotate-certificates (", "--rotate-certificates ("},
		"another file":       {[]string{"--config=" + config}, "rotateCertificates: true in " + config, `--config="` + config},
		"a name with a sign": {[]string{"--config=/x%i.yaml"}, "", `--config="/x%i.yaml"`},
		"another folder":     {[]string{"--config-dir=" + dir}, "", `--config-dir="` + dir},
		"a flag over a file": {[]string{"--config=" + config, "--rotate-certificates=false"}, "", "which the kubelet-authenticator checks"},
		"too long":           {strings.Fields(strings.Repeat("xxxxxxx ", 16<<10)), "at most 128 KiB", "at most 128 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := &exec.Cmd{Path: "/bin/sh", Args: append([]string{"kubelet", "-c", `"$KUBELET_TEST_PLUGIN"; read line`, "kubelet"}, row.arguments...), Env: append(os.Environ(), asPlugin+"="+self)}
			out := testkit.Must(cmd.StdoutPipe())
			end := testkit.Must(cmd.StdinPipe())
			testkit.MustDo(cmd.Start())
			defer func() { _ = errors.Join(end.Close(), cmd.Wait()) }()
			said := make([]byte, 4096)
			n, _ := out.Read(said)
			if got := string(said[:n]); row.parent == "" && got != "nothing" || !strings.Contains(got, row.parent) {
				t.Errorf("its plugin says %q, want %q", got, row.parent)
			}
			failed := []string{}
			if err := (&Rules{Places: Places{Processes: true}}).CheckRunning(); err != nil { // about other kubelets on this machine, too
				for line := range strings.Lines(err.Error()) {
					if strings.Contains(line, fmt.Sprintf("process %d)", cmd.Process.Pid)) {
						failed = append(failed, line)
					}
				}
			}
			if got := strings.Join(failed, ""); (got == "") != (row.running == "") || !strings.Contains(got, row.running) {
				t.Errorf("got %q, want %q", got, row.running)
			}
		})
	}
	if err := new(Rules).CheckRunning(); err != nil {
		t.Errorf("it was not to look: %v", err)
	}
}

const asPlugin = "KUBELET_TEST_PLUGIN"

// TestMain is a kubelet's plugin, where a test starts it.
func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) == "" {
		os.Exit(m.Run())
	}
	_, _ = fmt.Print(cmp.Or((&Rules{Places: Places{Parent: true}}).Check(), errors.New("nothing")))
}

// TestShippedDropIn: the kubelet's flags in the shipped drop-in for systemd pass the check.
func TestShippedDropIn(t *testing.T) {
	dropIn := filepath.Join("..", "..", "..", "deploy", "node", "10-kubeadm.conf")
	if err := (&Rules{Places: Places{FlagFiles: []string{dropIn}}}).Check(); err != nil {
		t.Error(err)
	}
}
