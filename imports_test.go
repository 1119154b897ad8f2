package nodeattest_test

import (
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport says which packages of this module the code of a package, tests aside,
// may import. Packages below internal that are not named here belong to nobody:
// every package but the examples may import them. A package without a rule is a
// problem: whoever adds one decides where it stands.
var mayImport = map[string][]string{
	".":                 nil,
	"refusal":           nil,
	"secret":            nil,
	"oid":               nil,
	"csr":               {"oid"},
	"attest":            {"csr", "oid"},
	"attest/attesttest": {"attest", "attest/membership", "csr", "internal/forge", "oid", "tpmsim"},
	"attest/eventlog":   {"attest"},
	"attest/membership": {"attest", "csr", "oid"},
	"jws":               nil,
	"bootstraptoken":    {"jws"},
	"claims":            {"jws", "oid"},
	"tpmsim":            {"oid"},

	"bootstraptoken/bootstraptokentest": {"attest", "bootstraptoken", "jws", "tpmsim"},
	"attest/membership/boltregistry":    {"attest", "attest/membership", "csr", "oid"},
	"internal/forge":                    {"attest", "csr", "oid", "tpmsim"},
	"internal/vector":                   {"attest", "attest/eventlog", "attest/membership", "claims", "csr", "internal/forge", "jws", "oid"},
	"internal/vectors":                  {"attest", "claims", "csr", "internal/forge", "internal/vector", "oid", "tpmsim"},
	"internal/*":                        {"oid"},
	"examples/*":                        {"attest", "attest/attesttest", "attest/membership", "attest/membership/boltregistry", "bootstraptoken", "bootstraptoken/bootstraptokentest", "claims", "csr", "jws", "oid", "tpmsim"},
}

// forAll stand below every other package.
var forAll = []string{"refusal", "secret"}

// A ban forbids an import, and all below it, to all packages but some.
type ban struct {
	path   string
	exact  bool     // not what is below it
	except []string // folders as in mayImport
	mains  bool     // programs may
	tests  bool     // tests may
	why    string
}

var bans = []ban{
	{path: "k8s.io", why: "the core module has no Kubernetes dependency"},
	{path: "sigs.k8s.io", why: "the core module has no Kubernetes dependency"},
	{path: "google.golang.org/grpc", why: "the core module has no gRPC dependency"},
	{path: "github.com/google/go-tpm-tools", except: []string{"tpmsim"}, tests: true, why: "the simulator is for tests"},
	{path: "github.com/google/go-attestation", except: []string{"attest/eventlog"}, tests: true, why: "it has a known vulnerability without a fix, which lint.sh accepts for tests and for the replay of event logs"},
	{path: "go.etcd.io/bbolt", except: []string{"attest/membership/boltregistry"}, why: "a database is linked by who keeps records in it alone"},
	{path: "testing", except: []string{"tpmsim", "attest/attesttest", "bootstraptoken/bootstraptokentest"}, tests: true, why: "it belongs to tests and the packages for them"},
	{path: "flag", mains: true, tests: true, why: "a library takes no flags"},
	{path: "log", exact: true, mains: true, tests: true, why: "a library has no global logger"},
}

// notInBinaries must not be reached from the packages that production programs
// import, on any platform, not even through others.
var notInBinaries = []string{
	"k8s.io", "sigs.k8s.io", "google.golang.org/grpc", "github.com/google/go-tpm-tools",
	"github.com/google/go-attestation", "go.etcd.io/bbolt", modulePath + "/tpmsim", "testing",
}

func TestImports(t *testing.T) {
	none(t, importProblems(loadTree(t, ".")))
}

func TestImportsBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"doc.go":                              "package nodeattest\n",
		"oid/oid.go":                          "package oid\nimport _ \"" + modulePath + "/csr\"\n",
		"csr/csr.go":                          "package csr\nimport _ \"k8s.io/api/certificates/v1\"\n",
		"csr/csr_test.go":                     "package csr\nimport (\n_ \"flag\"\n_ \"" + modulePath + "/tpmsim\"\n)\n",
		"csr/kube_test.go":                    "package csr\nimport _ \"k8s.io/client-go/rest\"\n",
		"csr/log_windows.go":                  "package csr\nimport (\n_ \"log\"\n_ \"log/slog\"\n)\n",
		"attest/attest.go":                    "package attest\nimport _ \"" + modulePath + "/tpmsim\"\n",
		"attest/sim.go":                       "package attest\nimport _ \"github.com/google/go-tpm-tools/simulator\"\n",
		"attest/attesttest/a.go":              "package attesttest\nimport (\n_ \"" + modulePath + "/attest\"\n_ \"testing\"\n)\n",
		"attest/flag.go":                      "package attest\nimport _ \"flag\"\n",
		"attest/membership/m.go":              "package membership\nimport (\n_ \"go.etcd.io/bbolt\"\n_ \"" + modulePath + "/attest/membership/boltregistry\"\n)\n",
		"attest/membership/boltregistry/b.go": "package boltregistry\nimport (\n_ \"go.etcd.io/bbolt\"\n_ \"" + modulePath + "/attest/membership\"\n)\n",
		"attest/log.go":                       "package attest\nimport _ \"github.com/google/go-attestation/attest\"\n",
		"attest/eventlog/log.go":              "package eventlog\nimport _ \"github.com/google/go-attestation/attest\"\n",
		"internal/der/der.go":                 "package der\nimport _ \"" + modulePath + "/attest\"\n",
		"examples/quickstart/main.go":         "package main\nimport (\n_ \"flag\"\n_ \"" + modulePath + "/internal/der\"\n)\n",
		"newcomer/newcomer.go":                "package newcomer\n",
		"kube/go.mod":                         "module " + modulePath + "/kube\n",
		"kube/kube.go":                        "package kube\nimport _ \"k8s.io/client-go/rest\"\n",
		"tpmsim/tpmsim.go":                    "package tpmsim\nimport _ \"github.com/google/go-tpm-tools/simulator\"\n",
		"tpmsim/internal/swtpm/run.go":        "package swtpm\n",
	})
	exactly(t, importProblems(loadTree(t, root)),
		"oid/oid.go: oid must not import csr",
		"csr/csr.go: k8s.io/api/certificates/v1",
		"csr/kube_test.go: k8s.io/client-go/rest",
		"csr/log_windows.go: log:",
		"attest/attest.go: attest must not import tpmsim",
		"attest/sim.go: github.com/google/go-tpm-tools/simulator",
		"attest/flag.go: flag:",
		"attest/membership/m.go: go.etcd.io/bbolt",
		"attest/membership/m.go: attest/membership must not import attest/membership/boltregistry",
		"attest/log.go: github.com/google/go-attestation/attest",
		"internal/der/der.go: internal/der must not import attest",
		"examples/quickstart/main.go: examples/quickstart must not import internal/der",
		"newcomer: no import rule",
	)
}

// TestBinaries asks the go command what a program that imports the core gets.
func TestBinaries(t *testing.T) {
	tr := loadTree(t, ".")
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			none(t, binaryProblems(t, tr, target, "oid", "csr", "attest", "attest/membership", "jws", "bootstraptoken", "claims"))
		})
	}
}

func TestBinariesBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"attest/attest.go":      "package attest\nimport _ \"" + modulePath + "/internal/way\"\n",
		"internal/way/linux.go": "//go:build linux\n\npackage way\nimport _ \"" + modulePath + "/tpmsim\"\n",
		"internal/way/way.go":   "package way\n",
		"tpmsim/tpmsim.go":      "package tpmsim\nimport _ \"google.golang.org/grpc\"\n",
	})
	tr := loadTree(t, root)
	exactly(t, binaryProblems(t, tr, "linux/amd64", "attest"),
		"linux/amd64: a program with attest gets google.golang.org/grpc",
		"linux/amd64: a program with attest gets "+modulePath+"/tpmsim",
	)
	exactly(t, binaryProblems(t, tr, "windows/amd64", "attest"))
}

func importProblems(tr *tree) []string {
	var problems []string
	for _, p := range tr.packages {
		rule := ruleOf(p.dir)
		allowed, ok := mayImport[rule]
		if !ok {
			problems = append(problems, p.dir+": no import rule for this package in mayImport")
			continue
		}
		for _, f := range p.files {
			for _, spec := range f.syntax.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					problems = append(problems, fmt.Sprintf("%s: %v", f.path, err))
					continue
				}
				if own, isOwn := strings.CutPrefix(imported, modulePath+"/"); isOwn && !f.test && !ownAllowed(p.dir, own, allowed) {
					problems = append(problems, fmt.Sprintf("%s: %s must not import %s", f.path, p.dir, own))
				}
				problems = append(problems, banned(p, f, imported)...)
			}
		}
	}
	return problems
}

// ruleOf is the key of mayImport for a folder.
func ruleOf(dir string) string {
	if _, ok := mayImport[dir]; ok {
		return dir
	}
	if i := strings.Index("/"+dir, "/internal/"); i > 0 {
		return ruleOf(dir[:i-1]) // part of the package above it
	}
	first, _, _ := strings.Cut(dir, "/")
	return first + "/*"
}

func ownAllowed(importer, imported string, allowed []string) bool {
	if slices.Contains(allowed, imported) || slices.Contains(forAll, imported) {
		return true
	}
	if strings.Contains(imported, "/internal/") {
		return true // the compiler enforces who may
	}
	return ruleOf(imported) == "internal/*" && !strings.HasPrefix(importer, "examples/")
}

func banned(p *sourcePackage, f *sourceFile, imported string) []string {
	var problems []string
	for _, b := range bans {
		if !below(imported, b.path) || b.exact && imported != b.path || b.tests && f.test || b.mains && p.command() || slices.Contains(b.except, ruleOf(p.dir)) {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s: %s: %s", f.path, imported, b.why))
	}
	return problems
}

// below reports whether the import path p is parent or a path under it.
func below(p, parent string) bool {
	return p == parent || strings.HasPrefix(p, parent+"/")
}

func binaryProblems(t *testing.T, tr *tree, target string, packages ...string) []string {
	t.Helper()
	var problems []string
	for _, pkg := range packages {
		if !slices.ContainsFunc(tr.packages, func(p *sourcePackage) bool { return p.dir == pkg }) {
			continue
		}
		// -e: a fixture's imports need not exist.
		out, err := goCommand(tr.root, target, "list", "-e", "-deps", "-f", "{{.ImportPath}}", "./"+pkg)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, dep := range strings.Fields(out) {
			if slices.ContainsFunc(notInBinaries, func(bad string) bool { return below(dep, bad) }) {
				problems = append(problems, fmt.Sprintf("%s: a program with %s gets %s", target, pkg, dep))
			}
		}
	}
	return problems
}

// goCommand runs the go command in root, for a platform and without cgo where
// target is not empty.
func goCommand(root, target string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.FromSlash(path.Clean(root))
	cmd.Env = cmd.Environ()
	if target != "" {
		goos, goarch, _ := strings.Cut(target, "/")
		cmd.Env = append(cmd.Env, "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
