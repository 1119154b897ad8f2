package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// archive makes a folder like that of a release's archive.
func archive(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(filepath.Join(folder, "node"), os.DirFS(filepath.Join("..", "..", "kube", "deploy", "node"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubelet-authenticator", "LICENSE", "THIRD_PARTY", "sbom.cdx.json"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// made makes a package.
func made(t *testing.T, folder, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made.deb")
	if err := run([]string{"-o", path, "-version", version, "-arch", "amd64", folder}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	return path
}

// deb runs dpkg-deb.
func deb(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("dpkg-deb", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dpkg-deb %q: %v: %s", args, err, out)
	}
	return string(out)
}

// TestPackage: dpkg-deb reads the package, whose files and folders are root's, with modes that Debian's policy
// asks for; nothing is in /etc or /usr/local, and the files name the package's program.
func TestPackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb")
	}
	folder := archive(t)
	path := made(t, folder, "v1.2.3-rc.1")
	if fields := deb(t, "--field", path, "Package", "Version", "Architecture"); fields != "Package: kubelet-authenticator\nVersion: 1.2.3~rc.1\nArchitecture: amd64\n" {
		t.Errorf("the fields are %s", fields)
	}
	programs := 0
	for line := range strings.Lines(deb(t, "--contents", path)) {
		f := strings.Fields(line)
		mode, owner, name := f[0], f[1], f[len(f)-1]
		want := "-rw-r--r--"
		switch {
		case strings.HasSuffix(name, "/"):
			want = "drwxr-xr-x"
		case name == "./usr/bin/kubelet-authenticator":
			want = "-rwxr-xr-x"
			programs++
		}
		if mode != want || owner != "root/root" || !strings.HasPrefix(name, "./usr/") && name != "./" || strings.HasPrefix(name, "./usr/local") {
			t.Errorf("it has %s", line)
		}
	}
	root := t.TempDir()
	deb(t, "--raw-extract", path, root)
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/kubelet-authenticator.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/bin/kubelet-authenticator ") || programs != 1 {
		t.Errorf("%d programs, and the unit is %s, %v", programs, unit, err)
	}
	if out, err := exec.Command("sh", "-c", "cd "+root+" && md5sum --quiet -c DEBIAN/md5sums && [ $(wc -l <DEBIAN/md5sums) = $(find usr -type f | wc -l) ] && ! grep -r usr/local usr").CombinedOutput(); err != nil {
		t.Errorf("digests: %v: %s", err, out)
	}
	again, err := os.ReadFile(made(t, folder, "v1.2.3-rc.1"))
	first, err2 := os.ReadFile(path)
	if err != nil || err2 != nil || !bytes.Equal(first, again) {
		t.Errorf("the same folder gives other bytes: %v, %v", err, err2)
	}
}

// TestRefused: an invalid version, another architecture and a folder without a file are refused.
func TestRefused(t *testing.T) {
	folder := archive(t)
	for want, args := range map[string][]string{
		`version "1.2": not such as v1.2.3`:              {"-version", "1.2", "-arch", "amd64", folder},
		`version "v1.2.3_a": not such as`:                {"-version", "v1.2.3_a", "-arch", "amd64", folder},
		`architecture "386": amd64 or arm64`:             {"-version", "v1.2.3", "-arch", "386", folder},
		"kubelet-authenticator: no such file":            {"-version", "v1.2.3", "-arch", "amd64", t.TempDir()},
		"give -o and one folder":                         {"-version", "v1.2.3", "-arch", "amd64"},
		"flag provided but not defined: -distribution\n": {"-distribution", "sid"},
	} {
		var said bytes.Buffer
		err := run(append([]string{"-o", filepath.Join(t.TempDir(), "made.deb")}, args...), &said)
		if err == nil || !strings.Contains(said.String()+err.Error()+"\n", want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// TestVersions: dpkg sorts versions as their releases are.
func TestVersions(t *testing.T) {
	before := ""
	for _, version := range []string{"v0.9.0", "v1.0.0-dev", "v1.0.0-rc.1", "v1.0.0-rc.1-2", "v1.0.0", "v1.0.1"} {
		now, err := debianVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("dpkg", "--compare-versions", now, "gt", before).CombinedOutput(); err != nil {
			t.Errorf("%s is not after %s: %v: %s", now, before, err, out)
		}
		before = now
	}
}
