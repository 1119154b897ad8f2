package tpm

import (
	"crypto"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmlab/forger"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// The profile of the very issuer that certified the AK decides, and road EK has none.
func TestProfileOfStatement(t *testing.T) {
	strict, sha1, below := &tpmcert.Profile{}, &tpmcert.Profile{InsecureAllowSHA1Signature: true}, &tpmcert.Profile{AllowAKBelowOtherKeys: true}
	for name, c := range map[string]struct {
		road    attest.Road
		details Details
		want    refusal.Check
	}{
		"a primary key":             {attest.RoadAK, Details{SignatureHash: crypto.SHA256, AKPrimary: true, profile: strict}, ""},
		"over SHA-384":              {attest.RoadAK, Details{SignatureHash: crypto.SHA384, AKPrimary: true, profile: strict}, ""},
		"over SHA-1":                {attest.RoadAK, Details{SignatureHash: crypto.SHA1, AKPrimary: true, profile: strict}, statement.CheckSignatureHash},
		"over SHA-1, let through":   {attest.RoadAK, Details{SignatureHash: crypto.SHA1, AKPrimary: true, profile: sha1}, ""},
		"over SHA-1, by another's":  {attest.RoadAK, Details{SignatureHash: crypto.SHA1, AKPrimary: true, profile: below}, statement.CheckSignatureHash},
		"no primary key":            {attest.RoadAK, Details{SignatureHash: crypto.SHA256, profile: strict}, checkAKParent},
		"no primary key, admitted":  {attest.RoadAK, Details{SignatureHash: crypto.SHA256, profile: below}, ""},
		"no primary key, another's": {attest.RoadAK, Details{SignatureHash: crypto.SHA256, profile: sha1}, checkAKParent},
		"on road EK":                {attest.RoadEK, Details{SignatureHash: crypto.SHA256}, ""},
	} {
		t.Run(name, func(t *testing.T) { tpmlab.CheckOutcome(t, c.details.checkProfile(c.road), c.want) })
	}
}

// What is refused of an AK certificate before its chain.
func TestAKCertificatesBeforeTheirChain(t *testing.T) {
	root := tpmlab.CACert("root", "root", tpmlab.NewP256(t))
	issuers := []tpmcert.Issuer{{Roots: []*x509.Certificate{tpmlab.Parsed(t, root.Sign(t, root.Key))}, Profile: tpmcert.ProfileTCG()}}
	if _, err := tpmcert.VerifyAKCertificate(issuers, [][]byte{leafUnder(t, root)}, time.Time{}); err == nil || tpmlab.HasCheck(err) {
		t.Errorf("no time: %v", err)
	}
	if _, err := tpmcert.VerifyAKCertificate(nil, [][]byte{leafUnder(t, root)}, tpmlab.Time); err == nil || !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no issuers: %v", err)
	}
	for name, spki := range tpmlab.StrangeSPKIs() {
		t.Run(name, func(t *testing.T) {
			leaf := tpmlab.AKCert("root", tpmlab.NewP256(t).Public())
			leaf.SPKI, leaf.Algorithm = spki, tpmlab.AlgorithmOf(root.Key.Public())
			_, err := tpmcert.VerifyAKCertificate(issuers, [][]byte{leaf.Sign(t, root.Key)}, tpmlab.Time)
			tpmlab.CheckOutcome(t, err, refusal.Check("tpm-key-strength"))
		})
	}
	t.Run("two manufacturers", func(t *testing.T) {
		leaf := tpmlab.AKCert("root", tpmlab.NewP256(t).Public())
		leaf.Algorithm = tpmlab.AlgorithmOf(root.Key.Public())
		leaf.Extensions[3].Value = tpmlab.SAN(tpmlab.DirectoryName([]tpmlab.Attribute{{ID: oid.TCGAtTPMManufacturer, Value: "id:49465800"}}, []tpmlab.Attribute{{ID: oid.TCGAtTPMManufacturer, Value: "id:414D4400"}}))
		_, err := tpmcert.VerifyAKCertificate(issuers, [][]byte{leaf.Sign(t, root.Key)}, tpmlab.Time)
		tpmlab.CheckOutcome(t, err, refusal.Check("certificate-subject-alt-name"))
	})
}

// Half of what is to be verified is nothing.
func TestHalfOfACertifyStatement(t *testing.T) {
	f := forger.NewCertify(t, forger.NewAK(t, tpmlab.P256(), forger.ECDSA), tpmlab.P256b().Public())
	if got, err := statement.VerifyCertify(nil, f.Options); err == nil || got != nil {
		t.Error("no evidence: accepted")
	}
	if got, err := statement.VerifyCertify(&statement.CertifyEvidence{}, statement.CertifyOptions{}); err == nil || got != nil {
		t.Error("no options: accepted")
	}
}
