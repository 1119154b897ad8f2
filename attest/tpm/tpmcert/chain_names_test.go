package tpmcert

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// spelt is the CA as one whose certificates spell its name in another way than its own does.
func spelt(ca *tpmlab.CA, tag int, name string) *tpmlab.CA {
	other := *ca.Cert
	other.RawSubject = nameOf(text(tag, name))
	return &tpmlab.CA{Cert: &other, Key: ca.Key}
}

// named is an edit that gives a certificate a subject of that string type.
func named(tag int, name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.RawSubject = nameOf(text(tag, name)) }
}

// leafOf is a leaf for the road, by the CA.
func leafOf(t *testing.T, road attest.Road, ca *tpmlab.CA) *x509.Certificate {
	t.Helper()
	if road == attest.RoadEK {
		return tpmlab.EKCertificate(t, ca, tpmlab.NewP256(t).Public(), nil)
	}
	return tpmlab.Sign(t, ca, "leaf", leafTemplate).Cert
}

// underRoots verifies a node's certificates on one of the roads.
func underRoots(road attest.Road, roots, intermediates []*x509.Certificate, sent ...*x509.Certificate) ([]*x509.Certificate, error) {
	if road == attest.RoadAK {
		ak, err := VerifyAKCertificate([]Issuer{{Roots: roots, Intermediates: intermediates, Profile: ProfileTCG()}}, CertificatesDER(sent), tpmlab.Time)
		if err != nil {
			return nil, err
		}
		return ak.Chain, nil
	}
	v, err := NewEKVerifier(EKVerifierConfig{Issuers: []EKIssuer{{Roots: roots, Intermediates: intermediates, Profile: EKProfileTCG()}}})
	if err != nil {
		return nil, err
	}
	facts, err := verifyAt(v, tpmlab.Time, sent...)
	if err != nil {
		return nil, err
	}
	return facts.Chain, nil
}

// A certificate that spells its issuer's name in another way than the issuer does names it
// still (RFC 5280, 7.1): AMD, STMicroelectronics and others have such chains. A name that
// means something else does not.
func TestIssuersInAnotherSpelling(t *testing.T) {
	for name, c := range map[string]struct {
		tag  int
		text string
		want refusal.Check
	}{
		"the same":               {19, "vendor 1", ""},
		"a UTF8String":           {12, "vendor 1", ""},
		"another case":           {12, "VENDOR 1", ""},
		"other white space":      {19, " vendor   1 ", ""},
		"a BMPString":            {30, "\x00v\x00e\x00n\x00d\x00o\x00r\x00 \x001", ""},
		"another name":           {19, "vendor 2", CheckCertificateChain},
		"no space":               {12, "vendor1", CheckCertificateChain},
		"a letter that looks so": {12, "vend\u043er 1", CheckCertificateChain},
	} {
		for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
			for _, constrained := range []bool{false, true} { // then crypto/x509 looks at the chain, too
				t.Run(name+"/"+road.String(), func(t *testing.T) {
					root := tpmlab.Sign(t, nil, "", func(ca *x509.Certificate) {
						named(19, "vendor 1")(ca)
						if constrained {
							ca.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 36}, Critical: true, Value: []byte{0x30, 3, 0x80, 1, 5}}}
						}
					})
					upper := tpmlab.Sign(t, spelt(root, c.tag, c.text), "", named(19, "family"))
					lower := tpmlab.Sign(t, spelt(upper, 12, "Family"), "", named(12, "line"))
					leaf := leafOf(t, road, spelt(lower, 19, "LINE"))
					_, err := underRoots(road, []*x509.Certificate{root.Cert}, nil, leaf, lower.Cert, upper.Cert)
					tpmlab.ExpectCheck(t, err, c.want)
					chain, err := underRoots(road, []*x509.Certificate{root.Cert}, []*x509.Certificate{upper.Cert, lower.Cert}, leaf)
					tpmlab.ExpectCheck(t, err, c.want)
					if err == nil && (len(chain) != 4 || !chain[1].Equal(lower.Cert) || !bytes.Equal(chain[3].RawSubject, root.Cert.RawSubject)) {
						t.Errorf("a chain of %d, or of other certificates", len(chain))
					}
				})
			}
		}
	}
}

// A root that spells its name twice in two ways is a root still: no issuer of the node's
// certificates, nor an intermediate of the control plane, and the node does not send it.
func TestRootsInTwoSpellings(t *testing.T) {
	root := tpmlab.Sign(t, nil, "", named(19, "vendor"))
	twice := tpmlab.Sign(t, &tpmlab.CA{Cert: spelt(root, 12, "VENDOR").Cert, Key: root.Key}, "", named(19, "vendor"))
	leaf := leafOf(t, attest.RoadAK, twice)
	trusted := []*x509.Certificate{tpmlab.Sign(t, nil, "another root", nil).Cert}
	_, err := underRoots(attest.RoadAK, trusted, nil, leaf, twice.Cert)
	tpmlab.ExpectCheck(t, err, checkCertificateOrder)
	_, err = underRoots(attest.RoadAK, trusted, []*x509.Certificate{twice.Cert}, leaf)
	tpmlab.ExpectCheck(t, err, CheckCertificateChain)
	if above := ChainAbove(leaf, []*x509.Certificate{twice.Cert}); len(above) != 0 {
		t.Errorf("the node would send %d certificates above the leaf", len(above))
	}
}

// The node picks the certificates above a leaf by the meaning of names.
func TestChainAboveInAnotherSpelling(t *testing.T) {
	root := tpmlab.Sign(t, nil, "", named(19, "vendor"))
	middle := tpmlab.Sign(t, spelt(root, 12, "Vendor"), "", named(19, "family"))
	leaf := leafOf(t, attest.RoadEK, spelt(middle, 12, "FAMILY"))
	above := ChainAbove(leaf, []*x509.Certificate{root.Cert, tpmlab.Sign(t, root, "famili", nil).Cert, middle.Cert})
	if len(above) != 1 || !bytes.Equal(above[0], middle.Cert.Raw) {
		t.Errorf("the node would send %d certificates above the leaf, want the intermediate", len(above))
	}
}

// Of the vendors' own certificates, these name their issuers in another spelling than the
// issuers themselves.
func TestVendorsNames(t *testing.T) {
	roots, intermediates := vendorCAs(t)
	var otherwise []string
	for _, c := range intermediates {
		for _, issuer := range append(roots, intermediates...) {
			if !bytes.Equal(c.RawIssuer, issuer.RawSubject) && dn.NamesIssuer(c, issuer) && len(c.AuthorityKeyId) != 0 &&
				issuer.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil {
				otherwise = append(otherwise, c.Subject.CommonName)
			}
		}
	}
	slices.Sort(otherwise)
	want := []string{"PRG-PHX", "PRG-RPL", "STM TPM ECC Intermediate CA 02", "STM TPM ECC Intermediate CA 03",
		"STM TPM ECC384 Intermediate CA 01", "STM TPM ECC384 Intermediate CA 02"}
	if got := slices.Compact(otherwise); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
