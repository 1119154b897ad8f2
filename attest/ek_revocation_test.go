package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/csr"
)

// listing trusts the roots, with revocation lists for the first of two issuers.
func listing(t testing.TB, p EKProfile, store *CRLStore, roots ...*testCA) EKVerifierConfig {
	t.Helper()
	c := trusting(p, roots...)
	c.Issuers[0].CRLs = store
	return c
}

func storeOf(t testing.TB, lists ...[]byte) *CRLStore {
	t.Helper()
	s, err := NewCRLStore(lists...)
	if err != nil {
		t.Fatal(err)
	}
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
	root := sign(t, nil, "", func(c *x509.Certificate) { crlSigner(c); c.RawSubject = rootName })
	leaf := ekCert(t, root, newTestKey(t).Public(), nil)
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
			signer := &testCA{renamedCA(root.cert, ""), root.key}
			signer.cert.RawSubject = c.issuer
			config := listing(t, EKProfileTCG(), storeOf(t, crlOf(t, signer, nil, 77)), root)
			v, err := NewEKVerifier(&config)
			if !c.same {
				if !errors.Is(err, CheckCRL) {
					t.Fatalf("got %v, want %s: nobody would find this list", err, CheckCRL)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := verifyAt(v, chainTime, leaf); !errors.Is(err, CheckRevoked) {
				t.Errorf("got %v, want %s", err, CheckRevoked)
			}
			config.Issuers[0].CRLs, config.Issuers[0].RequireCRL = storeOf(t, crlOf(t, signer, nil, 78)), true
			if _, err := verifyAt(ekVerifierOf(t, config), chainTime, leaf); err != nil {
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
	ecRoot := sign(t, nil, "EC root", crlSigner)
	noSigner := sign(t, nil, "no signer", nil)
	noUsage := sign(t, nil, "no usage", func(c *x509.Certificate) { c.KeyUsage = 0 })
	other := sign(t, nil, "EC root", crlSigner)
	damaged := crlOf(t, ecRoot, nil, 77)
	damaged[len(damaged)-1] ^= 1
	renamed := &testCA{renamedCA(ecRoot.cert, "renamed"), ecRoot.key}
	for name, c := range map[string]struct {
		root *testCA
		list []byte
		sha1 bool  // the tolerance
		want Check // with the list at construction; CheckRevoked: it counts
	}{
		"good, RSA":                        {rsaRoot, crlOf(t, rsaRoot, nil, 77), false, CheckRevoked},
		"good, EC":                         {ecRoot, crlOf(t, ecRoot, nil, 77), false, CheckRevoked},
		"a CA without key usage":           {noUsage, crlOf(t, noUsage, nil, 77), false, CheckRevoked},
		"RSA over SHA-1":                   {rsaRoot, overSHA1(t, crlOf(t, rsaRoot, nil, 77), keys[0]), false, CheckCRL},
		"RSA over SHA-1, let through":      {rsaRoot, overSHA1(t, crlOf(t, rsaRoot, nil, 77), keys[0]), true, CheckRevoked},
		"ECDSA over SHA-1":                 {ecRoot, overSHA1(t, crlOf(t, ecRoot, nil, 77), ecRoot.key), false, CheckCRL},
		"ECDSA over SHA-1, let through":    {ecRoot, overSHA1(t, crlOf(t, ecRoot, nil, 77), ecRoot.key), true, CheckRevoked},
		"over SHA-1 by another key":        {rsaRoot, overSHA1(t, crlOf(t, rsaRoot, nil, 77), keys[1]), true, CheckCRL},
		"damaged":                          {ecRoot, damaged, false, CheckCRL},
		"by another key of that name":      {ecRoot, crlOf(t, other, nil, 77), false, CheckCRL},
		"by a CA without cRLSign":          {noSigner, crlOf(t, noSigner, nil, 77), false, CheckCRL},
		"by the CA under another name":     {ecRoot, crlOf(t, renamed, nil, 78), false, CheckCRL},
		"the same without key identifiers": {ecRoot, withoutKeyID(t, crlOf(t, renamed, nil, 77), ecRoot), false, CheckCRL},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := ekCert(t, c.root, newTestKey(t).Public(), nil)
			p := EKProfileTCG()
			p.InsecureAllowSHA1Links = c.sha1
			config := listing(t, p, storeOf(t, c.list), c.root)
			v, err := NewEKVerifier(&config)
			if c.want == CheckRevoked {
				if err != nil {
					t.Fatal(err)
				}
				if _, err = verifyAt(v, chainTime, leaf); !errors.Is(err, CheckRevoked) {
					t.Fatalf("got %v, want %s", err, CheckRevoked)
				}
				return
			}
			if !errors.Is(err, CheckCRL) {
				t.Errorf("got %v, want %s", err, CheckCRL)
			}
			config.Issuers[0].CRLs = &CRLStore{}
			v = ekVerifierOf(t, config)
			if _, err := verifyAt(v, chainTime, leaf); err != nil {
				t.Fatalf("an empty store: %v", err)
			}
			if err := config.Issuers[0].CRLs.Replace(c.list); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := verifyAt(v, chainTime, leaf); !errors.Is(err, CheckRevocationUnknown) || !errors.Is(err, csr.ErrRetry) || errors.Is(err, CheckRevoked) {
					t.Errorf("after Replace: got %v, want %s and a retry", err, CheckRevocationUnknown)
				}
			}
		})
	}
}

// withoutKeyID takes the authority key identifier out of a list.
func withoutKeyID(t testing.TB, der []byte, ca *testCA) []byte {
	t.Helper()
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		t.Fatal(err)
	}
	var number []pkix.Extension
	for _, e := range list.Extensions {
		if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 35}) {
			number = append(number, e)
		}
	}
	extensions, err := asn1.Marshal(number)
	if err != nil {
		t.Fatal(err)
	}
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
	root := sign(t, nil, "root", crlSigner)
	signer := sign(t, root, "middle", crlSigner)
	noSigner := sign(t, root, "middle", nil)
	for name, c := range map[string]struct {
		middle *testCA
		list   []byte
		want   Check
	}{
		"good":              {signer, crlOf(t, signer, nil, 77), CheckRevoked},
		"without cRLSign":   {noSigner, crlOf(t, noSigner, nil, 77), CheckRevocationUnknown},
		"over SHA-1":        {signer, overSHA1(t, crlOf(t, signer, nil, 77), signer.key), CheckRevocationUnknown},
		"by another key":    {signer, crlOf(t, noSigner, nil, 77), CheckRevocationUnknown},
		"of another CA":     {signer, crlOf(t, sign(t, nil, "other", crlSigner), nil, 77), ""},
		"of the root alone": {signer, crlOf(t, root, nil, 77), ""},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := ekCert(t, c.middle, newTestKey(t).Public(), nil)
			v := ekVerifierOf(t, listing(t, EKProfileTCG(), storeOf(t, c.list), root))
			_, err := verifyAt(v, chainTime, leaf, c.middle.cert)
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if errors.Is(err, csr.ErrRetry) != (c.want == CheckRevocationUnknown) {
				t.Errorf("%v: a retry", err)
			}
		})
	}
}

// One root under two issuers: what the lists of one revoke, the other does not heal,
// in whichever order they stand.
func TestRevokedUnderEveryIssuer(t *testing.T) {
	root := sign(t, nil, "root", crlSigner)
	leaf := ekCert(t, root, newTestKey(t).Public(), nil)
	for name, c := range map[string]struct {
		store   *CRLStore
		require bool
		want    Check
	}{
		"revoked":               {storeOf(t, crlOf(t, root, nil, 77)), false, CheckRevoked},
		"another revoked":       {storeOf(t, crlOf(t, root, nil, 78)), true, ""},
		"no list, demanded":     {&CRLStore{}, true, CheckRevocationUnknown},
		"no list, not demanded": {&CRLStore{}, false, ""},
		"a list out of its time": {storeOf(t, crlOf(t, root, func(l *x509.RevocationList) { l.NextUpdate = chainTime.Add(-time.Second) })),
			false, CheckRevocationUnknown},
	} {
		for _, order := range []string{"lists first", "lists last"} {
			t.Run(name+", "+order, func(t *testing.T) {
				with := EKIssuer{Roots: []*x509.Certificate{root.cert}, Profile: EKProfileTCG(), CRLs: c.store, RequireCRL: c.require}
				without := EKIssuer{Roots: []*x509.Certificate{root.cert}, Profile: EKProfileIntel()}
				config := EKVerifierConfig{Issuers: []EKIssuer{with, without}}
				if order == "lists last" {
					config.Issuers = []EKIssuer{without, with}
				}
				_, err := verifyAt(ekVerifierOf(t, config), chainTime, leaf)
				if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			})
		}
	}
	t.Run("an intermediate that two roots certify", func(t *testing.T) {
		other := sign(t, nil, "other", crlSigner)
		middle := sign(t, root, "middle", func(c *x509.Certificate) { c.SerialNumber = big.NewInt(5) })
		cross := *middle.cert
		cross.SerialNumber = big.NewInt(6)
		crossed := issued(t, &cross, other, middle.key.Public())
		leaf := ekCert(t, middle, newTestKey(t).Public(), nil)
		config := EKVerifierConfig{Issuers: []EKIssuer{
			{Roots: []*x509.Certificate{root.cert}, Intermediates: []*x509.Certificate{middle.cert}, Profile: EKProfileTCG(), CRLs: storeOf(t, crlOf(t, root, nil, 5))},
			{Roots: []*x509.Certificate{other.cert}, Intermediates: []*x509.Certificate{crossed}, Profile: EKProfileTCG()},
		}}
		if _, err := verifyAt(ekVerifierOf(t, config), chainTime, leaf); !errors.Is(err, CheckRevoked) {
			t.Errorf("got %v, want %s", err, CheckRevoked)
		}
	})
	t.Run("two CAs of one name", func(t *testing.T) {
		again := sign(t, nil, "root", crlSigner)
		for _, roots := range [][]*testCA{{root, again}, {again, root}} {
			config := listing(t, EKProfileTCG(), storeOf(t, crlOf(t, root, nil, 77)), roots...)
			if _, err := verifyAt(ekVerifierOf(t, config), chainTime, leaf); !errors.Is(err, CheckRevoked) {
				t.Errorf("got %v, want %s", err, CheckRevoked)
			}
		}
	})
	t.Run("a demand of another root", func(t *testing.T) {
		other := sign(t, nil, "other", crlSigner)
		config := trusting(EKProfileTCG(), root)
		config.Issuers = append(config.Issuers, EKIssuer{Roots: []*x509.Certificate{other.cert}, Profile: EKProfileTCG(), CRLs: &CRLStore{}, RequireCRL: true})
		if _, err := verifyAt(ekVerifierOf(t, config), chainTime, leaf); err != nil {
			t.Error(err)
		}
	})
	t.Run("useless lists of another root after Replace", func(t *testing.T) {
		other := sign(t, nil, "other", crlSigner)
		store := &CRLStore{}
		config := trusting(EKProfileTCG(), root)
		config.Issuers = append(config.Issuers, EKIssuer{Roots: []*x509.Certificate{other.cert}, Profile: EKProfileTCG(), CRLs: store})
		v := ekVerifierOf(t, config)
		if err := store.Replace(crlOf(t, sign(t, nil, "other", crlSigner), nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := verifyAt(v, chainTime, leaf); err != nil {
			t.Errorf("they are no matter of this root: %v", err)
		}
	})
}

// Whoever leaves the certificate at home, or brings one of his own making, does not get
// past revocation and deny-lists by an allow-list or a platform.
func TestUnjudgedEK(t *testing.T) {
	root, stranger := sign(t, nil, "root", crlSigner), sign(t, nil, "stranger", nil)
	key := newTestKey(t)
	leaf, own := ekCert(t, root, key.Public(), nil), ekCert(t, stranger, key.Public(), nil)
	p, err := readEK([][]byte{leaf.Raw}, nil)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := csr.CanonicalSPKI(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	bare, with, forged := &PresentedEK{PublicKey: spki}, &PresentedEK{Certificates: [][]byte{leaf.Raw}}, &PresentedEK{Certificates: [][]byte{own.Raw}}
	revoking := func(c *EKVerifierConfig) { c.Issuers[0].CRLs = storeOf(t, crlOf(t, root, nil, 77)) }
	listing := func(c *EKVerifierConfig) { c.Issuers[0].CRLs = &CRLStore{} }
	stale := func(c *EKVerifierConfig) {
		c.Issuers[0].CRLs = storeOf(t, crlOf(t, root, func(l *x509.RevocationList) { l.NextUpdate = chainTime.Add(-time.Second) }))
	}
	denying := func(c *EKVerifierConfig) { c.Denied = []DeniedTPM{{Vendor: "IFX", Last: 0xffffffff, Reason: "a test"}} }
	denyingOthers := func(c *EKVerifierConfig) { c.Denied = []DeniedTPM{{Vendor: "STM", Last: 0xffffffff, Reason: "a test"}} }
	insecure := func(edit func(*EKVerifierConfig)) func(*EKVerifierConfig) {
		return func(c *EKVerifierConfig) { edit(c); c.InsecureAllowUnjudged = true }
	}
	for name, c := range map[string]struct {
		edit func(*EKVerifierConfig)
		ek   *PresentedEK
		want Check
	}{
		"nothing to judge by, bare":                   {func(*EKVerifierConfig) {}, bare, ""},
		"nothing to judge by, own certificate":        {func(*EKVerifierConfig) {}, forged, ""},
		"revoked":                                     {revoking, with, CheckRevoked},
		"revoked, bare":                               {revoking, bare, CheckEKUnjudged},
		"revoked, own certificate":                    {revoking, forged, CheckEKUnjudged},
		"revoked, bare, insecure":                     {insecure(revoking), bare, ""},
		"revoked, insecure":                           {insecure(revoking), with, CheckRevoked},
		"an empty store":                              {listing, with, ""},
		"an empty store, bare":                        {listing, bare, CheckEKUnjudged},
		"denied":                                      {denying, with, CheckTPMDenied},
		"denied, bare":                                {denying, bare, CheckEKUnjudged},
		"denied, insecure":                            {insecure(denying), with, CheckTPMDenied},
		"denied, bare, insecure":                      {insecure(denying), bare, ""},
		"others denied":                               {denyingOthers, with, ""},
		"others denied, bare":                         {denyingOthers, bare, CheckEKUnjudged},
		"no usable list: a retry, not the allow-list": {stale, with, CheckRevocationUnknown},
	} {
		for _, source := range []string{"list", "platform"} {
			t.Run(name+", "+source, func(t *testing.T) {
				config := trusting(EKProfileTCG(), root)
				if c.edit(&config); source == "list" {
					config.Allowed = []Identity{p.identity()}
				} else {
					config.Platform = platformFunc(func(*csr.Machine) ([]crypto.PublicKey, error) { return []crypto.PublicKey{key.Public()}, nil })
				}
				v := ekVerifierOf(t, config)
				_, err := v.Verify(context.Background(), c.ek, &csr.Machine{}, chainTime)
				if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if errors.Is(err, csr.ErrRetry) != (c.want == CheckRevocationUnknown) || errors.Is(err, CheckEKUnjudged) != (c.want == CheckEKUnjudged) {
					t.Errorf("%v: a retry, or another check", err)
				}
			})
		}
	}
	t.Run("a certificate, and nobody who vouches", func(t *testing.T) {
		v := ekVerifierOf(t, EKVerifierConfig{Allowed: []Identity{allZero}})
		if _, err := v.Verify(t.Context(), with, nil, chainTime); !errors.Is(err, CheckEKUntrusted) {
			t.Errorf("got %v, want %s", err, CheckEKUntrusted)
		}
	})
	t.Run("on no list", func(t *testing.T) {
		config := trusting(EKProfileTCG(), root)
		denying(&config)
		if _, err := ekVerifierOf(t, config).Verify(t.Context(), bare, nil, chainTime); !errors.Is(err, CheckEKUntrusted) {
			t.Errorf("got %v, want %s", err, CheckEKUntrusted)
		}
	})
}

// A list of the largest size costs a small multiple of its bytes, and nothing for its
// entries before the signature has been verified.
func TestLargestCRL(t *testing.T) {
	root := sign(t, nil, "root", crlSigner)
	small := crlOf(t, root, nil, 1)
	der := listOfSize(t, small, root, MaxCRLSize)
	if len(der) != MaxCRLSize {
		t.Fatalf("%d bytes", len(der))
	}
	var store *CRLStore
	if got := allocated(func() { store = storeOf(t, der) }); got > MaxCRLSize+1<<20 {
		t.Errorf("%d bytes allocated for a list of %d", got, len(der))
	}
	if _, err := NewCRLStore(listOfSize(t, small, root, MaxCRLSize+1)); !errors.Is(err, CheckCRL) {
		t.Errorf("a byte more: got %v, want %s", err, CheckCRL)
	}
	list := store.current().lists[0]
	if list.revoked != nil {
		t.Error("entries were read before the signature")
	}
	if list.isSignedBy(sign(t, nil, "root", crlSigner).cert); list.revoked != nil {
		t.Error("entries were read without a signature")
	}
	if got := allocated(func() { list.isSignedBy(root.cert) }); got > MaxCRLSize {
		t.Errorf("%d bytes allocated for the entries of a list of %d", got, len(der))
	}
	leaf := ekCert(t, root, newTestKey(t).Public(), nil)
	if _, revoked := list.reasonFor(leaf); !revoked {
		t.Error("an entry was not found")
	}
	if _, revoked := list.reasonFor(root.cert); revoked {
		t.Error("an entry was found that is not there")
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// listOfSize is a list with entries of serial numbers 1, 2, 3 and so on, filled up to a
// size by an extension of the last one.
func listOfSize(t testing.TB, der []byte, ca *testCA, size int) []byte {
	t.Helper()
	build := func(count, fill int) []byte {
		entries := make([]byte, 0, size)
		for n := range count {
			entries = append(append(entries, 0x30, 20, 2, 3, byte(n>>14&0x7f), byte(n>>7&0x7f)|1<<7, byte(n)), aTime...)
		}
		if fill >= 0 {
			var b cryptobyte.Builder
			b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddASN1Int64(77)
				b.AddBytes(aTime)
				b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
						b.AddASN1ObjectIdentifier(asn1.ObjectIdentifier{1, 2, 3})
						b.AddASN1OctetString(make([]byte, fill))
					})
				})
			})
			entries = append(entries, b.BytesOrPanic()...)
		}
		var b cryptobyte.Builder
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(entries) })
		return elementsOfList(t, der, ca, 5, b.BytesOrPanic())
	}
	count := (size - 1024) / 22
	for range 20 { // ECDSA signatures differ in length
		fill := size - len(build(count, 400)) + 400
		if out := build(count, fill); len(out) == size {
			return out
		}
	}
	t.Fatal("no list of that size")
	return nil
}

// Serial numbers are found whatever their size and sign, those only, and those once
// that a list has many times.
func TestSerialIndex(t *testing.T) {
	root := sign(t, nil, "root", crlSigner)
	serials := []int64{0, 1, 127, 128, 255, 256, 1<<62 + 1, 5, 5, 5, 5}
	for n := range 200 {
		serials = append(serials, int64(1000+3*n))
	}
	der := crlOf(t, root, nil, serials...)
	list, err := parseCRL(der)
	if err != nil {
		t.Fatal(err)
	}
	checkAgainstX509(t, list, der)
	index := newSerialIndex(list.entries, list.numEntries)
	for _, absent := range []int64{2, 126, 129, 1001, 1002, -1, -128, -5} {
		if _, revoked := index.find(big.NewInt(absent)); revoked {
			t.Errorf("%d is not on the list", absent)
		}
	}
	negative, err := parseCRL(listOfEntries(t, der, root, []byte{2, 1, 0xff}, aTime))
	if err != nil {
		t.Fatal(err)
	}
	index = newSerialIndex(negative.entries, 1)
	if _, revoked := index.find(big.NewInt(255)); revoked {
		t.Error("255 is not -1")
	}
	if _, revoked := index.find(big.NewInt(-1)); !revoked {
		t.Error("-1 is on the list")
	}
	if index = newSerialIndex(nil, 0); len(index.slots) == 0 {
		t.Error("no slots")
	}
	if _, revoked := index.find(big.NewInt(1)); revoked {
		t.Error("an empty list revokes")
	}
}

// A list remembers which keys signed it, and of those no more than a bound.
func TestListRemembersSigners(t *testing.T) {
	root := sign(t, nil, "root", crlSigner)
	list, err := parseCRL(crlOf(t, root, nil, 77))
	if err != nil {
		t.Fatal(err)
	}
	for n := range maxCRLSigners + 2 {
		other := *root.cert
		other.RawSubjectPublicKeyInfo = append(bytes.Clone(root.cert.RawSubjectPublicKeyInfo), byte(n))
		other.PublicKey = rsaTestKeys()[0].Public()
		if list.isSignedBy(&other) || !list.isSignedBy(root.cert) || len(list.signers) > maxCRLSigners {
			t.Fatalf("key %d: %d keys remembered", n, len(list.signers))
		}
	}
}

// A CA whose key stands as RSAES-OAEP signs lists as any other.
func TestListOfOAEPKey(t *testing.T) {
	key := rsaTestKeys()[0]
	root := rsaCA(t, nil, "root", key, nil)
	list, err := parseCRL(crlOf(t, root, nil, 77))
	if err != nil {
		t.Fatal(err)
	}
	ca := oaepCert(t, key.Public().(*rsa.PublicKey))
	if ca.PublicKey != nil || !list.isSignedBy(ca) {
		t.Error("not its list")
	}
	if list.isSignedBy(oaepCert(t, rsaTestKeys()[1].Public().(*rsa.PublicKey))) {
		t.Error("the list of another key")
	}
	if list.isSignedBy(&x509.Certificate{RawSubjectPublicKeyInfo: []byte{0x30, 0}}) {
		t.Error("the list of no key")
	}
}

func TestDecodeText(t *testing.T) {
	for _, c := range []struct {
		tag   cbasn1.Tag
		value string
		want  string
		ok    bool
	}{
		{cbasn1.UTF8String, "é", "é", true},
		{cbasn1.UTF8String, "\xe9", "", false},
		{cbasn1.PrintableString, "\x7f", "\x7f", true},
		{cbasn1.PrintableString, "\x80", "", false},
		{cbasn1.IA5String, "a\x81", "", false},
		{cbasn1.T61String, "\xe9", "é", true},
		{tagBMPString, "\x00a\x20\xac", "a€", true},
		{tagBMPString, "\x00a\x00", "", false},
		{tagBMPString, "\xd8\x00\x00a", "", false},
		{tagBMPString, "\xd8\x3d\xde\x00", "😀", true},
		{tagBMPString, "\xff\xfd", "", false},
		{tagBMPString, "\xff\xfc", "\ufffc", true},
		{tagBMPString, "\xff\xfe", "\ufffe", true},
		{tagUniversalString, "\x00\x00\x00a", "a", true},
		{tagUniversalString, "\x00\x00\x00a\x00", "", false},
		{tagUniversalString, "\x00\x10\xff\xff", "\U0010ffff", true},
		{tagUniversalString, "\x00\x11\x00\x00", "", false},
		{tagUniversalString, "\x00\x00\xd8\x00", "", false},
		{tagUniversalString, "\x80\x00\x00\x61", "", false},
		{cbasn1.OCTET_STRING, "a", "", false},
	} {
		if got, ok := decodeText(c.tag, []byte(c.value)); ok != c.ok || ok && got != c.want {
			t.Errorf("%d %q: got %q, %t", c.tag, c.value, got, ok)
		}
	}
}

func TestNameKey(t *testing.T) {
	good := nameOf(text(19, "a"))
	for _, bad := range [][]byte{nil, {5, 0}, append(bytes.Clone(good), 0), {0x30, 2, 5, 0}, {0x30, 4, 0x31, 2, 5, 0},
		{0x30, 6, 0x31, 4, 0x30, 2, 6, 0}, {0x30, 10, 0x31, 8, 0x30, 6, 4, 1, 0x2a, 12, 1, 'a'},
		{0x30, 12, 0x31, 10, 0x30, 8, 6, 1, 0x2a, 12, 1, 'a', 5, 0}} {
		if nameKey(bad) != string(bad) {
			t.Errorf("%x was read", bad)
		}
	}
	keys := map[string]string{}
	for _, name := range []string{"a", "b", "a b", "ab", "é", "e", "ſ ß", strings.Repeat("a", 300)} {
		key := nameKey(nameOf(text(12, name)))
		if other, ok := keys[key]; ok {
			t.Errorf("%q and %q are one", name, other)
		}
		keys[key] = name
	}
	if nameKey(nameOf(text(12, "Σ"))) != nameKey(nameOf(text(12, "ς"))) || nameKey(nameOf(text(12, "É"))) != nameKey(nameOf(text(20, "\xe9"))) {
		t.Error("case and string types beyond ASCII")
	}
	if nameKey(nameOf(text(19, "a"), text(19, "b"))) == nameKey(append([]byte(nil), mergeNames(nameOf(text(19, "a")), nameOf(text(19, "b")))...)) {
		t.Error("two RDNs are one of two attributes")
	}
}

// mergeNames is a Name with the RDNs of both.
func mergeNames(a, b []byte) []byte {
	return append([]byte{0x30, a[1] + b[1]}, append(bytes.Clone(a[2:]), b[2:]...)...)
}
