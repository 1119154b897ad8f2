// Vectors makes the test vectors of this module and the worked example of its
// messages.
//
//	vectors [FOLDER]
//
// It writes testdata/vectors and attest/testdata/messages below FOLDER, which is the
// repository unless given, in place of those that are there. Good evidence comes
// from the reference simulator of a TPM; each attack is one change to it, or a
// statement that no TPM would make, signed by an attestation key in software that
// the same CA has certified. Keys, certificates, requests and nonces follow from a
// seed and stay the same from run to run. What a TPM draws or counts itself does
// not: keys that it makes, its clock, ECDSA and RSAPSS signatures.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vectors:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	defer forge.Caught(&err)
	if len(args) > 1 {
		return errors.New("usage: vectors [FOLDER]")
	}
	root := append(args, ".")[0]
	set, messages := generate()
	writeVectors(root, set)
	writeMessages(root, messages)
	return nil
}

// writeVectors writes a set below root, in place of the classes that are there.
func writeVectors(root string, set *vector.Set) {
	dir := filepath.Join(root, "testdata", "vectors")
	slices.SortFunc(set.Vectors, func(a, b *vector.Vector) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.Name, b.Name))
	})
	for _, class := range vector.Classes() {
		forge.Check(os.RemoveAll(filepath.Join(dir, class)))
	}
	writeJSON(filepath.Join(dir, vector.EnvironmentFile), &set.Environment)
	for i, v := range set.Vectors {
		if i > 0 && v.Class == set.Vectors[i-1].Class && v.Name == set.Vectors[i-1].Name {
			forge.Check(fmt.Errorf("two vectors %s/%s", v.Class, v.Name))
		}
		writeJSON(filepath.Join(dir, v.Class, v.Name+".json"), v)
	}
	writeFile(filepath.Join(dir, vector.IndexFile), index(set))
}

func writeJSON(file string, v any) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	forge.Check(e.Encode(v))
	writeFile(file, out.Bytes())
}

func writeFile(file string, data []byte) {
	forge.Check(os.MkdirAll(filepath.Dir(file), 0o755))
	forge.Check(os.WriteFile(file, data, 0o644))
}

// index is a list of all vectors for people.
func index(set *vector.Set) []byte {
	var out bytes.Buffer
	out.WriteString("# The vectors\n\n`make vectors` writes this list. [README.md](README.md) says how to read a file.\n")
	class := ""
	for _, v := range set.Vectors {
		if v.Class != class {
			class = v.Class
			fmt.Fprintf(&out, "\n## %s\n\n| file | level | expect | what an attacker changed |\n| --- | --- | --- | --- |\n", class)
		}
		expect := "accepted"
		if v.Expect != "" {
			expect = "`" + strings.Join(append([]string{v.Expect}, v.Also...), "` `") + "`"
		}
		if v.Retry {
			expect += " (try again)"
		}
		fmt.Fprintf(&out, "| [%s](%s/%s.json) | %s | %s | %s |\n", v.Name, v.Class, v.Name, v.Level, expect, v.Description)
	}
	return out.Bytes()
}
