package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// writeIndex writes an OCI archive in which a name stands for the images of archives, each for its
// own architecture.
func writeIndex(path string, tag name.Tag, archives []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, archive := range archives {
		image, err := tarball.ImageFromPath(archive, &tag)
		if err != nil {
			return err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		}})
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), "index.")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": tag.Name(), "org.opencontainers.image.ref.name": tag.Name(),
	})); err != nil {
		return err
	}
	return archiveOf(path, os.DirFS(folder))
}

// archiveOf writes the files of a folder as a tar archive, in the order of their names and without
// the time.
func archiveOf(path string, folder fs.FS) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	if err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		in, err := folder.Open(name)
		if err != nil {
			return err
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Size: info.Size(), Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		return err
	}); err != nil {
		return err
	}
	return w.Close()
}
