// Package documents reads the test vectors of clouds' documents for tests.
package documents

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/vectors"
)

// Vector is one document, the check that must refuse it ("" for acceptance), and the machine
// of an accepted one.
type Vector struct {
	Name, Expect, Machine string
	Document              []byte
}

// Load reads the vectors of one kind, by name, and fills in their common parts.
func Load(t testing.TB, kind string, environment any) map[string]*Vector {
	t.Helper()
	dir := path.Join("cloud", kind)
	files, err := vectors.FS.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]*Vector{}
	for _, file := range files {
		text, err := vectors.FS.ReadFile(path.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		v := &Vector{}
		if file.Name() == "environment.json" {
			err = json.Unmarshal(text, environment)
		} else if err = json.Unmarshal(text, v); err == nil {
			list[strings.TrimSuffix(file.Name(), ".json")] = v
		}
		if err != nil {
			t.Fatal(file.Name(), err)
		}
	}
	if len(list) == 0 {
		t.Fatal("no vectors of ", kind)
	}
	return list
}

// CheckWeak checks that the plain verifier accepts good documents. It refuses every forgery but the ones that a kind
// checks elsewhere, after the document, and lets it in once it forgets the checks that weak
// lists for it: so a vector is the attack that its name says.
func CheckWeak(t *testing.T, list map[string]*Vector, weak map[string][]string, elsewhere []string, verify func(document []byte, forget ...string) error) {
	t.Helper()
	for name := range weak {
		if list[name] == nil {
			t.Errorf("%s is no vector", name)
		}
	}
	for name, v := range list {
		err := verify(v.Document)
		switch {
		case v.Expect == "" && err != nil:
			t.Errorf("%s: refused: %v", name, err)
		case v.Expect != "" && err == nil && !slices.Contains(elsewhere, v.Expect):
			t.Errorf("%s: the plain verifier takes it", name)
		}
		if forget := weak[name]; forget != nil {
			if err := verify(v.Document, forget...); err != nil {
				t.Errorf("%s: not let in by who forgets %q: %v", name, forget, err)
			}
		}
	}
}
