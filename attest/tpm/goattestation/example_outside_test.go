package goattestation_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"log"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/goattestation"
	"github.com/nodeattest/nodeattest/csr"
)

// Left out of the examples: the cluster's CA, the user of a bootstrap token, and go-attestation
// on the simulator.

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func open(machine transport.TPM) (*goattest.TPM, error) {
	return goattest.OpenTPM(&goattest.OpenConfig{CommandChannel: must(goattestation.NewChannel(machine, nil))})
}

var bootstrapper = csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}

var (
	clusterKey = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	clusterCA  = must(x509.CreateCertificate(rand.Reader, caTemplate, caTemplate, clusterKey.Public(), clusterKey))
	caTemplate = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
)

// A program on go-attestation becomes a join by at most 25 new lines: the examples' bodies, line by
// line.
func TestLinesToJoin(t *testing.T) {
	alone, join := body(t, "example_alone_test.go"), body(t, "example_test.go")
	kept := commonLines(alone, join)
	t.Logf("%d lines alone, %d in a join: %d stay, %d go, %d come", len(alone), len(join), kept, len(alone)-kept, len(join)-kept)
	if kept < 4 || len(join)-kept > 25 {
		t.Error("more than 25 lines come, or fewer than 4 stay")
	}
}

// body is the code of an example: the lines of its function that are neither empty nor comments.
func body(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(text), "() {\n")
	if !found {
		t.Fatalf("%s has no function", name)
	}
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" && line != "}" && !strings.HasPrefix(line, "//") {
			lines = append(lines, line)
		}
	}
	return lines
}

// commonLines is the length of the longest common subsequence.
func commonLines(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, line := range a {
		last := slices.Clone(row)
		for n := range b {
			if row[n+1] = max(row[n], last[n+1]); b[n] == line {
				row[n+1] = last[n] + 1
			}
		}
	}
	return row[len(b)]
}
