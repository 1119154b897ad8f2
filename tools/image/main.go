// Command image makes a container image from static programs, on an empty base, without a
// daemon, a registry or root. The archive has the format that docker load, podman load and
// ctr images import read; the same files give the same bytes.
//
//	image -o image.tar -tag nodeattest:dev -arch amd64 node-attestation-controller ...
//
// Each program is in the image's root. The first is the entrypoint, and the user is 65532,
// which belongs to nobody.
package main

import (
	"archive/tar"
	"bytes"
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
	made, err := imageOf(*arch, flags.Args())
	if err != nil {
		return err
	}
	return tarball.WriteToFile(*output, tag, made)
}

// imageOf returns an image of programs.
func imageOf(arch string, programs []string) (v1.Image, error) {
	text, err := layerOf(programs)
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
	file, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	file.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = v1.Config{User: "65532:65532", WorkingDir: "/", Entrypoint: []string{"/" + filepath.Base(programs[0])}}
	return mutate.ConfigFile(made, file)
}

// layerOf returns the archive of a layer with programs in its root.
func layerOf(programs []string) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, program := range programs {
		text, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(program), Size: int64(len(text)), Mode: 0o755, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	return layer.Bytes(), w.Close()
}
