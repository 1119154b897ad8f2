// Command image makes a container image from static programs, on an empty base, without a
// daemon, a registry or root. The archive has the format that docker load, podman load and
// ctr images import read; the same files give the same bytes.
//
//	image -o image.tar -tag nodeattest:dev -arch amd64 -licenses licenses node-attestation-controller ...
//	image -o index.tar -tag nodeattest:dev -index amd64.tar arm64.tar
//
// The second form puts images of several architectures under one name: an OCI archive for podman
// load, ctr images import, and skopeo copy --all to a registry.
//
// Each program is in the image's root. The first is the entrypoint, and the user is 65532,
// which is no account. The files of -licenses are in /licenses. With them there is one file,
// /etc/ssl/certs/ca-certificates.crt:
// the CAs that a program believes over HTTPS, such as where Google publishes its keys. They are
// Mozilla's, in the version that go.mod requires, and the ones of -roots. A file and no package of
// roots in the programs: their operator sees it, and can mount another one over it.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(stderr)
	output := flags.String("o", "image.tar", "the archive's `path`")
	tagged := flags.String("tag", "nodeattest:dev", "the image's `name`")
	arch := flags.String("arch", "amd64", "the programs' architecture")
	own := flags.String("roots", "", "a `file` of more CAs that the programs believe, PEM")
	licenses := flags.String("licenses", "", "a `folder` of files for /licenses")
	index := flags.Bool("index", false, "put archives of images under one name")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no program or archive")
	}
	tag, err := name.NewTag(*tagged)
	if err != nil {
		return err
	}
	if *index {
		return writeIndex(*output, tag, flags.Args())
	}
	files, err := filesOf(*own, *licenses, flags.Args())
	if err != nil {
		return err
	}
	made, err := imageOf(*arch, tag, files)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(*output, tag, made)
}

// file is a file or, with a name that ends in a slash, a folder of the image.
type file struct {
	name string
	mode int64
	text []byte
}

// filesOf returns the files of an image: programs, the CAs that they trust, and licences.
func filesOf(ownRoots, licenses string, programs []string) ([]file, error) {
	var files []file
	for _, program := range programs {
		text, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		files = append(files, file{filepath.Base(program), 0o755, text})
	}
	roots, err := rootsWith(ownRoots)
	if err != nil {
		return nil, err
	}
	files = append(files, file{"etc/", 0o755, nil}, file{"etc/ssl/", 0o755, nil}, file{"etc/ssl/certs/", 0o755, nil},
		file{"etc/ssl/certs/ca-certificates.crt", 0o644, roots})
	if licenses == "" {
		return files, nil
	}
	entries, err := os.ReadDir(licenses)
	if err != nil {
		return nil, err
	}
	files = append(files, file{"licenses/", 0o755, nil})
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(licenses, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{"licenses/" + e.Name(), 0o644, text})
	}
	return files, nil
}

// rootsWith returns Mozilla's CAs and those in a file, if it has a name. It leaves out those
// that Mozilla trusts only up to a day: no file can say so.
func rootsWith(path string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# From Mozilla's list of CAs, under the Mozilla Public License 2.0: https://mozilla.org/MPL/2.0/\n")
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		c, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "# %s\n%s", c.Subject, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	if path == "" {
		return out.Bytes(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(text)
	for found := false; block != nil || len(bytes.TrimSpace(rest)) > 0 || !found; block, rest = pem.Decode(rest) {
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s: not certificates in PEM and nothing else", path)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found = true
	}
	out.Write(text)
	return out.Bytes(), nil
}

// imageOf returns an image of files, of which the first is the entrypoint.
func imageOf(arch string, tag name.Tag, files []file) (v1.Image, error) {
	text, err := layerOf(files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
	if err != nil {
		return nil, err
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{User: "65532:65532", WorkingDir: "/", Entrypoint: []string{"/" + files[0].name}, Labels: labelsOf(tag, files[0].text)}
	return mutate.ConfigFile(made, config)
}

// labelsOf are the OCI's annotations for where an image comes from. The revision is the commit
// that the go command recorded in the first program, if it did.
func labelsOf(tag name.Tag, program []byte) map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{prefix + "source": "https://github.com/nodeattest/nodeattest", prefix + "licenses": "Apache-2.0", prefix + "version": tag.TagStr()}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return labels
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			labels[prefix+"revision"] = s.Value
		}
	}
	return labels
}

// layerOf returns the archive of a layer with files.
func layerOf(files []file) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Size: int64(len(f.text)), Mode: f.mode, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	// Close writes the end, without which only Go reads the archive.
	if err := w.Close(); err != nil {
		return nil, err
	}
	return layer.Bytes(), nil
}
