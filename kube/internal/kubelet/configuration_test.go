package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestReadConfiguration reads files as the kubelet does. test/kube has a kubelet read them.
func TestReadConfiguration(t *testing.T) {
	const on, off = "rotateCertificates: true\n", "rotateCertificates: false\n"
	type files map[string]string
	for name, row := range map[string]struct {
		files files
		want  string // the file that turns it on; "" for none
		check error
	}{
		"nothing there":               {},
		"on":                          {files: files{"config.yaml": "kind: KubeletConfiguration\n" + on}, want: "config.yaml"},
		"in JSON":                     {files: files{"config.yaml": `{"rotateCertificates": true}`}, want: "config.yaml"},
		"off":                         {files: files{"config.yaml": off}},
		"twice":                       {files: files{"config.yaml": on + off}},
		"in another spelling":         {files: files{"config.yaml": "RotateCertificates: true\n"}},
		"off in another spelling":     {files: files{"config.yaml": on + "rotatecertificates: false\n"}, want: "config.yaml"},
		"on in the last":              {files: files{"config.yaml": off, "d/90.conf": on}, want: "d/90.conf"},
		"off in the last":             {files: files{"config.yaml": on, "d/90.conf": off}},
		"on in both":                  {files: files{"config.yaml": on, "d/90.conf": on}, want: "config.yaml"},
		"no drop-in":                  {files: files{"d/90.yaml": on}},
		"off in a folder behind":      {files: files{"d/10.conf": on, "d/50-vendor/10.conf": off}},
		"on in a folder behind":       {files: files{"d/90.conf": off, "d/95-vendor/x/10.conf": on}, want: "d/95-vendor/x/10.conf"},
		"off in a folder before":      {files: files{"d/50-vendor/10.conf": off, "d/90.conf": on}, want: "d/90.conf"},
		"in a folder of such a name":  {files: files{"d/x.conf/10.conf": on}, want: "d/x.conf/10.conf"},
		"no drop-in of a folder":      {files: files{"d/x/10.yaml": on}},
		"removed":                     {files: files{"config.yaml": on, "d/90.conf": "rotateCertificates: null\n"}},
		"removed in another spelling": {files: files{"config.yaml": on, "d/90.conf": "RotateCertificates: null\n"}, want: "config.yaml"},
		"on in a drop-in's spelling":  {files: files{"config.yaml": off, "d/90.conf": "RotateCertificates: true\n"}, want: "d/90.conf"},
		"off in a drop-in's spelling": {files: files{"config.yaml": on, "d/90.conf": "rotatecertificates: false\n"}},
		"twice in a drop-in":          {files: files{"d/90.conf": off + on}, want: "d/90.conf", check: CheckFile},
		"no YAML":                     {files: files{"config.yaml": "{"}, want: "config.yaml", check: CheckFile},
		"another type":                {files: files{"config.yaml": "rotateCertificates: [x]"}, want: "config.yaml", check: CheckFile},
		"another type in a drop-in":   {files: files{"d/90.conf": "rotateCertificates: yes please"}, want: "d/90.conf", check: CheckFile},
		"too large":                   {files: files{"config.yaml": strings.Repeat("#", maxFile+1)}, want: "config.yaml", check: CheckFile},
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
	write(t, file, "serverTLSBootstrap: true\n")
	if err := errors.Join(os.Symlink(folder, link), os.Mkdir(other, 0o700), os.Symlink(file, filepath.Join(other, "90.conf")), os.Symlink(os.DevNull, filepath.Join(other, "95.conf"))); err != nil {
		t.Skip(err) // Windows has rights for it
	}
	for path, want := range map[string]string{folder: file, link: "", other: filepath.Join(other, "90.conf"), filepath.Join(dir, "none"): ""} {
		if c, err := ReadConfiguration("", path); err != nil || c.ServerTLSBootstrap != want {
			t.Errorf("%s: got %+v, %v, want %q", path, c, err, want)
		}
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if c, err := ReadConfiguration("", folder); runtime.GOOS != "windows" && !errors.Is(err, CheckFile) {
		t.Errorf("anybody may write to it: got %+v, %v", c, err)
	}
}

func TestReadConfigurationOfMany(t *testing.T) {
	dir := t.TempDir()
	for n := range maxNames {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadConfiguration("", dir); !errors.Is(err, CheckFile) {
		t.Errorf("got %v", err)
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add([]byte("rotateCertificates: true\n"))
	f.Add([]byte(`{"RotateCertificates": null}`))
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
