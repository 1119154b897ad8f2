package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// oneRecord is a registry with one record.
type oneRecord struct {
	membership.Registry
	record *membership.Record
}

func (r oneRecord) Lookup(context.Context, string) (*membership.Record, error) { return r.record, nil }

// signed makes a request with a certificate until a time.
func signed(t *testing.T, until time.Time) func(o *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until}
	leaf, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *certificatesv1.CertificateSigningRequest) {
		approvedBy(o)
		o.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: csr.BlockRequest, Bytes: request})
		o.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf})
	}
}

// TestForgotten has a replica that has just begun to lead see certificates again whose
// records are gone: it is no alarm. A certificate that has never been recorded is one.
func TestForgotten(t *testing.T) {
	now := time.Now()
	ending := func(n int, first time.Time) *membership.Record {
		r := &membership.Record{State: membership.StateBound}
		for i := range n {
			r.Issued = append(r.Issued, csr.IssuedRecord{CredentialID: "other", NotAfter: first.Add(time.Duration(i) * time.Minute)})
		}
		return r
	}
	for name, row := range map[string]struct {
		record *membership.Record
		until  time.Time
		alarm  bool
	}{
		"no record of the node":            {nil, now.Add(time.Hour), true},
		"no record of the certificate":     {ending(membership.MaxIssued-1, now.Add(time.Hour)), now.Add(30 * time.Minute), true},
		"as many as there are":             {ending(membership.MaxIssued, now.Add(time.Hour)), now.Add(30 * time.Minute), false},
		"as many, and some that end first": {ending(membership.MaxIssued, now.Add(time.Hour)), now.Add(61 * time.Minute), true},
		"ended":                            {nil, now.Add(-time.Minute), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Registry = oneRecord{record: row.record} })
			w.create("request", builtIn, signed(t, row.until))
			w.mustReconcile("request", builtIn)
			if told := strings.Contains(strings.Join(w.events.notes, "\n"), ReasonUnattested); told != row.alarm {
				t.Errorf("Events %q, want an alarm: %t", w.events.notes, row.alarm)
			}
		})
	}
}
