package authenticator

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestFlags reads arguments as the kubelet does.
func TestFlags(t *testing.T) {
	for line, want := range map[string]string{
		"kubelet":                                                   "",
		"kubelet --kubeconfig=/k":                                   "",
		"kubelet --bootstrap-kubeconfig=/b":                         "--bootstrap-kubeconfig=/b",
		"kubelet --bootstrap-kubeconfig /b":                         "--bootstrap-kubeconfig=/b",
		"kubelet --bootstrap_kubeconfig=/b":                         "--bootstrap-kubeconfig=/b",
		"kubelet --bootstrap-kubeconfig=":                           "",
		"kubelet --bootstrap-kubeconfig=/b --bootstrap-kubeconfig=": "",
		"kubelet -- --bootstrap-kubeconfig=/b":                      "",
		"kubelet --rotate-certificates":                             "--rotate-certificates",
		"kubelet --rotate_certificates=true":                        "--rotate-certificates",
		"kubelet --rotate-certificates=false":                       "",
		"kubelet --rotate-certificates --rotate-certificates=false": "",
		"kubelet --rotate-server-certificates":                      "",
	} {
		t.Run(line, func(t *testing.T) {
			err := new(Kubelet).checkArguments("here", strings.Fields(line))
			if (err == nil) != (want == "") || err != nil && (!errors.Is(err, checkKubelet) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: got %v, want %q", line, err, want)
			}
		})
	}
}

// TestKubelet looks at files.
func TestKubelet(t *testing.T) {
	const bad = "--bootstrap-kubeconfig"
	for name, c := range map[string]struct {
		files   map[string]string
		serving bool
		want    string // in the error; "" for none
		check   error
	}{
		"nothing there":                {},
		"kubeadm's":                    {files: map[string]string{"config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\n"}, want: "rotateCertificates"},
		"in JSON":                      {files: map[string]string{"config.yaml": `{"rotateCertificates": true}`}, want: "rotateCertificates"},
		"off":                          {files: map[string]string{"config.yaml": "rotateCertificates: false\nserverTLSBootstrap: true\n"}},
		"laid over it":                 {files: map[string]string{"config.yaml": "rotateCertificates: false\n", "over/90-x.conf": "rotateCertificates: true\n"}, want: "90-x.conf"},
		"off in the last":              {files: map[string]string{"config.yaml": "rotateCertificates: true\n", "over/90-x.conf": "rotateCertificates: false\n"}},
		"no file of it":                {files: map[string]string{"over/90-x.yaml": "rotateCertificates: true\n"}},
		"serving":                      {files: map[string]string{"config.yaml": "serverTLSBootstrap: true\n"}, serving: true, want: "serverTLSBootstrap"},
		"no YAML":                      {files: map[string]string{"config.yaml": "{"}, want: "config.yaml", check: checkKubeletFile},
		"another type":                 {files: map[string]string{"config.yaml": "rotateCertificates: [x]"}, want: "config.yaml", check: checkKubeletFile},
		"too large":                    {files: map[string]string{"config.yaml": strings.Repeat("#", maxKubeletFile+1)}, want: "config.yaml", check: checkKubeletFile},
		"kubeadm's unit":               {files: map[string]string{"flags/10-kubeadm.conf": "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\"\n"}, want: bad + "=/etc/kubernetes/bootstrap-kubelet.conf"},
		"in a comment":                 {files: map[string]string{"flags/10-kubeadm.conf": "# --bootstrap-kubeconfig=/b\n; --rotate-certificates\n"}},
		"an environment file":          {files: map[string]string{"flags/flags.env": "KUBELET_KUBEADM_ARGS=\"--v=2 --rotate-certificates\"\n"}, want: "--rotate-certificates"},
		"with a space":                 {files: map[string]string{"flags/flags.env": "X='--bootstrap-kubeconfig /b'\n"}, want: bad + "=/b"},
		"quoted":                       {files: map[string]string{"flags/flags.env": "X=--bootstrap-kubeconfig=\"/b\"\n"}, want: bad + "=/b"},
		"empty":                        {files: map[string]string{"flags/flags.env": "X=\"--bootstrap-kubeconfig= --kubeconfig=/k\"\n"}},
		"off by flag":                  {files: map[string]string{"config.yaml": "rotateCertificates: true\n", "flags/flags.env": "X=--rotate-certificates=false\n"}},
		"hidden by one before":         {files: map[string]string{"flags/x.d/10.conf": "--kubeconfig=/k\n", "flags2/x.d/10.conf": "--bootstrap-kubeconfig=/b\n"}},
		"not hidden by another's name": {files: map[string]string{"flags/x.d/11.conf": "--kubeconfig=/k\n", "flags2/x.d/10.conf": "--bootstrap-kubeconfig=/b\n"}, want: bad},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				path := filepath.Join(dir, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			k := &Kubelet{ConfigFile: filepath.Join(dir, "config.yaml"), ConfigDir: filepath.Join(dir, "over"), serving: c.serving,
				FlagFiles: []string{filepath.Join(dir, "flags", "*.*"), filepath.Join(dir, "flags", "x.d", "*.conf"), filepath.Join(dir, "flags2", "x.d", "*.conf")}}
			if err := os.RemoveAll(filepath.Join(dir, "flags", "x.d", "nothing")); err != nil {
				t.Fatal(err)
			}
			k.FlagFiles[0] = filepath.Join(dir, "flags", "[f1]*.[ce]*")
			err := k.Check()
			check := c.check
			if check == nil {
				check = checkKubelet
			}
			if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, check) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if err := (&Kubelet{FlagFiles: []string{"["}}).Check(); err == nil {
		t.Error("a bad pattern")
	}
}

// TestProcesses looks at a kubelet that runs, and at the one that has started this process.
func TestProcesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it takes /proc")
	}
	dir := t.TempDir()
	kubelet := filepath.Join(dir, "kubelet") // a program of that name that waits
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, kubelet)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(kubelet, "--bootstrap-kubeconfig="+filepath.Join(dir, "bootstrap"))
	cmd.Env = append(os.Environ(), asKubelet+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	report := make([]byte, 4096)
	n, _ := out.Read(report)
	if got := string(report[:n]); !strings.Contains(got, "bootstrap") || !strings.Contains(got, "the kubelet that asks") {
		t.Errorf("its plugin says %q", got)
	}
	if err := (&Kubelet{Processes: true}).CheckRunning(); !errors.Is(err, checkKubelet) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	if err := (&Kubelet{}).CheckRunning(); err != nil {
		t.Errorf("it was not to look: %v", err)
	}
}

const asKubelet, asPlugin = "AUTHENTICATOR_TEST_KUBELET", "AUTHENTICATOR_TEST_PLUGIN"

// TestMain is a kubelet, or its plugin, where a test starts it.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asPlugin) != "":
		if err := (&Kubelet{Parent: true}).Check(); err != nil {
			_, _ = os.Stdout.WriteString(err.Error())
		}
	case os.Getenv(asKubelet) != "":
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		plugin := exec.Command(self)
		plugin.Env, plugin.Stdout = append(os.Environ(), asPlugin+"=1"), os.Stdout
		if err := plugin.Run(); err != nil {
			panic(err)
		}
		select {}
	default:
		os.Exit(m.Run())
	}
}

func FuzzFlags(f *testing.F) {
	f.Add("Environment=\"X=--bootstrap-kubeconfig=/b --rotate-certificates\"\n")
	f.Add("--bootstrap_kubeconfig '/b'")
	f.Fuzz(func(t *testing.T, text string) {
		_ = flagsIn([]byte(text))
		_ = flagsOf(strings.Fields(text))
		_ = new(settings).read("x", []byte(text))
	})
}
