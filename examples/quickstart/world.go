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
	"math/big"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// The world around: machines, an API server, a CA, and the story's printer. Programs of
// yours have better ones.

// instance is the n-th machine of the cloud. AK certificates name it.
func instance(n uint64) *oid.GCEInstance {
	return &oid.GCEInstance{
		Zone:          "europe-west1-b",
		ProjectNumber: 123456789012,
		ProjectID:     "example-project",
		InstanceID:    4711000000000000000 + n,
		InstanceName:  fmt.Sprintf("node-%d", n),
	}
}

func providerID(nodeName string) string { return "gce://example-project/europe-west1-b/" + nodeName }

// file does what the API server does with a request: it keeps it, with the time and
// the user that it has authenticated, here the holder of a bootstrap token.
func file(spec *csr.Spec, err error) (*csr.Request, error) {
	if err != nil {
		return nil, err
	}
	r := &csr.Request{Metadata: csr.Metadata{CreationTimestamp: time.Now().Truncate(time.Second)}, Spec: *spec}
	r.Spec.Username, r.Spec.Groups = csr.BootstrapUserPrefix+"abcdef", []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}
	return r, nil
}

// selfSigned makes the cluster's CA: of P-256, good for a day.
func selfSigned(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

// story prints what happens. Nothing in it is needed to use the packages.
type story struct {
	w       io.Writer
	err     error // of w
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

// start says that the next step begins now, and not where the last one was printed.
func (s *story) start() { s.started = time.Now() }

// step prints what has just been done, how long it took, and details: names and values
// by turns.
func (s *story) step(what string, details ...string) {
	took := time.Since(s.started)
	s.steps++
	s.printf("%2d  %-65s%8.2f ms\n", s.steps, what, took.Seconds()*1000)
	s.details(details...)
	s.start()
}

func (s *story) details(namesAndValues ...string) {
	for i := 0; i < len(namesAndValues); i += 2 {
		s.printf("    %-9s %s\n", namesAndValues[i], wrap(namesAndValues[i+1], 66, "\n"+strings.Repeat(" ", 14)))
	}
}

// refusal prints an attack that was refused. It returns an error if it was not, if
// nothing could be decided, or if it was refused by another check.
func (s *story) refusal(attack string, err error, want refusal.Check) error {
	decision := csr.Decide(err)
	switch {
	case decision.Verdict != csr.VerdictDeny:
		return fmt.Errorf("%s: got the verdict %s (%s), want a refusal", attack, decision.Verdict, decision.Message)
	case !errors.Is(err, want):
		return fmt.Errorf("%s: refused with %w, want %w", attack, err, want)
	}
	s.refused++
	details := []string{"check", string(want)}
	if e, ok := errors.AsType[*refusal.Error](err); ok {
		details = append(details, "got", e.Got)
		if e.Want != "" {
			details = append(details, "want", e.Want)
		}
		if e.Err != nil {
			details = append(details, "because", e.Err.Error())
		}
	}
	s.step("REFUSED  "+attack, details...)
	return nil
}

// end prints what the node has now, and what became of the attacks.
func (s *story) end(issued *csr.Issued) error {
	certificate := issued.Certificate
	id, err := oid.ParseProviderID(certificate.Extensions)
	if err != nil {
		return err
	}
	s.chapter("What node-1 has now")
	s.details(
		"subject", certificate.Subject.String(),
		"provider", id,
		"valid", certificate.NotBefore.Format(time.RFC3339)+" to "+certificate.NotAfter.Format(time.RFC3339),
		"machine", issued.Record.Machine)
	s.printf("\n1 certificate issued, %d attacks refused.\n", s.refused)
	return s.err
}

// wrap breaks a text between words, so that lines have at most width characters where
// the words allow.
func wrap(text string, width int, lineBreak string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i > 0 && column+1+len(word) > width:
			b.WriteString(lineBreak)
			column = 0
		case i > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
