// Package vectors stores and reads the test vectors of documents, in the folder cloud of
// module vectors: one JSON file for each attack, made by changing one thing in a good document,
// with the check that must refuse it. README.md there says how to read them in other languages.
//
// The tests of a kind's package make them: `go test ./gce -update` rewrites gce's with
// new keys. Without the flag the same tests replay the files, and fail on a case without a
// file and on a file without a case.
package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Vector is one file.
type Vector struct {
	// Name is the file's name without its extension, and names the change.
	Name string `json:"name"`
	// Expect is the stable name of the check that refuses; "" for acceptance.
	Expect string `json:"expect"`
	// Machine names the machine of an accepted document: its identity, or for awsid the
	// instance's ID.
	Machine string `json:"machine,omitempty"`
	// Time, if set, is the time at which the document is verified, instead of the
	// environment's.
	Time *time.Time `json:"time,omitempty"`
	// Document is the document, in base64.
	Document []byte `json:"document"`
}

// environmentFile has the trust and the time for all vectors of a folder. Each kind has its own form.
const environmentFile = "environment.json"

var update = flag.Bool("update", false, "write the vectors of this package anew, in the folder cloud of module vectors")

// Cases are the vectors that the tests of one kind make.
type Cases []Vector

// Add adds a vector. Its name is converted to a file name.
func (c *Cases) Add(v Vector) {
	if v.Document == nil {
		v.Document = []byte{} // not null
	}
	v.Name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == ' ', r == '/', r == '+':
			return '-'
		}
		return -1
	}, v.Name)
	*c = append(*c, v)
}

// Write replaces a folder by the cases and their environment.
func (c Cases) Write(folder string, environment any) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := write(filepath.Join(folder, environmentFile), environment); err != nil {
		return err
	}
	for _, v := range c {
		path := filepath.Join(folder, v.Name+".json")
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there already", path)
		}
		if err := write(path, v); err != nil {
			return err
		}
	}
	return nil
}

// Compare returns an error that names each case without a file in folder, and each file there without
// a case.
func (c Cases) Compare(folder string) error {
	list, err := Load(folder, new(any))
	if err != nil {
		return err
	}
	var faults []error
	left := map[string]bool{}
	for _, v := range c {
		left[v.Name] = true
	}
	for _, v := range list {
		if !left[v.Name] {
			faults = append(faults, fmt.Errorf("%s/%s.json: no test makes this vector", folder, v.Name))
		}
		delete(left, v.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		faults = append(faults, fmt.Errorf("%s/%s.json is not there: run the tests with -update, as README.md in the folder above says", folder, name))
	}
	return errors.Join(faults...)
}

// Files compares the cases with the files in folder, or writes these anew with the flag -update, and
// returns the files with their environment.
func (c Cases) Files(folder string, environment, read any) ([]Vector, error) {
	var err error
	if *update {
		err = c.Write(folder, environment)
	} else {
		err = c.Compare(folder)
	}
	list, loading := Load(folder, read)
	return list, errors.Join(err, loading)
}

// Main runs the tests of a package that add cases throughout. If all of them ran, it compares the cases
// with the files in folder; with the flag -update it writes the files anew. It returns the exit status.
func (c *Cases) Main(m interface{ Run() int }, folder string, environment func() (any, error)) int {
	status := m.Run()
	part := slices.ContainsFunc([]string{"run", "skip", "list", "fuzz", "bench"}, func(name string) bool { return flag.Lookup("test."+name).Value.String() != "" })
	_, err := os.Stat(folder)
	switch {
	case status != 0:
		return status
	case *update:
		var common any
		if common, err = environment(); err == nil {
			err = c.Write(folder, common)
		}
	case part || errors.Is(err, os.ErrNotExist): // without module vectors
		return 0
	default:
		err = c.Compare(folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func write(path string, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	if err := encoder.Encode(v); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// Load reads the vectors of one kind, by name, and fills in the environment. A folder
// without vectors is an error.
func Load(folder string, environment any) ([]Vector, error) {
	if err := read(filepath.Join(folder, environmentFile), environment); err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var vectors []Vector
	for _, name := range names {
		if filepath.Base(name) == environmentFile {
			continue
		}
		var v Vector
		if err := read(name, &v); err != nil {
			return nil, err
		}
		if v.Name+".json" != filepath.Base(name) {
			return nil, fmt.Errorf("%s has the name %q", name, v.Name)
		}
		vectors = append(vectors, v)
	}
	if len(vectors) == 0 {
		return nil, fmt.Errorf("no vectors in %s", folder)
	}
	return vectors, nil
}

func read(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
