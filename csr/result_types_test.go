package csr

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/oid"
)

// TestNoFunctionReturnsAViolationPointer: a nil *Error that becomes an error is an
// error that is not nil. So every function here that can refuse returns an error.
func TestNoFunctionReturnsAViolationPointer(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			function, ok := n.(*ast.FuncType)
			if !ok || function.Results == nil {
				return true
			}
			for _, result := range function.Results.List {
				if pointer, ok := result.Type.(*ast.StarExpr); ok {
					if named, ok := pointer.X.(*ast.Ident); ok && named.Name == "Violation" {
						t.Errorf("%s: a function returns *Error, want error", name)
					}
				}
			}
			return true
		})
	}
}

// TestKeyRefusalsName says what people read of a key or signature that is not taken: its
// algorithm's name, not its bytes.
func TestKeyRefusalsName(t *testing.T) {
	point := element(3, []byte{0, 4}, make([]byte, 64))
	rsaSHA256 := sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0})
	for name, c := range map[string]struct {
		spki, algorithm []byte
		rule            Check
		want            string // a part of what was got
	}{
		"secp256k1":             {sequence(sequence(oidDER(oid.ECPublicKey), oidDER("\x2b\x81\x04\x00\x0a")), point), rsaSHA256, checkRequestKey, "on 1.3.132.0.10"},
		"RSASSA-PSS":            {sequence(sequence(oidDER(oid.RSASSAPSS)), point), rsaSHA256, checkRequestKey, "1.2.840.113549.1.1.10 "},
		"RSA without NULL":      {sequence(sequence(oidDER(oid.RSAEncryption)), point), rsaSHA256, checkRequestKey, "1.2.840.113549.1.1.1 rsaEncryption"},
		"a curve written out":   {sequence(sequence(oidDER(oid.ECPublicKey), sequence([]byte{2, 1, 1})), point), rsaSHA256, checkRequestKey, "1.2.840.10045.2.1 "},
		"no algorithm":          {sequence(sequence(), point), rsaSHA256, checkRequestKey, "malformed algorithm 3000"},
		"nothing":               {sequence(), rsaSHA256, checkRequestKey, "malformed SubjectPublicKeyInfo"},
		"a signature's SHA-1":   {goodDER(t).spki, sequence(oidDER(oid.ECDSAWithSHA1)), ruleSignatureAlgorithm, "1.2.840.10045.4.1 "},
		"a signature with NULL": {goodDER(t).spki, sequence(oidDER(oid.ECDSAWithSHA256), []byte{5, 0}), ruleSignatureAlgorithm, "1.2.840.10045.4.3.2 ecdsa-with-SHA256 ("},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodDER(t)
			r.spki, r.algorithm = c.spki, c.algorithm
			_, err := ParsePKCS10(r.bytes())
			v, ok := errors.AsType[*Error](err)
			if !ok || v.Check != c.rule || !strings.Contains(v.Got, c.want) {
				t.Errorf("got %v, want %s with %q", err, c.rule, c.want)
			}
			if ok && strings.ContainsAny(v.Got, "\\\"\x00\x03\x04") {
				t.Errorf("bytes as they came in %q", v.Got)
			}
		})
	}
}
