package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	testkit.MustDo(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
}

// head is what each file says it is.
const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// TestReadConfiguration reads files as the kubelet does. test/kube has a kubelet read many more.
func TestReadConfiguration(t *testing.T) {
	const on, off = head + "rotateCertificates: true\n", head + "rotateCertificates: false\n"
	type files map[string]string
	for name, row := range map[string]struct {
		files files
		want  string // the file that turns it on; "" for none
		check error
	}{
		"nothing there":                {},
		"on":                           {files: files{"config.yaml": on}, want: "config.yaml"},
		"in JSON":                      {files: files{"config.yaml": `{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "rotateCertificates": true}`}, want: "config.yaml"},
		"off":                          {files: files{"config.yaml": off}},
		"twice":                        {files: files{"config.yaml": on + "rotateCertificates: false\n"}},
		"in another spelling":          {files: files{"config.yaml": head + "RotateCertificates: true\n"}},
		"off in another spelling":      {files: files{"config.yaml": on + "rotatecertificates: false\n"}, want: "config.yaml"},
		"on in the last":               {files: files{"config.yaml": off, "d/90.conf": on}, want: "d/90.conf"},
		"off in the last":              {files: files{"config.yaml": on, "d/90.conf": off}},
		"on in both":                   {files: files{"config.yaml": on, "d/90.conf": on}, want: "config.yaml"},
		"no drop-in":                   {files: files{"d/90.yaml": on}},
		"off in a folder behind":       {files: files{"d/10.conf": on, "d/50-vendor/10.conf": off}},
		"on in a folder behind":        {files: files{"d/90.conf": off, "d/95-vendor/x/10.conf": on}, want: "d/95-vendor/x/10.conf"},
		"off in a folder before":       {files: files{"d/50-vendor/10.conf": off, "d/90.conf": on}, want: "d/90.conf"},
		"in a folder of such a name":   {files: files{"d/x.conf/10.conf": on}, want: "d/x.conf/10.conf"},
		"removed":                      {files: files{"config.yaml": on, "d/90.conf": head + "rotateCertificates: null\n"}},
		"removed in another spelling":  {files: files{"config.yaml": on, "d/90.conf": head + "RotateCertificates: null\n"}, want: "config.yaml"},
		"on in a drop-in's spelling":   {files: files{"config.yaml": off, "d/90.conf": head + "RotateCertificates: true\n"}, want: "d/90.conf"},
		"off in a drop-in's spelling":  {files: files{"config.yaml": on, "d/90.conf": head + "rotatecertificates: false\n"}},
		"a type that is mended":        {files: files{"d/80.conf": head + "rotateCertificates: [x]\n", "d/90.conf": on}, want: "d/90.conf"},
		"a type that is not mended":    {files: files{"d/80.conf": head + "rotateCertificates: yes please\n", "d/90.conf": head + "maxPods: 9\n"}, want: "d/80.conf", check: CheckFile},
		"another type":                 {files: files{"config.yaml": head + "rotateCertificates: [x]"}, want: "config.yaml", check: CheckFile},
		"twice in a drop-in":           {files: files{"d/90.conf": off + "rotateCertificates: true\n"}, want: "d/90.conf", check: CheckFile},
		"no YAML":                      {files: files{"config.yaml": "["}, want: "config.yaml", check: CheckFile},
		"no JSON":                      {files: files{"config.yaml": "{kind: KubeletConfiguration}"}, want: "config.yaml", check: CheckFile},
		"empty":                        {files: files{"config.yaml": ""}, want: "config.yaml that the kubelet refuses, want a KubeletConfiguration of kubelet.config.k8s.io/v1beta1: it is empty", check: CheckFile},
		"an empty drop-in":             {files: files{"d/90.conf": ""}, want: "it is empty", check: CheckFile},
		"no kind":                      {files: files{"config.yaml": "rotateCertificates: true\n"}, want: `the kind is "" of version ""`, check: CheckFile},
		"no kind in a drop-in":         {files: files{"d/90.conf": "rotateCertificates: true\n"}, want: "'Kind' is missing", check: CheckFile},
		"another kind":                 {files: files{"config.yaml": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"}, want: `the kind is "ClusterConfiguration" of version "kubeadm.k8s.io/v1beta4"`, check: CheckFile},
		"another version in a drop-in": {files: files{"d/90.conf": "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n"}, want: `the kind is "KubeletConfiguration" of version "kubelet.config.k8s.io/v1"`, check: CheckFile},
		"too large":                    {files: files{"config.yaml": strings.Repeat("#", maxFile+1)}, want: "config.yaml", check: CheckFile},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range row.files {
				write(t, filepath.Join(dir, file), text)
			}
			c, err := ReadConfiguration(filepath.Join(dir, "config.yaml"), filepath.Join(dir, "d"))
			if row.check != nil {
				if !errors.Is(err, row.check) || !strings.Contains(err.Error(), row.want) || c != nil {
					t.Errorf("got %+v, %v, want %v", c, err, row.check)
				}
				return
			}
			want := row.want
			if want != "" {
				want = filepath.Join(dir, want)
			}
			if err != nil || c.RotateCertificates != want || c.ServerTLSBootstrap != "" {
				t.Errorf("got %+v, %v, want %q", c, err, want)
			}
		})
	}
}

// TestReadConfigurationLinks follows the links that the kubelet follows: to a file, and not to
// the folder itself. A file that others may write to is refused.
func TestReadConfigurationLinks(t *testing.T) {
	dir := t.TempDir()
	folder, link, other := filepath.Join(dir, "real"), filepath.Join(dir, "link"), filepath.Join(dir, "other")
	file := filepath.Join(folder, "10.conf")
	write(t, file, head+"serverTLSBootstrap: true\n")
	if err := errors.Join(os.Symlink(folder, link), os.Mkdir(other, 0o700), os.Symlink(file, filepath.Join(other, "90.conf"))); err != nil {
		t.Skip(err) // Windows has rights for it
	}
	for path, want := range map[string]string{folder: file, link: "", other: filepath.Join(other, "90.conf"), filepath.Join(dir, "none"): ""} {
		if c, err := ReadConfiguration("", path); err != nil || c.ServerTLSBootstrap != want {
			t.Errorf("%s: got %+v, %v, want %q", path, c, err, want)
		}
	}
	for _, target := range []string{os.DevNull, filepath.Join(dir, "none"), folder} { // the kubelet does not start
		link := filepath.Join(other, "95.conf")
		testkit.MustDo(os.Symlink(target, link))
		if c, err := ReadConfiguration("", other); !errors.Is(err, CheckFile) || !strings.Contains(err.Error(), link) {
			t.Errorf("a link to %s: got %+v, %v", target, c, err)
		}
		testkit.MustDo(os.Remove(link))
	}
	testkit.MustDo(os.Chmod(file, 0o666))
	if c, err := ReadConfiguration("", folder); runtime.GOOS != "windows" && !errors.Is(err, CheckFile) {
		t.Errorf("every user may write to it: got %+v, %v", c, err)
	}
}

func TestReadConfigurationOfMany(t *testing.T) {
	dir := t.TempDir()
	for n := range maxNames {
		testkit.MustDo(os.Mkdir(filepath.Join(dir, strconv.Itoa(n)), 0o700))
	}
	if _, err := ReadConfiguration("", dir); !errors.Is(err, CheckFile) {
		t.Errorf("got %v", err)
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(head + "rotateCertificates: true\n"))
	f.Add([]byte(`{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "RotateCertificates": null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, decode := range []func([]byte, map[string]any) error{decodeMain, mergeDropIn} {
			merged := map[string]any{}
			if err := decode(text, merged); err != nil {
				continue
			}
			for name := range merged {
				if !strings.EqualFold(name, "rotateCertificates") && !strings.EqualFold(name, "serverTLSBootstrap") {
					t.Errorf("a field %q", name)
				}
			}
		}
	})
}
