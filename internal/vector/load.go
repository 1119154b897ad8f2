package vector

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Files beside the folders of the classes.
const (
	// EnvironmentFile holds the common Environment.
	EnvironmentFile = "environment.json"
	// IndexFile lists all vectors, for people.
	IndexFile = "INDEX.md"
	// SchemaFile is the JSON Schema of the vectors.
	SchemaFile = "schema.json"
	readmeFile = "README.md"
)

var beside = []string{EnvironmentFile, IndexFile, SchemaFile, readmeFile}

// Load reads the folder of vectors at root. It fails on a folder or a class that is
// missing or empty, on a file that does not belong there, and on a vector that has
// an unknown member, another name than its file, or an input that is not its
// level's: a vector that nobody replays protects nothing.
func Load(root string) (*Set, error) {
	set := &Set{}
	if err := readJSON(filepath.Join(root, EnvironmentFile), &set.Environment); err != nil {
		return nil, err
	}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		class, file := path.Split(name)
		switch isDir := err == nil && entry.IsDir(); {
		case err != nil:
			return fmt.Errorf("vector: %w", err)
		case isDir && slices.Contains(append(Classes(), "."), name), !isDir && slices.Contains(beside, name):
			return nil
		case isDir || class == "" || path.Ext(file) != ".json":
			return fmt.Errorf("vector: %s: does not belong there", filepath.Join(root, name))
		}
		v, err := loadVector(filepath.Join(root, name), path.Clean(class), strings.TrimSuffix(file, ".json"))
		set.Vectors = append(set.Vectors, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, class := range Classes() {
		if !slices.ContainsFunc(set.Vectors, func(v *Vector) bool { return v.Class == class }) {
			return nil, fmt.Errorf("vector: class %s: %s is empty", class, filepath.Join(root, class))
		}
	}
	if err := set.checkPackages(); err != nil {
		return nil, err
	}
	return set, nil
}

// shared are the names that two packages give a check of their own.
var shared = []string{"gke-identity", "key-strength", "key-type", "provider-id-missing", "signature", "signature-size"}

// checkPackages holds that a check is of one package throughout the set. An error itself
// does not say which: all packages share one type.
func (set *Set) checkPackages() error {
	of := map[string]*Vector{}
	for _, v := range set.Vectors {
		if v.Expect == "" || slices.Contains(shared, v.Expect) {
			continue
		}
		first := cmp.Or(of[v.Expect], v)
		if of[v.Expect] = first; first.Package != v.Package {
			return fmt.Errorf("vector: %s/%s: %s is a check of package %q, and of %q in %s/%s",
				v.Class, v.Name, v.Expect, v.Package, first.Package, first.Class, first.Name)
		}
	}
	return nil
}

func loadVector(file, class, name string) (*Vector, error) {
	v := &Vector{}
	if err := readJSON(file, v); err != nil {
		return nil, err
	}
	if v.Name != name || v.Class != class {
		return nil, fmt.Errorf("vector: %s: it calls itself %s/%s", file, v.Class, v.Name)
	}
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("vector: %s: %w", file, err)
	}
	return v, nil
}

// readJSON reads one JSON value, with no unknown member and nothing after it.
func readJSON(file string, out any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("vector: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("vector: %s: %w", file, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("vector: %s: something after the JSON value", file)
	}
	return nil
}

// check refuses a vector that contradicts itself.
func (v *Vector) check() error {
	all := levels()
	want, ok := all[v.Level]
	if !ok {
		return fmt.Errorf("unknown level %q", v.Level)
	}
	for _, l := range all {
		if set := !reflect.ValueOf(v).Elem().FieldByName(l.input).IsZero(); set != (l.input == want.input) {
			return fmt.Errorf("level %s: the input must be %s alone", v.Level, want.input)
		}
	}
	if err := v.checkExpectation(); err != nil {
		return err
	}
	if v.Environment != nil && v.Environment.FirstUse != nil && len(v.Environment.FirstUse.History) > 0 {
		if err := checkOperations(v.Environment.FirstUse.History, "", false); err != nil {
			return err
		}
	}
	if v.Level == LevelRegistry {
		return checkOperations(v.Registry, v.Expect, v.Retry)
	}
	return nil
}

func (v *Vector) checkExpectation() error {
	switch {
	case v.Description == "":
		return errors.New("no description")
	case v.TargetSigner != "" && v.Level != LevelRequest:
		return errors.New("targetSigner is for level request")
	case v.Expect == "" && (v.Package != "" || v.Cause != "" || v.Also != nil || v.Retry):
		return errors.New("it expects acceptance and something else")
	case v.Expect != "" && v.Result != nil:
		return errors.New("it expects a refusal and a result")
	case v.Expect != "" && !slices.Contains([]string{PackageAttest, PackageCSR, PackageOID, PackageTPM, PackageJWS, PackageClaims}, v.Package):
		return fmt.Errorf("unknown package %q", v.Package)
	case v.Cause != "" && v.Package != PackageAttest:
		return errors.New("cause is for package attest")
	case v.Also != nil && v.Package != PackageCSR:
		return errors.New("also is for package csr")
	case (v.Expect == "") != (v.Class == "accepted"):
		return fmt.Errorf("class %s expects %q", v.Class, v.Expect)
	}
	return nil
}
