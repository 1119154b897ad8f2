package tpmcert

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Constraints above an intermediate that look at leaves hold from memory too: what
// is refused by a fresh issuer is refused by one that has seen a good leaf.
func TestPolicyConstraintsAreNotForgotten(t *testing.T) {
	requireExplicitPolicy := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 36}, Critical: true, Value: []byte{0x30, 3, 0x80, 1, 0}}
	policies := func(c *x509.Certificate) {
		p, err := x509.OIDFromInts([]uint64{1, 2, 3})
		testkit.NoError(t, err)
		c.Policies = []x509.OID{p}
	}
	root := tpmlab.Sign(t, nil, "root", nil)
	middle := tpmlab.Sign(t, root, "middle", func(c *x509.Certificate) {
		policies(c)
		c.ExtraExtensions = []pkix.Extension{requireExplicitPolicy}
	})
	good := tpmlab.Sign(t, middle, "leaf", func(c *x509.Certificate) { leafTemplate(c); policies(c) })
	bad := tpmlab.Sign(t, middle, "leaf", leafTemplate)
	i := issuerOf(t, root)
	for range 2 {
		if _, err := i.holds(presentedOf(t, good, middle), tpmlab.Time); err != nil {
			t.Fatal(err)
		}
		if _, err := i.holds(presentedOf(t, bad, middle), tpmlab.Time); !errors.Is(err, CheckCertificateChain) {
			t.Errorf("a leaf without policies: %v", err)
		}
	}
}

// The sender of a chain does not choose its cost: no name occurs twice, and no key
// is larger than any real one.
func TestChainsAreCheap(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	a := tpmlab.Sign(t, root, "A", nil)
	b := tpmlab.Sign(t, a, "B", nil)
	again := tpmlab.Sign(t, b, "A", nil)
	leaf := tpmlab.Sign(t, again, "leaf", leafTemplate)
	if _, err := issuerOf(t, root).holds(presentedOf(t, leaf, again, b, a), tpmlab.Time); !errors.Is(err, checkCertificateOrder) {
		t.Errorf("a name twice: %v", err)
	}
	huge := new(big.Int).Lsh(big.NewInt(1), tpmwire.MaxRSABits)
	p := presentedOf(t, tpmlab.Sign(t, tpmlab.Sign(t, root, "huge", nil), "leaf", leafTemplate))
	p.leaf.AuthorityKeyId = nil
	p.above = [][]byte{certificateWithModulus(t, "huge", huge.Add(huge, big.NewInt(1)))}
	if _, err := issuerOf(t, root).holds(p, tpmlab.Time); !errors.Is(err, refusal.Check("tpm-key-strength")) {
		t.Errorf("RSA of %d bits: %v", huge.BitLen(), err)
	}
}

// certificateWithModulus is a CA certificate whose key has that modulus. Its
// signature is not looked at.
func certificateWithModulus(t *testing.T, name string, n *big.Int) []byte {
	t.Helper()
	key, err := asn1.Marshal(struct {
		N *big.Int
		E int
	}{n, 65537})
	testkit.NoError(t, err)
	root := tpmlab.Sign(t, nil, "root", nil)
	small := tpmlab.Sign(t, root, name, nil).Cert
	algorithm := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}
	spki, err := asn1.Marshal(struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}{algorithm, asn1.BitString{Bytes: key, BitLength: 8 * len(key)}})
	testkit.NoError(t, err)
	parts := elements(t, small.RawTBSCertificate)
	parts[6] = spki // version, serial, algorithm, issuer, validity, subject, key
	body := sequence(t, parts...)
	outer := elements(t, small.Raw)
	return sequence(t, body, outer[1], outer[2])
}

// elements are the members of a SEQUENCE.
func elements(t *testing.T, der []byte) [][]byte {
	t.Helper()
	var outer asn1.RawValue
	if _, err := asn1.Unmarshal(der, &outer); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for rest := outer.Bytes; len(rest) > 0; {
		var one asn1.RawValue
		next, err := asn1.Unmarshal(rest, &one)
		testkit.NoError(t, err)
		out, rest = append(out, one.FullBytes), next
	}
	return out
}

func sequence(t *testing.T, members ...[]byte) []byte {
	t.Helper()
	der, err := asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: bytes.Join(members, nil)})
	testkit.NoError(t, err)
	return der
}

// Zero values refuse, and do not panic.
func TestZeroValues(t *testing.T) {
	ctx, request := context.Background(), &csr.Request{}
	for _, v := range []*attest.Verifier{nil, {}} {
		if _, err := v.Verify(ctx, request); err == nil {
			t.Error("Verify: accepted")
		}
		if _, err := v.Challenge(ctx, request); err == nil {
			t.Error("Challenge: accepted")
		}
	}
	if _, err := attest.AuthorizerFunc(nil).Authorize(ctx, nil); err == nil {
		t.Error("a nil AuthorizerFunc: no error")
	}
	if err := (*refusal.Error)(nil); err.Error() == "" || err.Unwrap() != nil || err.Reason() != "" {
		t.Error("a nil *Error")
	}
	if _, err := tpmkey.SoftwareKey(&ecdsa.PrivateKey{PublicKey: ecdsa.PublicKey{Curve: elliptic.P256()}}); err == nil {
		t.Error("a key without parts: accepted")
	}
	if (&statement.Public{}).SameKey(&ecdsa.PublicKey{Curve: elliptic.P256()}) {
		t.Error("a key without coordinates is the same")
	}
	if _, err := statement.VerifyCertify(nil, statement.CertifyOptions{}); !errors.Is(err, refusal.Check("certify-options")) {
		t.Errorf("no evidence: %v", err)
	}
	if _, err := statement.VerifyQuote(nil, statement.QuoteOptions{}); !errors.Is(err, refusal.Check("quote-options")) {
		t.Errorf("no quote: %v", err)
	}
	if _, err := statement.MarshalTCGAttestCertify(nil); !errors.Is(err, der.CheckEncoding) {
		t.Errorf("nil evidence: %v", err)
	}
}

// A node's text cannot break a line or move a cursor where an error is printed.
func TestErrorsPrint(t *testing.T) {
	err := &refusal.Error{Check: attest.CheckBindingCluster, Got: "a\nb\x1b[2J\u202e\xff", Want: "é c\r", Err: errors.New("x\x00y")}
	want := `binding-cluster: got a\nb\x1b[2J\u202e\xff, want é c\r: x\x00y`
	if got := err.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An identity source of the caller's refuses with an error of its own, and names
// machines in the canonical form.
func TestForeignIdentitySources(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	p := presentedOf(t, tpmlab.Sign(t, root, "leaf", leafTemplate))
	for name, c := range map[string]struct {
		source fixedIdentity
		ok     bool
	}{
		"good":       {fixedIdentity{id: "rack:3"}, true},
		"no kind":    {fixedIdentity{id: "rack3"}, false},
		"empty kind": {fixedIdentity{id: ":3"}, false},
		"empty name": {fixedIdentity{id: "rack:"}, false},
		"an error":   {fixedIdentity{err: errors.New("two racks")}, false},
		"nothing":    {fixedIdentity{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			profile := ProfileTCG()
			profile.Identity = []IdentitySource{c.source}
			v, err := NewAKVerifier([]Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: profile}})
			testkit.NoError(t, err)
			_, err = v.Verify(t.Context(), p, tpmlab.Time, nil)
			if c.ok && err != nil || !c.ok && (!errors.Is(err, attest.CheckIdentity) || csr.Decide(err).Verdict != csr.VerdictDeny) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

type fixedIdentity struct {
	id  attest.Identity
	err error
}

func (fixedIdentity) Kind() string { return "rack" }

func (f fixedIdentity) Identify(*x509.Certificate) (attest.Identity, error) { return f.id, f.err }

// A profile may list an extended key usage that crypto/x509 knows by name, and the
// reason that says most is given where several issuers refuse.
func TestProfilesAndIssuersTogether(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	expired := tpmlab.Sign(t, nil, "old root", func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(-time.Hour) })
	leaf := tpmlab.Sign(t, root, "leaf", func(c *x509.Certificate) {
		leafTemplate(c)
		c.UnknownExtKeyUsage, c.ExtKeyUsage = nil, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	profile := ProfileTCG()
	profile.ExtKeyUsage = []oid.OID{oid.KpServerAuth}
	if err := profile.check(leaf.Cert, &subjectAltName{}); err != nil {
		t.Errorf("serverAuth: %v", err)
	}
	under := tpmlab.Sign(t, expired, "leaf", leafTemplate)
	v := &AKVerifier{issuers: []*issuer{issuerOf(t, root), issuerOf(t, expired)}}
	if _, err := v.Verify(t.Context(), presentedOf(t, under), tpmlab.Time, nil); !errors.Is(err, checkCertificateExpired) {
		t.Errorf("a chain to an expired root: %v", err)
	}
}
