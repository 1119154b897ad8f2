package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
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
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := testkit.Must(csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{}))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until,
		Subject: pkix.Name{CommonName: csr.NodeUserPrefix + "node-1", Organization: []string{csr.NodesGroup}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	leaf := testkit.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return func(o *certificatesv1.CertificateSigningRequest) {
		approvedBy(o)
		o.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: csr.BlockRequest, Bytes: request})
		o.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf})
	}
}

// TestForgotten has a replica that has just begun to lead see certificates again whose
// records are gone: it is no alarm. A certificate that has never been recorded is one.
func TestForgotten(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	issued := func(n int, first time.Time) *membership.Record { // a minute apart
		r := &membership.Record{State: membership.StateBound, Issued: []csr.IssuedRecord{{RequestUID: "no certificate yet"}}}
		for i := range n - 1 {
			at := first.Add(time.Duration(i) * time.Minute)
			r.Issued = append(r.Issued, csr.IssuedRecord{CredentialID: "other", NotBefore: at, NotAfter: at.Add(time.Hour)})
		}
		return r
	}
	const most = membership.MaxIssued
	for name, row := range map[string]struct {
		record *membership.Record
		until  time.Time
		alarm  bool
	}{
		"no record of the node":               {nil, now.Add(time.Hour), true},
		"no record of the certificate":        {issued(most-1, now), now.Add(time.Hour), true},
		"as many as there are, all later":     {issued(most, now.Add(time.Minute)), now.Add(time.Hour), false},
		"as many, the last at the same time":  {issued(most, now.Add((2-most)*time.Minute)), now.Add(time.Hour), false},
		"as many, and all were issued before": {issued(most, now.Add((1-most)*time.Minute)), now.Add(time.Hour), true},
		"ended":                               {nil, now.Add(-time.Minute), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Registry = oneRecord{record: row.record} })
			w.create("request", builtIn, signed(t, row.until))
			w.mustReconcile("request", builtIn)
			if told := strings.Contains(strings.Join(w.events.notes, "\n"), reasonUnattested); told != row.alarm {
				t.Errorf("Events %q, want an alarm: %t", w.events.notes, row.alarm)
			}
		})
	}
}

// asked is a registry, or a cache of one, that counts.
type asked struct {
	membership.Registry
	record         *membership.Record
	err            error // of look-ups
	lost           bool  // the write
	lookups, binds int
}

func (r *asked) Lookup(context.Context, string) (*membership.Record, error) {
	r.lookups++
	return r.record, r.err
}

func (r *asked) Bind(_ context.Context, record *membership.Record, _ time.Time, issued *csr.IssuedRecord) (*membership.Record, error) {
	r.binds++
	if r.lost && record != r.record || issued.CredentialID == "" {
		return nil, &attest.Error{Check: membership.CheckRegistryConflict, Err: refusal.ErrRetry}
	}
	return record, nil
}

// raised is a registry with one record, whose last end is raised.
type raised struct {
	oneRecord
	ends []time.Time
	err  error
}

func (r *raised) Bind(_ context.Context, record *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error) {
	if issued == nil {
		r.ends = append(r.ends, lastEnd)
	}
	return record, r.err
}

// TestSignedLongAfterItsApproval: a certificate that outlives its grant is not recorded,
// and the name is kept until it has ended. If that cannot be written, it is tried again.
func TestSignedLongAfterItsApproval(t *testing.T) {
	for name, row := range map[string]struct {
		late   time.Duration
		err    error
		alarm  bool
		raised bool
	}{
		"in time":        {0, nil, false, false},
		"late":           {time.Second, nil, true, true},
		"late, and lost": {time.Second, &attest.Error{Check: membership.CheckRegistryConflict, Err: refusal.ErrRetry}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := new(raised)
			w := newWorld(t, func(c *Config) { c.Registry = r })
			admitted := w.now.Add(time.Hour).Truncate(time.Second)
			o := w.create("request", builtIn, signed(t, admitted.Add(row.late)))
			leaf := testkit.Must(leafOf(o.Status.Certificate))
			key, err := csr.SPKIHash(leaf.PublicKey)
			if err != nil {
				t.Fatal(err)
			}
			r.err, r.record = row.err, &membership.Record{State: membership.StateBound, LastEnd: admitted, Issued: []csr.IssuedRecord{
				{NodeName: "node-1", SignerName: builtIn, RequestUID: string(o.UID), SPKIHash: key, NotAfter: admitted}}}
			if err := w.reconciler.recordSigned(t.Context(), o); !errors.Is(err, row.err) || err != nil && row.err == nil {
				t.Errorf("got %v, want %v", err, row.err)
			}
			if (len(r.ends) != 0) != row.raised || row.raised && !r.ends[0].Equal(leaf.NotAfter) {
				t.Errorf("the last end was raised to %v, want %t", r.ends, row.raised)
			}
			if told := strings.Contains(strings.Join(w.events.notes, "\n"), reasonUnattested); told != row.alarm {
				t.Errorf("Events %q, want an alarm: %t", w.events.notes, row.alarm)
			}
		})
	}
}

// TestRecordedByCache records certificates by a cache, and asks the registry where the cache is behind.
// A certificate without an approval is recorded by neither.
func TestRecordedByCache(t *testing.T) {
	for name, row := range map[string]struct {
		cache          func(admitted, before *membership.Record) *asked
		never, lost    bool // admitted; the first write
		lookups, binds int  // of the registry
		alarm          bool
	}{
		"the cache has it":      {cache: func(admitted, _ *membership.Record) *asked { return &asked{record: admitted} }, binds: 1},
		"the cache is behind":   {cache: func(_, before *membership.Record) *asked { return &asked{record: before} }, lookups: 1, binds: 1},
		"the cache is empty":    {cache: func(_, _ *membership.Record) *asked { return new(asked) }, lookups: 1, binds: 1},
		"the cache fails":       {cache: func(_, _ *membership.Record) *asked { return &asked{err: refusal.ErrRetry} }, lookups: 1, binds: 1},
		"there is no cache":     {lookups: 1, binds: 1},
		"the write is lost":     {cache: func(admitted, _ *membership.Record) *asked { return &asked{record: admitted} }, lost: true, lookups: 1, binds: 2},
		"it was never admitted": {cache: func(_, before *membership.Record) *asked { return &asked{record: before} }, never: true, lookups: 1, alarm: true},
	} {
		t.Run(name, func(t *testing.T) {
			var r asked
			w := newWorld(t, func(c *Config) { c.Registry = &r })
			o := w.create("request", builtIn, signed(t, w.now.Add(time.Hour)))
			leaf := testkit.Must(leafOf(o.Status.Certificate))
			key := testkit.Must(csr.SPKIHash(leaf.PublicKey))
			record := func(uid string) *membership.Record {
				return &membership.Record{State: membership.StateBound, Issued: []csr.IssuedRecord{
					{NodeName: "node-1", SignerName: builtIn, RequestUID: uid, SPKIHash: key, NotAfter: w.now.Add(2 * time.Hour)}}}
			}
			before := record("uid-of-another")
			if r.record, r.lost = record(string(o.UID)), row.lost; row.never {
				r.record = before
			}
			if row.cache != nil {
				w.reconciler.c.Stale = row.cache(record(string(o.UID)), before)
			}
			w.mustReconcile("request", builtIn)
			if r.lookups != row.lookups || r.binds != row.binds {
				t.Errorf("%d look-ups and %d writes, want %d and %d", r.lookups, r.binds, row.lookups, row.binds)
			}
			if told := strings.Contains(strings.Join(w.events.notes, "\n"), reasonUnattested); told != row.alarm {
				t.Errorf("Events %q, want an alarm: %t", w.events.notes, row.alarm)
			}
		})
	}
}
