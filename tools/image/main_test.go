package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The archive is read back: it is a whole image, with the programs as they are and a file of
// CAs, and made twice it is the same.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	licenses := filepath.Join(dir, "licenses")
	if err := os.Mkdir(licenses, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{first: "one", second: "two", filepath.Join(licenses, "LICENSE"): "three"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var archives [2][]byte
	path := filepath.Join(dir, "image.tar")
	for i := range archives {
		if err := run([]string{"-o", path, "-tag", "example.com/nodeattest:v1", "-arch", "arm64", "-licenses", licenses, first, second}, io.Discard); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same programs differ")
	}
	tag, err := name.NewTag("example.com/nodeattest:v1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.OS != "linux" || config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/first"}) {
		t.Errorf("configuration: %+v", config)
	}
	if labels := config.Config.Labels; labels["org.opencontainers.image.version"] != "v1" || labels["org.opencontainers.image.licenses"] != "Apache-2.0" || labels["org.opencontainers.image.source"] == "" {
		t.Errorf("labels: %v", labels)
	}
	files := map[string]string{}
	layers := mutate.Extract(image)
	defer layers.Close()
	for r := tar.NewReader(layers); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%+v", header)
		}
		files[header.Name] = string(text)
	}
	if len(files) != 8 || files["first"] != "one" || files["second"] != "two" || files["licenses/LICENSE"] != "three" {
		t.Errorf("files: %.1000v", files)
	}
}

func TestImageRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"no program":        {"-o", "x.tar"},
		"an invalid file":   {"-o", filepath.Join(t.TempDir(), "x.tar"), "nowhere"},
		"a name that isn't": {"-tag", "UPPER case", "main.go"},
		"a flag too many":   {"-daemon", "main.go"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(args, io.Discard); err == nil {
				t.Errorf("%s: an image was made", name)
			}
		})
	}
}
