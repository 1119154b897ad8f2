package csr_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

func TestIssuedRecordClientOf(t *testing.T) {
	good := csr.IssuedRecord{CredentialID: goodCredential, NodeName: goodNode, SignerName: csr.SignerClientTPM}
	if !good.ClientOf(goodNode, goodCredential) {
		t.Fatal("good record refused")
	}
	for name, c := range map[string]struct {
		change     func(*csr.IssuedRecord)
		node       string
		credential string
	}{
		"another node":       {func(*csr.IssuedRecord) {}, "node-2", goodCredential},
		"another credential": {func(*csr.IssuedRecord) {}, goodNode, goodCredential + "0"},
		"no node":            {func(r *csr.IssuedRecord) { r.NodeName = "" }, "", goodCredential},
		"no credential":      {func(r *csr.IssuedRecord) { r.CredentialID = "" }, goodNode, ""},
		"serving":            {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerServingTPM }, goodNode, goodCredential},
		"recovery":           {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerRecoveryTPM }, goodNode, goodCredential},
		"insecure":           {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerClientInsecure }, goodNode, goodCredential},
		"no signer":          {func(r *csr.IssuedRecord) { r.SignerName = "" }, goodNode, goodCredential},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			c.change(&r)
			if r.ClientOf(c.node, c.credential) {
				t.Error("accepted")
			}
		})
	}
	if new(csr.IssuedRecord).ClientOf("", "") {
		t.Error("the zero record belongs to a node")
	}
}

func TestCredentialIDOfNoCertificate(t *testing.T) {
	if id := csr.CredentialID(nil); id != "" {
		t.Errorf("got %q", id)
	}
}

// TestAttestedRecord takes the certificates of a signer that is not ours: as
// kube-controller-manager makes them, and with one thing changed.
func TestAttestedRecord(t *testing.T) {
	f := goodFixture(csr.SignerKubeAPIServerClientKubelet, csr.RequesterBootstrap)
	f.request.Metadata.UID, *f.request.Spec.ExpirationSeconds = "request-1", 3540 // and a minute to sign
	checked := f.mustCheck(t)
	at := issueTime.Truncate(time.Second)
	attested := goodVerified(checked).Until(at.Add(time.Hour))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(change func(*x509.Certificate), public any) *x509.Certificate {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: at, NotAfter: at.Add(time.Hour), BasicConstraintsValid: true,
			Subject:  pkix.Name{CommonName: csr.NodeUserPrefix + goodNode, Organization: []string{"system:nodes"}},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		change(template)
		der, err := x509.CreateCertificate(rand.Reader, template, &x509.Certificate{Subject: pkix.Name{CommonName: "kubernetes"}}, public, key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	own := checked.PKCS10().CSR.PublicKey
	extension := func(id string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			e, err := oid.ProviderIDExtension(id)
			if err != nil {
				t.Fatal(err)
			}
			c.ExtraExtensions = []pkix.Extension{e}
		}
	}
	good := certificate(func(*x509.Certificate) {}, own)
	record, err := attested.Record(good)
	if err != nil || !record.ClientOf(goodNode, csr.CredentialID(good)) || record.Machine != goodIdentity || record.MachineUID != goodMachineUID ||
		record.ProviderID != goodProviderID || record.RequestUID != "request-1" || !record.NotBefore.Equal(at) || !record.NotAfter.Equal(good.NotAfter) {
		t.Errorf("got %+v, %v", record, err)
	}
	if _, err := attested.Record(certificate(extension(goodProviderID), own)); err != nil {
		t.Errorf("with its provider ID: %v", err)
	}
	azure := goodVerified(checked).Grant()
	azure.ProviderID, f.machine.ProviderID = "azure:///A", "azure:///A"
	if _, err := f.mustCheck(t).Vouch(goodIdentity, azure, nil).Record(certificate(extension("azure:///a"), own)); err != nil {
		t.Errorf("with its provider ID in another case: %v", err)
	}
	// Without the certificate it is a record that the certificate completes, later and elsewhere.
	requested, err := attested.Record(nil)
	if err != nil || requested.CredentialID != "" || requested.ClientOf(goodNode, "") || !requested.NotAfter.Equal(at.Add(time.Hour)) {
		t.Errorf("the request: got %+v, %v", requested, err)
	}
	if completed, err := requested.Completed(good); err != nil || !cmp.Equal(completed, record) {
		t.Errorf("completed: got %+v, %v", completed, err)
	}
	for name, bad := range map[string]*x509.Certificate{
		"none":                  nil,
		"another key":           certificate(func(*x509.Certificate) {}, key.Public()),
		"another node":          certificate(func(c *x509.Certificate) { c.Subject.CommonName = csr.NodeUserPrefix + "node-2" }, own),
		"another organization":  certificate(func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }, own),
		"a second organization": certificate(func(c *x509.Certificate) { c.Subject.Organization = append(c.Subject.Organization, "a") }, own),
		"one thing more":        certificate(func(c *x509.Certificate) { c.Subject.Locality = []string{"a"} }, own),
		"a CA":                  certificate(func(c *x509.Certificate) { c.IsCA = true }, own),
		"another usage":         certificate(func(c *x509.Certificate) { c.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth }, own),
		"a second usage":        certificate(func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) }, own),
		"an unknown usage":      certificate(func(c *x509.Certificate) { c.UnknownExtKeyUsage = append(c.UnknownExtKeyUsage, []int{1, 2, 3}) }, own),
		"another provider ID":   certificate(extension(goodProviderID+"0"), own),
		"a bad provider ID": certificate(func(c *x509.Certificate) {
			extension(goodProviderID)(c)
			c.ExtraExtensions[0].Value = []byte{5, 0}
		}, own),
		"a second too long": certificate(func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(time.Second) }, own),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := attested.Record(bad); bad != nil && !errors.Is(err, csr.CheckIssuedCertificate) {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
			if got, err := requested.Completed(bad); !errors.Is(err, csr.CheckIssuedCertificate) {
				t.Errorf("%s, later: got %+v, %v", name, got, err)
			}
		})
	}
	for name, nothing := range map[string]*csr.Attested{"nothing": nil, "no request": {}, "an empty request": new(csr.Checked).Vouch("x", csr.Grant{}, nil)} {
		t.Run(name, func(t *testing.T) {
			if got, err := nothing.Record(good); !errors.Is(err, csr.CheckProviderResult) {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
		})
	}
}

// TestRecordFiledWith: only a certificate's credential ID is recorded, of all that an API server may
// state.
func TestRecordFiledWith(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	for id, recorded := range map[string]bool{
		"X509SHA256=" + digest: true, "": false, digest: false, "X509SHA256=": false, "JTI=" + digest: false,
		"X509SHA256=" + digest[2:]: false, "X509SHA256=" + digest + "0a": false, "X509SHA256=" + strings.ToUpper(digest): false, "X509SHA256=" + digest[2:] + "gg": false,
	} {
		f := goodFixture(csr.SignerClientTPM, csr.RequesterNode)
		f.request.User.Extra = map[string][]string{csr.ExtraCredentialID: {id}}
		record, err := goodVerified(f.mustCheck(t)).Record(nil)
		if err != nil || record.FiledWith != id && recorded || record.FiledWith != "" && !recorded {
			t.Errorf("%q: got %q, %v, want it recorded: %t", id, record.FiledWith, err, recorded)
		}
	}
}

// The record is written before the certificate is returned.
func TestIssueRecords(t *testing.T) {
	checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
	ca := newCA(t, goodOptions())
	var written []csr.IssuedRecord
	var fault error
	verified := verifiedWith(checked, func(g *csr.Grant) {
		g.Record = func(_ context.Context, issued csr.IssuedRecord) error {
			written = append(written, issued)
			return fault
		}
	})
	issued := mustIssue(t, ca, verified)
	if len(written) != 1 || !cmp.Equal(written[0], issued.Record) {
		t.Errorf("got %+v, want %+v", written, issued.Record)
	}
	fault = errors.New("disk full")
	if issued, err := ca.Issue(t.Context(), verified); issued != nil || !errors.Is(err, fault) {
		t.Errorf("got %v, %v, want %v", issued, err, fault)
	}
}
