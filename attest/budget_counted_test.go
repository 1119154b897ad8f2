package attest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// Every call that makes a public-key operation stands in this list, and what calls it
// counts it first: a new one must be counted too.
func TestPublicKeyOperationsAreCounted(t *testing.T) {
	want := map[string][]string{
		"CheckSignature": {"checkLink", "challenge", "verify", "checkSignature", "Verify", "VerifyCertify", "VerifyQuote", "examine", "crl.go"},
		"checkSignature": {"challenge", "verify", "Verify", "VerifyCertify", "VerifyQuote"},
		"VerifyPKCS1v15": {"checkLink", "signature.go", "tpm_signature.go", "crl.go"},
		"VerifyPSS":      {"signature.go", "tpm_signature.go"},
		"VerifyASN1":     {"signature.go", "tpm_signature.go"},
		"makeCredential": {"Seal"},
		"checkLink":      {"link"},
	}
	files := token.NewFileSet()
	var names []string
	for _, folder := range []string{"*.go", "document/*.go", "tpm/*.go", "tpm/*/*.go"} {
		found := testkit.Must(filepath.Glob(folder))
		names = append(names, found...)
	}
	found := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := testkit.Must(parser.ParseFile(files, name, nil, 0))
		for _, decl := range file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				called := ""
				switch f := call.Fun.(type) {
				case *ast.Ident:
					called = f.Name
				case *ast.SelectorExpr:
					called = f.Sel.Name
				}
				allowed, listed := want[called]
				if listed && !slices.Contains(allowed, function.Name.Name) && !slices.Contains(allowed, filepath.Base(name)) {
					t.Errorf("%s calls %s at %s", function.Name.Name, called, files.Position(call.Pos()))
				}
				if listed {
					found++
				}
				return true
			})
		}
	}
	if found < 8 {
		t.Errorf("%d calls found", found)
	}
}
