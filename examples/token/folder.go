package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// A folder holds one manifest per file, named after the Secret. Other files are ignored.
type folder string

const suffix = ".yaml"

// usersFolder is where tokens are by default: outside of all that the user may publish.
func usersFolder() (folder, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return folder(filepath.Join(dir, "nodeattest", "tokens")), nil
}

// add stores a new Secret, readable only by the owner.
func (f folder) add(o *bootstraptoken.Object) error {
	manifest, err := o.RevealYAML()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(string(f), o.Name+suffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(manifest)
	return errors.Join(err, file.Close())
}

// read returns the Secrets in the folder, sorted by name, and an error that names the files
// that are not Secrets. A folder that does not exist is empty.
func (f folder) read() (objects []*bootstraptoken.Object, unread error) {
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != suffix {
			continue
		}
		var o *bootstraptoken.Object
		manifest, err := os.ReadFile(filepath.Join(string(f), entry.Name()))
		if err == nil {
			o, err = bootstraptoken.ParseManifest(manifest)
		}
		if err == nil && o.Name+suffix != entry.Name() {
			err = fmt.Errorf("the manifest of another name, %v", o)
		}
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("%q: %w", entry.Name(), err))
			continue
		}
		objects = append(objects, o)
	}
	return objects, unread
}

// remove deletes the Secret with this name, which read or ParseID has checked.
func (f folder) remove(name string) error {
	return os.Remove(filepath.Join(string(f), name+suffix))
}
