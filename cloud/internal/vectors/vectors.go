// Package vectors stores and reads the test vectors of documents, in the folder cloud of
// module vectors: one JSON file for each attack, made by changing one thing in a good document,
// with the check that must refuse it. README.md there says how to read them in other languages.
//
// The tests of a kind's package make them: `go test ./gce -update` rewrites those of gce with
// new keys. Without the flag the same tests replay what is there, and fail on a case without a
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
	// Name is the file's name without its extension: what was changed.
	Name string `json:"name"`
	// Expect is the stable name of the check that refuses; "" for acceptance.
	Expect string `json:"expect"`
	// Machine is what an accepted document names: a machine's identity, or for awsid the
	// instance's ID.
	Machine string `json:"machine,omitempty"`
	// Time, if set, is the time at which the document is verified, instead of the
	// environment's.
	Time *time.Time `json:"time,omitempty"`
	// Document is the document, in base64.
	Document []byte `json:"document"`
}

// environmentFile is what all vectors of a folder have in common. Each kind has its own form.
const environmentFile = "environment.json"

// Writer writes the vectors of one kind. The zero value writes nothing, and compares the
// names.
type Writer struct {
	folder string
	names  map[string]bool
}

// NewWriter starts a new folder: what was there is deleted.
func NewWriter(folder string, environment any) (*Writer, error) {
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	return &Writer{folder: folder}, write(filepath.Join(folder, environmentFile), environment)
}

// Write writes one vector. The name is converted to a file name.
func (w *Writer) Write(v Vector) error {
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
	if w.folder == "" {
		if w.names == nil {
			w.names = map[string]bool{}
		}
		w.names[v.Name] = true
		return nil
	}
	path := filepath.Join(w.folder, v.Name+".json")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there already", path)
	}
	return write(path, v)
}

// Compare returns an error that names each case that was not written and has no file in folder,
// and each file there without a case.
func (w *Writer) Compare(folder string) error {
	list, err := Load(folder, new(any))
	if err != nil {
		return err
	}
	var faults []error
	left := maps.Clone(w.names)
	for _, v := range list {
		if !left[v.Name] {
			faults = append(faults, fmt.Errorf("%s/%s.json: no test makes this vector", folder, v.Name))
		}
		delete(left, v.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		faults = append(faults, fmt.Errorf("%s/%s.json is not there: run the tests with -update, as README.md beside that folder says", folder, name))
	}
	return errors.Join(faults...)
}

// Main runs the tests of a package that write vectors throughout. If all of them ran, it then
// compares what they made with the files in folder. It returns the exit status.
func (w *Writer) Main(m interface{ Run() int }, folder string) int {
	status := m.Run()
	for _, name := range []string{"run", "skip", "list", "fuzz", "bench"} {
		if flag.Lookup("test."+name).Value.String() != "" {
			return status
		}
	}
	if _, err := os.Stat(folder); w.folder != "" || status != 0 || errors.Is(err, os.ErrNotExist) {
		return status // written just now, failed, or without module vectors
	}
	if err := w.Compare(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
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
