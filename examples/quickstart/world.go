package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// The outside world: machines, an API server, a CA, and the story's printer. Your own
// programs have better ones.

// instance returns the n-th machine in the cloud. AK certificates name it.
func instance(n uint64) *oid.GCEInstance {
	return &oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: "example-project",
		InstanceID: 4711000000000000000 + n, InstanceName: fmt.Sprintf("node-%d", n)}
}

func providerID(nodeName string) string { return "gce://example-project/europe-west1-b/" + nodeName }

// file stores a request as the API server does: it stores it, with the time and
// the user that it has authenticated, here the holder of a bootstrap token.
func file(spec *csr.Spec) *csr.Request {
	by := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	return csr.Filed(spec, by, time.Now())
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// selfSigned makes the cluster's CA, valid for a day.
func selfSigned(name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, now := newKey(), time.Now()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return must(x509.ParseCertificate(der)), key
}

// failure is what ends the story early.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// caught turns a failure into an error. It is deferred.
func caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.error
	default:
		panic(r)
	}
}

// story prints what happens. Nothing in it is needed to use the packages.
type story struct {
	w       io.Writer
	err     error // from w
	steps   int
	refused int
	started time.Time // of the step that will be printed next
}

func (s *story) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *story) chapter(title string) {
	s.printf("\n%s\n\n", title)
	s.start()
}

// start says that the next step begins now, and not when the last one was printed.
func (s *story) start() { s.started = time.Now() }

// step prints the step, how long it took, and details: alternating names and
// values.
func (s *story) step(what string, details ...string) {
	took := time.Since(s.started)
	s.steps++
	s.printf("%2d  %-65s%8.2f ms\n", s.steps, what, took.Seconds()*1000)
	s.details(details...)
	s.start()
}

// details prints the values that are not empty, with their names.
func (s *story) details(namesAndValues ...string) {
	for pair := range slices.Chunk(namesAndValues, 2) {
		if pair[1] != "" {
			s.printf("    %-9s %s\n", pair[0], wrap(pair[1], 66, "\n"+strings.Repeat(" ", 14)))
		}
	}
}

// mustRefuse ends the story if an attack was not refused, or nothing was decided. It
// returns the name of the check that refused it.
func mustRefuse(attack string, err error) (reason string) {
	if err == nil {
		check(fmt.Errorf("%s: got a certificate, want a refusal", attack))
	}
	decision := csr.Decide(err)
	if decision.Verdict != csr.VerdictDeny {
		check(fmt.Errorf("%s: got the verdict %s (%s), want a refusal", attack, decision.Verdict, decision.Message))
	}
	return decision.Reason
}

// refusal prints an attack that was refused. If that was by a check other than the one meant
// for the attack, the story ends.
func (s *story) refusal(attack string, err error, want refusal.Check) {
	mustRefuse(attack, err)
	if !errors.Is(err, want) {
		check(fmt.Errorf("%s: refused with %w, want %w", attack, err, want))
	}
	s.refused++
	refused, _ := errors.AsType[*refusal.Error](err)
	s.step("REFUSED  "+attack, "check", string(want), "got", refused.Got, "want", refused.Want)
}

// end prints the node's certificate, and the outcome of the attacks.
func (s *story) end(issued *csr.Issued) {
	certificate := issued.Certificate
	s.chapter("What node-1 has now")
	s.details(
		"subject", certificate.Subject.String(),
		"provider", must(oid.ParseProviderID(certificate.Extensions)),
		"valid", certificate.NotBefore.Format(time.RFC3339)+" to "+certificate.NotAfter.Format(time.RFC3339),
		"machine", issued.Record.Machine)
	s.printf("\n1 certificate issued, %d attacks refused.\n", s.refused)
}

// wrap breaks a text between words, so that lines have at most width characters if the
// words allow.
func wrap(text string, width int, lineBreak string) string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return strings.Join(lines, lineBreak)
}
