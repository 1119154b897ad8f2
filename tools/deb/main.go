// Command deb makes a Debian package of the kubelet-authenticator from the folder of a release's archive:
//
//	deb -o PACKAGE.deb -version v1.2.3 -arch amd64 FOLDER
//
// It holds the program, its systemd unit, and the files for a node as examples. Nothing of it is below /etc,
// so that no upgrade asks about a file or replaces one that an administrator, kubeadm or a machine image wrote.
// The same folder gives the same bytes.
//
// A package is an ar archive of two compressed tar archives (deb(5)). nfpm would write it too, and brings 40
// modules, clients of git and SSH among them.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5" //nolint:gosec // the format's: dpkg --verify compares with it, and it protects from no attacker
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "deb: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("deb", flag.ContinueOnError)
	flags.SetOutput(stderr)
	output := flags.String("o", "", "the package's `path`")
	version := flags.String("version", "", "the release's `version`, such as v1.2.3")
	arch := flags.String("arch", "", "the program's architecture, as Go and Debian name it: amd64 or arm64")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *output == "" {
		return errors.New("give -o and one folder")
	}
	if *arch != "amd64" && *arch != "arm64" { // which both name alike
		return fmt.Errorf("architecture %q: amd64 or arm64", *arch)
	}
	debian, err := debianVersion(*version)
	if err != nil {
		return err
	}
	files, err := dataOf(flags.Arg(0))
	if err != nil {
		return err
	}
	controls, err := controlOf(debian, *arch, files)
	if err != nil {
		return err
	}
	text, err := pack(controls, files)
	if err != nil {
		return err
	}
	return os.WriteFile(*output, text, 0o644) //nolint:gosec // a package is for all
}

var release = regexp.MustCompile(`^v([0-9]+\.[0-9]+\.[0-9]+)(?:-([0-9A-Za-z.-]+))?$`)

// debianVersion returns a release's version as Debian's, in which a pre-release sorts before its release.
func debianVersion(version string) (string, error) {
	parts := release.FindStringSubmatch(version)
	switch {
	case parts == nil:
		return "", fmt.Errorf("version %q: not such as v1.2.3 or v1.2.3-rc.1", version)
	case parts[2] == "":
		return parts[1], nil
	}
	return parts[1] + "~" + strings.ReplaceAll(parts[2], "-", "."), nil
}

// file is a file of an archive.
type file struct {
	name string // without a slash in front
	mode int64
	text []byte
}

const (
	program  = "usr/bin/kubelet-authenticator"
	docs     = "usr/share/doc/kubelet-authenticator/"
	examples = docs + "examples/"
)

// dataOf returns the files of the package, from the folder of an archive. Where they name the program, they
// name the package's: /usr/local is the administrator's.
func dataOf(folder string) ([]file, error) {
	var files []file
	for _, f := range []struct {
		from, to string
		mode     int64
	}{
		{"kubelet-authenticator", program, 0o755},
		{"node/kubelet-authenticator.service", "usr/lib/systemd/system/kubelet-authenticator.service", 0o644},
		{"LICENSE", docs + "copyright", 0o644},
		{"THIRD_PARTY", docs + "THIRD_PARTY", 0o644},
		{"sbom.cdx.json", docs + "sbom.cdx.json", 0o644},
		{"node/kubelet-authenticator.yaml", examples + "kubelet-authenticator.yaml", 0o644},
		{"node/kubelet-authenticator.conf", examples + "kubelet-authenticator.conf", 0o644},
		{"node/kubelet.conf", examples + "kubelet.conf", 0o644},
		{"node/10-kubeadm.conf", examples + "10-kubeadm.conf", 0o644},
	} {
		text, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(f.from)))
		if err != nil {
			return nil, err
		}
		if f.to != program {
			text = bytes.ReplaceAll(text, []byte("/usr/local/bin/kubelet-authenticator"), []byte("/"+program))
		}
		files = append(files, file{f.to, f.mode, text})
	}
	return files, nil
}

//go:embed debian
var scripts embed.FS

// controlOf returns the control files: the description, digests and maintainer scripts.
func controlOf(version, arch string, files []file) ([]file, error) {
	var sums bytes.Buffer
	size := 0
	for _, f := range files {
		size += len(f.text)
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.text), f.name) //nolint:gosec // as above
	}
	control := fmt.Sprintf(`Package: kubelet-authenticator
Version: %s
Architecture: %s
Maintainer: nodeattest <nodeattest@users.noreply.github.com>
Installed-Size: %d
Section: admin
Priority: optional
Homepage: https://github.com/nodeattest/nodeattest
Description: certificates for the kubelet, by evidence about the machine
 The daemon gets the node's certificates by evidence of its TPM or its cloud,
 and renews them. The kubelet reads them through an exec credential plugin.
 .
 The package enables nothing. Configuration files are in
 /usr/share/doc/kubelet-authenticator/examples.
`, version, arch, (size+1023)/1024)
	controls := []file{{"control", 0o644, []byte(control)}, {"md5sums", 0o644, sums.Bytes()}}
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		text, err := scripts.ReadFile("debian/" + name)
		if err != nil {
			return nil, err
		}
		controls = append(controls, file{name, 0o755, text})
	}
	return controls, nil
}

// pack returns a package of control files and data.
func pack(controls, files []file) ([]byte, error) {
	control, err := tarball(controls)
	if err != nil {
		return nil, err
	}
	data, err := tarball(files)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, member := range []file{{"debian-binary", 0o100644, []byte("2.0\n")}, {"control.tar.gz", 0o100644, control}, {"data.tar.gz", 0o100644, data}} {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", member.name, 0, 0, 0, member.mode, len(member.text))
		out.Write(member.text)
		if len(member.text)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), nil
}

// tarball returns a compressed archive of files, with the folders above them, all of root's.
func tarball(files []file) ([]byte, error) {
	entries := []file{{"./", 0o755, nil}}
	for _, f := range files {
		var above []file
		for folder := path.Dir(f.name); folder != "."; folder = path.Dir(folder) {
			above = append(above, file{"./" + folder + "/", 0o755, nil})
		}
		slices.Reverse(above)
		for _, folder := range above {
			if !slices.ContainsFunc(entries, func(e file) bool { return e.name == folder.name }) {
				entries = append(entries, folder)
			}
		}
		entries = append(entries, file{"./" + f.name, f.mode, f.text})
	}
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(packed)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Size: int64(len(e.text)), Mode: e.mode, ModTime: time.Unix(0, 0), Uname: "root", Gname: "root", Format: tar.FormatGNU}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.text); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
