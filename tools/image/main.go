// Command image makes a container image from static programs, on an empty base, without a
// daemon, a registry or root. The archive has the format that docker load, podman load and
// ctr images import read; the same files give the same bytes.
//
//	image -o image.tar -tag nodeattest:dev -arch amd64 node-attestation-controller ...
//
// Each program is in the image's root. The first is the entrypoint, and the user is 65532,
// which belongs to nobody. Beside the programs there is one file, /etc/ssl/certs/ca-certificates.crt:
// the CAs that a program believes over HTTPS, such as where Google publishes its keys. They are
// Mozilla's, in the version that go.mod requires, and those of -roots. A file and no package of
// roots in the programs: whoever runs them sees it, and can mount another one over it.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
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
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no program")
	}
	tag, err := name.NewTag(*tagged)
	if err != nil {
		return err
	}
	files, err := filesOf(*own, flags.Args())
	if err != nil {
		return err
	}
	made, err := imageOf(*arch, files)
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

// filesOf returns what is in an image: programs, and the CAs that they believe.
func filesOf(ownRoots string, programs []string) ([]file, error) {
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
	return append(files, file{"etc/", 0o755, nil}, file{"etc/ssl/", 0o755, nil}, file{"etc/ssl/certs/", 0o755, nil},
		file{"etc/ssl/certs/ca-certificates.crt", 0o644, roots}), nil
}

// rootsWith returns Mozilla's CAs and those in a file, if it has a name. It leaves out those
// that Mozilla trusts only up to a day: no file can say so.
func rootsWith(path string) ([]byte, error) {
	var out bytes.Buffer
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
func imageOf(arch string, files []file) (v1.Image, error) {
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
	config.Config = v1.Config{User: "65532:65532", WorkingDir: "/", Entrypoint: []string{"/" + files[0].name}}
	return mutate.ConfigFile(made, config)
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
