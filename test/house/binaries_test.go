package house_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// notLinked must not be reached from the packages that production programs import, on any
// platform, not even through others.
var notLinked = []string{
	"k8s.io", "sigs.k8s.io", "google.golang.org/grpc", "github.com/google/go-tpm-tools",
	"github.com/google/go-attestation",
	modulePath + "/tpmsim", "testing",
}

// mayLink lists the packages that link some of notLinked, and which.
var mayLink = map[string][]string{
	"tpmsim":                            {"github.com/google/go-tpm-tools", "testing"},
	"attest/attesttest":                 {"github.com/google/go-tpm-tools", "testing", modulePath + "/tpmsim"},
	"cloud/cloudtest":                   {"testing"},
	"bootstraptoken/bootstraptokentest": {"testing"},
	"claims/claimstest":                 {"testing"},
	"jws/jwstest":                       {"testing"},
}

// TestBinaries lists by the go command the packages that a program with one of the public packages
// gets.
func TestBinaries(t *testing.T) {
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			none(t, binaryProblems(listPackages(t, ".", target)))
		})
	}
}

func TestBinariesBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"attest/attest.go":      "package attest\nimport _ \"" + modulePath + "/internal/way\"\n",
		"internal/way/linux.go": "//go:build linux\n\npackage way\nimport _ \"" + modulePath + "/tpmsim\"\n",
		"internal/way/way.go":   "package way\n",
		"tpmsim/tpmsim.go":      "package tpmsim\nimport (\n_ \"google.golang.org/grpc\"\n_ \"testing\"\n)\n",
	})
	exactly(t, binaryProblems(listPackages(t, root, "linux/amd64")),
		"a program with attest gets google.golang.org/grpc",
		"a program with attest gets testing",
		"a program with attest gets "+modulePath+"/tpmsim",
		"a program with tpmsim gets google.golang.org/grpc",
	)
	exactly(t, binaryProblems(listPackages(t, root, "windows/amd64")),
		"a program with tpmsim gets google.golang.org/grpc",
	)
}

func binaryProblems(packages []goPackage) []string {
	var problems []string
	for _, p := range packages {
		if !p.public() {
			continue
		}
		for _, dep := range p.deps {
			if isBelow(dep, notLinked) && !isBelow(dep, mayLink[p.path]) {
				problems = append(problems, fmt.Sprintf("a program with %s gets %s", p.path, dep))
			}
		}
	}
	return problems
}

// isBelow reports whether the import path p is one of parents or a path under it.
func isBelow(p string, parents []string) bool {
	return slices.ContainsFunc(parents, func(parent string) bool {
		return p == parent || strings.HasPrefix(p, parent+"/")
	})
}
