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

	"github.com/nodeattest/nodeattest/internal/vector"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vectors:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	root := "."
	switch len(args) {
	case 0:
	case 1:
		root = args[0]
	default:
		return errors.New("usage: vectors [FOLDER]")
	}
	set, messages, err := generate()
	if err != nil {
		return err
	}
	if err := writeVectors(root, set); err != nil {
		return err
	}
	return writeMessages(root, messages)
}

// writeVectors writes a set below root, in place of the classes that are there.
func writeVectors(root string, set *vector.Set) error {
	dir := filepath.Join(root, "testdata", "vectors")
	slices.SortFunc(set.Vectors, func(a, b *vector.Vector) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.Name, b.Name))
	})
	for _, class := range vector.Classes() {
		if err := os.RemoveAll(filepath.Join(dir, class)); err != nil {
			return err
		}
	}
	if err := writeJSON(filepath.Join(dir, vector.EnvironmentFile), &set.Environment); err != nil {
		return err
	}
	for i, v := range set.Vectors {
		if i > 0 && v.Class == set.Vectors[i-1].Class && v.Name == set.Vectors[i-1].Name {
			return fmt.Errorf("two vectors %s/%s", v.Class, v.Name)
		}
		if err := writeJSON(filepath.Join(dir, v.Class, v.Name+".json"), v); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, vector.IndexFile), index(set), 0o644)
}

func writeJSON(file string, v any) error {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return writeFile(file, out.Bytes())
}

func writeFile(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
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
