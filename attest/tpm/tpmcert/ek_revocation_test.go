package tpmcert

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// listing trusts the roots, with revocation lists for the first of two issuers.
func listing(t testing.TB, p EKProfile, store *CRLStore, roots ...*tpmlab.CA) EKVerifierConfig {
	t.Helper()
	c := trusting(p, roots...)
	c.Issuers[0].CRLs = store
	return c
}

func storeOf(t testing.TB, lists ...[]byte) *CRLStore {
	t.Helper()
	s, err := NewCRLStore(lists...)
	testkit.NoError(t, err)
	return s
}

// nameOf is a Name of one RDN with one attribute for each value.
func nameOf(values ...asn1.RawValue) []byte {
	var set []asn1.RawValue
	for n, v := range values {
		full, _ := asn1.Marshal(struct {
			ID asn1.ObjectIdentifier
			V  asn1.RawValue
		}{asn1.ObjectIdentifier{2, 5, 4, 3 + 7*n}, v})
		set = append(set, asn1.RawValue{FullBytes: full})
	}
	inner, _ := asn1.MarshalWithParams(set, "set")
	name, _ := asn1.Marshal([]asn1.RawValue{{FullBytes: inner}})
	return name
}

func text(tag int, value string) asn1.RawValue { return asn1.RawValue{Tag: tag, Bytes: []byte(value)} }

// A CA's list counts however the list spells the CA's name: the revoked EK is refused,
// another one is not.
func TestRevokedBySpelling(t *testing.T) {
	rootName := nameOf(text(19, "Root of  EKs"), text(19, "Example"))
	root := tpmlab.Sign(t, nil, "", func(c *x509.Certificate) { crlSigner(c); c.RawSubject = rootName })
	leaf := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil)
	for name, c := range map[string]struct {
		issuer []byte
		same   bool
	}{
		"as in the certificate":   {rootName, true},
		"UTF8String":              {nameOf(text(12, "Root of  EKs"), text(12, "Example")), true},
		"IA5String":               {nameOf(text(22, "Root of  EKs"), text(22, "Example")), true},
		"T61String":               {nameOf(text(20, "Root of  EKs"), text(20, "Example")), true},
		"BMPString":               {nameOf(text(30, "\x00R\x00o\x00o\x00t\x00 \x00o\x00f\x00 \x00E\x00K\x00s"), text(19, "Example")), true},
		"another case":            {nameOf(text(19, "ROOT OF EKS"), text(12, "example")), true},
		"other white space":       {nameOf(text(19, " Root of EKs "), text(12, "Example  ")), true},
		"attributes in any order": {nameOf(text(12, "Root of EKs"), text(19, "Example")), true},
		"another name":            {nameOf(text(19, "Root of EK"), text(19, "Example")), false},
		"no white space":          {nameOf(text(19, "RootofEKs"), text(19, "Example")), false},
		"an attribute less":       {nameOf(text(19, "Root of EKs")), false},
	} {
		t.Run(name, func(t *testing.T) {
			signer := &tpmlab.CA{Cert: renamedCA(root.Cert, ""), Key: root.Key}
			signer.Cert.RawSubject = c.issuer
			config := listing(t, EKProfileTCG(), storeOf(t, crlOf(t, signer, nil, 77)), root)
			v, err := NewEKVerifier(config)
			if !c.same {
				if !errors.Is(err, checkCRL) {
					t.Fatalf("got %v, want %s: no certificate would find this list", err, checkCRL)
				}
				return
			}
			testkit.NoError(t, err)
			if _, err := verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, checkRevoked) {
				t.Errorf("got %v, want %s", err, checkRevoked)
			}
			config.Issuers[0].CRLs, config.Issuers[0].RequireCRL = storeOf(t, crlOf(t, signer, nil, 78)), true
			if _, err := verifyAt(ekVerifierOf(t, config), tpmlab.Time, leaf); err != nil {
				t.Errorf("another one revoked: %v", err)
			}
		})
	}
}

// A list that cannot be used is never passed over: where the issuer's own CAs show it,
// there is no verifier, and after a Replace no EK under the issuer's roots is decided
// about.
func TestUselessList(t *testing.T) {
	keys := rsaTestKeys()
	rsaRoot := rsaCA(t, nil, "RSA root", keys[0], nil)
	ecRoot := tpmlab.Sign(t, nil, "EC root", crlSigner)
	noSigner := tpmlab.Sign(t, nil, "no signer", nil)
	noUsage := tpmlab.Sign(t, nil, "no usage", func(c *x509.Certificate) { c.KeyUsage = 0 })
	other := tpmlab.Sign(t, nil, "EC root", crlSigner)
	damaged := crlOf(t, ecRoot, nil, 77)
	damaged[len(damaged)-1] ^= 1
	renamed := &tpmlab.CA{Cert: renamedCA(ecRoot.Cert, "renamed"), Key: ecRoot.Key}
	for name, c := range map[string]struct {
		root *tpmlab.CA
		list []byte
		sha1 bool          // the tolerance
		want refusal.Check // with the list at construction;
		// checkRevoked: it counts
	}{
		"good, RSA":                        {rsaRoot, crlOf(t, rsaRoot, nil, 77), false, checkRevoked},
		"good, EC":                         {ecRoot, crlOf(t, ecRoot, nil, 77), false, checkRevoked},
		"a CA without key usage":           {noUsage, crlOf(t, noUsage, nil, 77), false, checkRevoked},
		"RSA over SHA-1":                   {rsaRoot, overSHA1(t, crlOf(t, rsaRoot, nil, 77), keys[0]), false, checkCRL},
		"RSA over SHA-1, let through":      {rsaRoot, overSHA1(t, crlOf(t, rsaRoot, nil, 77), keys[0]), true, checkRevoked},
		"ECDSA over SHA-1":                 {ecRoot, overSHA1(t, crlOf(t, ecRoot, nil, 77), ecRoot.Key), false, checkCRL},
		"ECDSA over SHA-1, let through":    {ecRoot, overSHA1(t, crlOf(t, ecRoot, nil, 77), ecRoot.Key), true, checkRevoked},
		"over SHA-1 by another key":        {rsaRoot, overSHA1(t, crlOf(t, rsaRoot, nil, 77), keys[1]), true, checkCRL},
		"damaged":                          {ecRoot, damaged, false, checkCRL},
		"by another key of that name":      {ecRoot, crlOf(t, other, nil, 77), false, checkCRL},
		"by a CA without cRLSign":          {noSigner, crlOf(t, noSigner, nil, 77), false, checkCRL},
		"by the CA under another name":     {ecRoot, crlOf(t, renamed, nil, 78), false, checkCRL},
		"the same without key identifiers": {ecRoot, withoutKeyID(t, crlOf(t, renamed, nil, 77), ecRoot), false, checkCRL},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := tpmlab.EKCertificate(t, c.root, tpmlab.NewP256(t).Public(), nil)
			p := EKProfileTCG()
			p.InsecureAllowSHA1Links = c.sha1
			config := listing(t, p, storeOf(t, c.list), c.root)
			v, err := NewEKVerifier(config)
			if c.want == checkRevoked {
				testkit.NoError(t, err)
				if _, err = verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, checkRevoked) {
					t.Fatalf("got %v, want %s", err, checkRevoked)
				}
				return
			}
			if !errors.Is(err, checkCRL) {
				t.Errorf("got %v, want %s", err, checkCRL)
			}
			config.Issuers[0].CRLs = &CRLStore{}
			v = ekVerifierOf(t, config)
			if _, err := verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, checkRevocationUnknown) {
				t.Fatalf("an empty store: got %v, want %s", err, checkRevocationUnknown)
			}
			// A result of one set of lists is not used for the next.
			testkit.NoError(t, config.Issuers[0].CRLs.Replace(crlOf(t, tpmlab.Sign(t, nil, "elsewhere", crlSigner), nil, 77)))
			if _, err := verifyAt(v, tpmlab.Time, leaf); err != nil {
				t.Errorf("a list of another CA: %v", err)
			}
			testkit.NoError(t, config.Issuers[0].CRLs.Replace(c.list))
			for range 2 {
				if _, err := verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, checkRevocationUnknown) || !errors.Is(err, refusal.ErrRetry) || errors.Is(err, checkRevoked) {
					t.Errorf("after Replace: got %v, want %s and a retry", err, checkRevocationUnknown)
				}
			}
		})
	}
}

// withoutKeyID takes the authority key identifier out of a list.
func withoutKeyID(t testing.TB, der []byte, ca *tpmlab.CA) []byte {
	t.Helper()
	list, err := x509.ParseRevocationList(der)
	testkit.NoError(t, err)
	var number []pkix.Extension
	for _, e := range list.Extensions {
		if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 35}) {
			number = append(number, e)
		}
	}
	extensions, err := asn1.Marshal(number)
	testkit.NoError(t, err)
	var b cryptobyte.Builder
	b.AddASN1(tagCRLExtensions, func(b *cryptobyte.Builder) { b.AddBytes(extensions) })
	out := elementsOfList(t, der, ca, 6, b.BytesOrPanic())
	if list, err = x509.ParseRevocationList(out); err != nil || len(list.AuthorityKeyId) != 0 {
		t.Fatalf("%v: the key identifier is still there", err)
	}
	return out
}

// The CA that the node sends is not known when the verifier is made: a list of its name
// that cannot be used makes a request a retry.
func TestUselessListOfSentCA(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	signer := tpmlab.Sign(t, root, "middle", crlSigner)
	noSigner := tpmlab.Sign(t, root, "middle", nil)
	for name, c := range map[string]struct {
		middle *tpmlab.CA
		list   []byte
		want   refusal.Check
	}{
		"good":              {signer, crlOf(t, signer, nil, 77), checkRevoked},
		"without cRLSign":   {noSigner, crlOf(t, noSigner, nil, 77), checkRevocationUnknown},
		"over SHA-1":        {signer, overSHA1(t, crlOf(t, signer, nil, 77), signer.Key), checkRevocationUnknown},
		"by another key":    {signer, crlOf(t, noSigner, nil, 77), checkRevocationUnknown},
		"of another CA":     {signer, crlOf(t, tpmlab.Sign(t, nil, "other", crlSigner), nil, 77), ""},
		"of the root alone": {signer, crlOf(t, root, nil, 77), ""},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := tpmlab.EKCertificate(t, c.middle, tpmlab.NewP256(t).Public(), nil)
			v := ekVerifierOf(t, listing(t, EKProfileTCG(), storeOf(t, c.list), root))
			_, err := verifyAt(v, tpmlab.Time, leaf, c.middle.Cert)
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if errors.Is(err, refusal.ErrRetry) != (c.want == checkRevocationUnknown) {
				t.Errorf("%v: a retry", err)
			}
		})
	}
}

// A list that names neither a CA nor its key says nothing about it, also where neither of them
// has a key identifier.
func TestListsOfOthers(t *testing.T) {
	other := &crl{issuer: "another name", head: &x509.RevocationList{}, signers: map[[sha256.Size]byte]bool{}}
	for name, id := range map[string][]byte{"without an identifier": nil, "with one": {1}} {
		var r revocation
		if err := r.ask(crlSet{other}, &x509.Certificate{}, &x509.Certificate{SubjectKeyId: id}, false, tpmlab.Time); err != nil || r.fault != nil || r.current {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
}

// One root under two issuers: the lists of one revoke for both, in either order.
func TestRevokedUnderEveryIssuer(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	leaf := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil)
	for name, c := range map[string]struct {
		store   *CRLStore
		require bool
		want    refusal.Check
	}{
		"revoked":               {storeOf(t, crlOf(t, root, nil, 77)), false, checkRevoked},
		"another revoked":       {storeOf(t, crlOf(t, root, nil, 78)), true, ""},
		"no list, demanded":     {&CRLStore{}, true, checkRevocationUnknown},
		"no list, not demanded": {&CRLStore{}, false, checkRevocationUnknown},
		"no store":              {nil, false, ""},
		"a list out of its time": {storeOf(t, crlOf(t, root, func(l *x509.RevocationList) { l.NextUpdate = tpmlab.Time.Add(-time.Second) })),
			false, checkRevocationUnknown},
	} {
		for _, order := range []string{"lists first", "lists last"} {
			t.Run(name+", "+order, func(t *testing.T) {
				with := EKIssuer{Roots: []*x509.Certificate{root.Cert}, Profile: EKProfileTCG(), CRLs: c.store, RequireCRL: c.require}
				without := EKIssuer{Roots: []*x509.Certificate{root.Cert}, Profile: EKProfileIntel()}
				config := EKVerifierConfig{Issuers: []EKIssuer{with, without}}
				if order == "lists last" {
					config.Issuers = []EKIssuer{without, with}
				}
				_, err := verifyAt(ekVerifierOf(t, config), tpmlab.Time, leaf)
				if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			})
		}
	}
	t.Run("an intermediate that two roots certify", func(t *testing.T) {
		other := tpmlab.Sign(t, nil, "other", crlSigner)
		middle := tpmlab.Sign(t, root, "middle", func(c *x509.Certificate) { c.SerialNumber = big.NewInt(5) })
		cross := *middle.Cert
		cross.SerialNumber = big.NewInt(6)
		crossed := tpmlab.Issued(t, &cross, other, middle.Key.Public())
		leaf := tpmlab.EKCertificate(t, middle, tpmlab.NewP256(t).Public(), nil)
		config := EKVerifierConfig{Issuers: []EKIssuer{
			{Roots: []*x509.Certificate{root.Cert}, Intermediates: []*x509.Certificate{middle.Cert}, Profile: EKProfileTCG(), CRLs: storeOf(t, crlOf(t, root, nil, 5))},
			{Roots: []*x509.Certificate{other.Cert}, Intermediates: []*x509.Certificate{crossed}, Profile: EKProfileTCG()},
		}}
		if _, err := verifyAt(ekVerifierOf(t, config), tpmlab.Time, leaf); !errors.Is(err, checkRevoked) {
			t.Errorf("got %v, want %s", err, checkRevoked)
		}
		// Where the list that the first root demands is not there, the other root counts.
		config.Issuers[0].CRLs, config.Issuers[0].RequireCRL = &CRLStore{}, true
		if _, err := verifyAt(ekVerifierOf(t, config), tpmlab.Time, leaf); err != nil {
			t.Error(err)
		}
	})
	t.Run("two CAs of one name", func(t *testing.T) {
		again := tpmlab.Sign(t, nil, "root", crlSigner)
		for _, roots := range [][]*tpmlab.CA{{root, again}, {again, root}} {
			config := listing(t, EKProfileTCG(), storeOf(t, crlOf(t, root, nil, 77)), roots...)
			if _, err := verifyAt(ekVerifierOf(t, config), tpmlab.Time, leaf); !errors.Is(err, checkRevoked) {
				t.Errorf("got %v, want %s", err, checkRevoked)
			}
		}
	})
	t.Run("a demand of another root", func(t *testing.T) {
		other := tpmlab.Sign(t, nil, "other", crlSigner)
		config := trusting(EKProfileTCG(), root)
		config.Issuers = append(config.Issuers, EKIssuer{Roots: []*x509.Certificate{other.Cert}, Profile: EKProfileTCG(), CRLs: &CRLStore{}, RequireCRL: true})
		if _, err := verifyAt(ekVerifierOf(t, config), tpmlab.Time, leaf); err != nil {
			t.Error(err)
		}
	})
	t.Run("useless lists of another root after Replace", func(t *testing.T) {
		other := tpmlab.Sign(t, nil, "other", crlSigner)
		store := &CRLStore{}
		config := trusting(EKProfileTCG(), root)
		config.Issuers = append(config.Issuers, EKIssuer{Roots: []*x509.Certificate{other.Cert}, Profile: EKProfileTCG(), CRLs: store})
		v := ekVerifierOf(t, config)
		testkit.NoError(t, store.Replace(crlOf(t, tpmlab.Sign(t, nil, "other", crlSigner), nil)))
		if _, err := verifyAt(v, tpmlab.Time, leaf); err != nil {
			t.Errorf("they are no matter of this root: %v", err)
		}
	})
}

// An EK that is allowed by a list or by the platform is still checked against revocation and deny
// lists, if it comes without a certificate or with a self-made one.
func TestUnjudgedEK(t *testing.T) {
	root, stranger := tpmlab.Sign(t, nil, "root", crlSigner), tpmlab.Sign(t, nil, "stranger", nil)
	key := tpmlab.NewP256(t)
	leaf, own := tpmlab.EKCertificate(t, root, key.Public(), nil), tpmlab.EKCertificate(t, stranger, key.Public(), nil)
	p, err := ParseEKPresented([][]byte{leaf.Raw}, nil)
	testkit.NoError(t, err)
	spki, err := csr.CanonicalSPKI(key.Public())
	testkit.NoError(t, err)
	bare, with, forged := &sentEK{PublicKey: spki}, &sentEK{Certificates: [][]byte{leaf.Raw}}, &sentEK{Certificates: [][]byte{own.Raw}}
	revoking := func(c *EKVerifierConfig) { c.Issuers[0].CRLs = storeOf(t, crlOf(t, root, nil, 77)) }
	listing := func(c *EKVerifierConfig) { c.Issuers[0].CRLs = &CRLStore{} }
	stale := func(c *EKVerifierConfig) {
		c.Issuers[0].CRLs = storeOf(t, crlOf(t, root, func(l *x509.RevocationList) { l.NextUpdate = tpmlab.Time.Add(-time.Second) }))
	}
	denying := func(c *EKVerifierConfig) { c.Denied = []DeniedTPM{{Vendor: "IFX", Last: 0xffffffff, Reason: "a test"}} }
	denyingOthers := func(c *EKVerifierConfig) { c.Denied = []DeniedTPM{{Vendor: "STM", Last: 0xffffffff, Reason: "a test"}} }
	insecure := func(edit func(*EKVerifierConfig)) func(*EKVerifierConfig) {
		return func(c *EKVerifierConfig) { edit(c); c.InsecureAllowUnjudged = true }
	}
	for name, c := range map[string]struct {
		edit func(*EKVerifierConfig)
		ek   *sentEK
		want refusal.Check
	}{
		"nothing to judge by, bare":                   {func(*EKVerifierConfig) {}, bare, ""},
		"nothing to judge by, own certificate":        {func(*EKVerifierConfig) {}, forged, ""},
		"revoked":                                     {revoking, with, checkRevoked},
		"revoked, bare":                               {revoking, bare, checkEKUnjudged},
		"revoked, own certificate":                    {revoking, forged, checkEKUnjudged},
		"revoked, bare, insecure":                     {insecure(revoking), bare, ""},
		"revoked, insecure":                           {insecure(revoking), with, checkRevoked},
		"an empty store":                              {listing, with, checkRevocationUnknown},
		"an empty store, bare":                        {listing, bare, checkEKUnjudged},
		"denied":                                      {denying, with, CheckTPMDenied},
		"denied, bare":                                {denying, bare, checkEKUnjudged},
		"denied, insecure":                            {insecure(denying), with, CheckTPMDenied},
		"denied, bare, insecure":                      {insecure(denying), bare, ""},
		"others denied":                               {denyingOthers, with, ""},
		"others denied, bare":                         {denyingOthers, bare, checkEKUnjudged},
		"no usable list: a retry, not the allow-list": {stale, with, checkRevocationUnknown},
	} {
		for _, source := range []string{"list", "platform"} {
			t.Run(name+", "+source, func(t *testing.T) {
				config := trusting(EKProfileTCG(), root)
				if c.edit(&config); source == "list" {
					config.Allowed = []attest.Identity{p.Identity()}
				} else {
					config.Platform = platformFunc(func(*csr.Machine) ([]crypto.PublicKey, error) { return []crypto.PublicKey{key.Public()}, nil })
				}
				v := ekVerifierOf(t, config)
				_, err := verifyEKOf(context.Background(), v, c.ek, &csr.Machine{}, tpmlab.Time)
				if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if errors.Is(err, refusal.ErrRetry) != (c.want == checkRevocationUnknown) || errors.Is(err, checkEKUnjudged) != (c.want == checkEKUnjudged) {
					t.Errorf("%v: a retry, or another check", err)
				}
			})
		}
	}
	t.Run("a certificate without a voucher", func(t *testing.T) {
		v := ekVerifierOf(t, EKVerifierConfig{Allowed: []attest.Identity{allZero}})
		if _, err := verifyEKOf(t.Context(), v, with, nil, tpmlab.Time); !errors.Is(err, checkEKUntrusted) {
			t.Errorf("got %v, want %s", err, checkEKUntrusted)
		}
	})
	t.Run("on no list", func(t *testing.T) {
		config := trusting(EKProfileTCG(), root)
		denying(&config)
		if _, err := verifyEKOf(t.Context(), ekVerifierOf(t, config), bare, nil, tpmlab.Time); !errors.Is(err, checkEKUntrusted) {
			t.Errorf("got %v, want %s", err, checkEKUntrusted)
		}
	})
}
