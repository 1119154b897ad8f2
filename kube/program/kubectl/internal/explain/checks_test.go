package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checksOf reads every check that the module's code has, by its text: constants of the type,
// and texts that are used as one. The value is the folder where it is.
func checksOf(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, filepath.Dir(path))
		if d.IsDir() && slices.Contains([]string{"test", "testdata", "tools", "examples", "vector", "vectors", ".git"}, d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, text := range checkTexts(n) {
				found[text] = folder
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// checkTexts are the texts of checks that a node of the syntax holds itself.
func checkTexts(n ast.Node) []string {
	var values []ast.Expr
	switch n := n.(type) {
	case *ast.ValueSpec:
		if isCheck(n.Type) {
			values = n.Values
		}
	case *ast.CallExpr:
		if isCheck(n.Fun) {
			values = n.Args
		}
	case *ast.KeyValueExpr:
		if name, ok := n.Key.(*ast.Ident); ok && name.Name == "Check" {
			values = []ast.Expr{n.Value}
		}
	}
	var texts []string
	for _, v := range values {
		if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			texts = append(texts, text)
		}
	}
	return texts
}

func isCheck(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "Check"
	case *ast.SelectorExpr:
		return e.Sel.Name == "Check"
	}
	return false
}

// neverDenied are the checks that are the reason of no decision about a node's request. A name
// that ends in a slash is a folder, for its checks without a remedy.
var neverDenied = map[string]string{
	"attest/attesttest/":                     "a kind for tests",
	"attest/membership/boltregistry/":        "a registry's file: it is tried again",
	"attest/tpm/":                            "enrolling an AK, which is no request for a certificate",
	"attest/join/":                           "the node's side",
	"bootstraptoken/":                        "tokens and discovery",
	"claims/":                                "tokens of service accounts",
	"claims/apiserver/":                      "tokens of service accounts",
	"claims/extsigner/":                      "the signer of tokens",
	"claims/internal/alive/":                 "tokens of service accounts",
	"cloud/internal/metadata/":               "the node's side",
	"internal/safefile/":                     "files, of the node or of a program",
	"jws/":                                   "keys and key sets: tried again",
	"kube/authenticator/":                    "the node's side",
	"kube/program/node/":                     "the node's side",
	"kube/authenticator/certstore/":          "the node's side",
	"kube/authenticator/internal/apiclient/": "the node's side",
	"kube/authenticator/internal/kubelet/":   "the node's side",

	"certify-options": "an option of a caller", "quote-options": "an option of a caller", "oid-size": "an option of a caller", "oid-syntax": "an option of a caller",
	"member-list": "a list of members, which a configuration names", "tpm-key-file": "the node's side",
	"awsid-certificates": "certificates, which the configuration names", "ec2-sts": "tried again", "ec2-sts-answer": "tried again", "ec2-sts-size": "tried again",
	"crl":           "a revocation list, which the configuration names",
	"configuration": "the program's fault, so it is tried again", "evidence-kind": "the kind's fault, so it is tried again",
	"certificate-revocation-unknown": "tried again", "ek-unjudged": "tried again", "ring-empty": "tried again", "ring-stale": "tried again",
	"request-in-the-future": "tried again", "registry-inventory": "tried again", "hello-signer": "a request for another signer, so it is tried again",
	"could not decide, try again": "tried again",
	"provider-unknown":            "a request for another signer", "request-closed": "it was decided before", "unsupported-key": "the cause of another refusal",
	"issued-certificate": "of issuing", "not-checked": "of issuing", "verified-cluster": "of issuing", "verified-expired": "of issuing", "verified-machine": "of issuing",
}

// TestRemedies holds the table of remedies against the checks that the code has.
func TestRemedies(t *testing.T) {
	checks := checksOf(t, filepath.Join("..", "..", "..", "..", ".."))
	if len(checks) < 200 {
		t.Fatalf("only %d checks were found", len(checks))
	}
	rows, reasons, used := map[string]remedy{}, map[string]string{}, map[string]bool{}
	for r, texts := range remedies {
		for check := range strings.FieldsSeq(texts) {
			if rows[check] != 0 || reasons[reasonOf(check)] != "" {
				t.Errorf("%s: it, or another check with its reason, is there twice", check)
			}
			rows[check], reasons[reasonOf(check)] = r, check
			if checks[check] == "" {
				t.Errorf("%s has a remedy, and no code has that check", check)
			}
			if got := remedyOf(reasonOf(check)); got != r {
				t.Errorf("%s: got remedy %d, want %d", check, got, r)
			}
		}
	}
	for check, folder := range checks {
		why, alone := neverDenied[check]
		if !alone {
			why = neverDenied[folder+"/"]
		}
		if row := rows[check]; row != 0 {
			if alone {
				t.Errorf("%s has a remedy, and a reason to have none", check)
			}
			continue
		}
		used[check], used[folder+"/"] = true, true
		if why == "" {
			t.Errorf("%s, of %s, has neither a remedy nor a reason to have none", check, folder)
		}
	}
	for name := range neverDenied {
		if !used[name] {
			t.Errorf("%s has a reason to have no remedy, and needs none", name)
		}
	}
	if remedyOf("UnknownReason") != unknownRemedy || remedyOf("") != unknownRemedy {
		t.Error("a remedy for an unknown reason")
	}
}

// TestChecksAreFound has the reader of checks find each form in which one is written.
func TestChecksAreFound(t *testing.T) {
	dir := t.TempDir()
	text := "package a\n\nconst A Check = \"a\"\nconst (\n\tB refusal.Check = \"b\"\n\tno = \"no\"\n)\nvar C = refusal.Check(\"c\")\nvar d = &refusal.Error{Check: \"d\", Got: \"no\"}\n"
	for name, file := range map[string]string{"a.go": text, "a_test.go": strings.ReplaceAll(text, "\"a\"", "\"of a test\""), "a.txt": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := slices.Sorted(maps.Keys(checksOf(t, dir))); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("got %v", got)
	}
}
