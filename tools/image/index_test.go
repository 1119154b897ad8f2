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

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestIndex puts images of two architectures under one name, and reads them back.
func TestIndex(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	tag := []string{"-tag", "example.com/nodeattest:v1"}
	var archives []string
	for _, arch := range []string{"amd64", "arm64"} {
		archive := filepath.Join(dir, arch+".tar")
		archives = append(archives, archive)
		if err := run(append(slices.Clone(tag), "-o", archive, "-arch", arch, program), io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	var texts [2][]byte
	for i := range texts {
		path := filepath.Join(dir, "index.tar")
		if err := run(append(append(slices.Clone(tag), "-o", path, "-index"), archives...), io.Discard); err != nil {
			t.Fatal(err)
		}
		var err error
		if texts[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("two indexes of the same images differ")
	}
	folder := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(texts[0])); ; {
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
		to := filepath.Join(folder, header.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	top, err := outer.IndexManifest()
	if err != nil || len(top.Manifests) != 1 || top.Manifests[0].Annotations["io.containerd.image.name"] != "example.com/nodeattest:v1" {
		t.Fatalf("%+v, %v", top, err)
	}
	inner, err := outer.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(inner); err != nil {
		t.Error(err)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var arches []string
	for _, m := range manifest.Manifests {
		arches = append(arches, m.Platform.OS+"/"+m.Platform.Architecture)
	}
	if !slices.Equal(arches, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("architectures %q", arches)
	}
	if err := run(append(slices.Clone(tag), "-o", filepath.Join(dir, "x.tar"), "-index", program), io.Discard); err == nil {
		t.Error("an index of what is no archive was made")
	}
}
