package tpmcert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// crlOf is a revocation list of a CA; edit may change the template.
func crlOf(t testing.TB, ca *tpmlab.CA, edit func(*x509.RevocationList), serials ...int64) []byte {
	t.Helper()
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: tpmlab.Time.Add(-time.Hour), NextUpdate: tpmlab.Time.Add(time.Hour)}
	for _, s := range serials {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(s), RevocationTime: tpmlab.Time.Add(-2 * time.Hour), ReasonCode: 1})
	}
	if edit != nil {
		edit(template)
	}
	signer := *ca.Cert
	signer.KeyUsage |= x509.KeyUsageCRLSign
	der, err := x509.CreateRevocationList(rand.Reader, template, &signer, ca.Key)
	testkit.NoError(t, err)
	return der
}

func crlSigner(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }

// revoking is a verifier with revocation lists, and an EK certificate with serial 77
// below an intermediate with serial 5.
func revoking(t *testing.T, require bool, lists func(root, middle *tpmlab.CA) [][]byte) error {
	t.Helper()
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	middle := tpmlab.Sign(t, root, "middle", func(c *x509.Certificate) { crlSigner(c); c.SerialNumber = big.NewInt(5) })
	leaf := tpmlab.EKCertificate(t, middle, tpmlab.NewP256(t).Public(), nil)
	store, err := NewCRLStore(lists(root, middle)...)
	testkit.NoError(t, err)
	c := trusting(EKProfileTCG(), root)
	c.Issuers[0].CRLs, c.Issuers[0].RequireCRL = store, require
	v := ekVerifierOf(t, c)
	_, err = verifyAt(v, tpmlab.Time, leaf, middle.Cert)
	_, again := verifyAt(v, tpmlab.Time, leaf, middle.Cert) // signatures from memory
	if (err == nil) != (again == nil) {
		t.Errorf("%v, then %v", err, again)
	}
	return err
}

func TestRevocation(t *testing.T) {
	late := func(l *x509.RevocationList) { l.NextUpdate = tpmlab.Time.Add(-time.Second) }
	early := func(l *x509.RevocationList) { l.ThisUpdate = tpmlab.Time.Add(time.Second) }
	removed := func(l *x509.RevocationList) { l.RevokedCertificateEntries[0].ReasonCode = reasonRemoveFromCRL }
	for name, c := range map[string]struct {
		lists            func(root, middle *tpmlab.CA) [][]byte
		plain, requiring refusal.Check
	}{
		"nothing revoked": {func(root, middle *tpmlab.CA) [][]byte { return [][]byte{crlOf(t, root, nil), crlOf(t, middle, nil)} }, "", ""},
		"leaf": {func(root, middle *tpmlab.CA) [][]byte {
			return [][]byte{crlOf(t, root, nil), crlOf(t, middle, nil, 1, 77)}
		}, checkRevoked, checkRevoked},
		"intermediate": {func(root, middle *tpmlab.CA) [][]byte { return [][]byte{crlOf(t, root, nil, 5), crlOf(t, middle, nil)} }, checkRevoked, checkRevoked},
		"others": {func(root, middle *tpmlab.CA) [][]byte {
			return [][]byte{crlOf(t, root, nil, 77), crlOf(t, middle, nil, 5)}
		}, "", ""},
		"taken back": {func(root, middle *tpmlab.CA) [][]byte {
			return [][]byte{crlOf(t, root, nil), crlOf(t, middle, removed, 77)}
		}, "", ""},
		"one missing": {func(root, middle *tpmlab.CA) [][]byte { return [][]byte{crlOf(t, middle, nil)} }, "", checkRevocationUnknown},
		"late":        {func(root, middle *tpmlab.CA) [][]byte { return [][]byte{crlOf(t, root, nil), crlOf(t, middle, late)} }, checkRevocationUnknown, checkRevocationUnknown},
		"early":       {func(root, middle *tpmlab.CA) [][]byte { return [][]byte{crlOf(t, root, nil), crlOf(t, middle, early)} }, checkRevocationUnknown, checkRevocationUnknown},
		"late and current": {func(root, middle *tpmlab.CA) [][]byte {
			return [][]byte{crlOf(t, middle, late), crlOf(t, middle, nil), crlOf(t, root, nil)}
		}, "", ""},
		"revoked long ago": {func(root, middle *tpmlab.CA) [][]byte {
			return [][]byte{crlOf(t, middle, late, 77), crlOf(t, middle, nil), crlOf(t, root, nil)}
		}, checkRevoked, checkRevoked},
		"forged": {func(root, middle *tpmlab.CA) [][]byte {
			forger := tpmlab.Sign(t, nil, "middle", func(c *x509.Certificate) { crlSigner(c); c.SubjectKeyId = middle.Cert.SubjectKeyId })
			return [][]byte{crlOf(t, forger, nil, 77), crlOf(t, root, nil)}
		}, checkRevocationUnknown, checkRevocationUnknown},
		"forged and a good one": {func(root, middle *tpmlab.CA) [][]byte {
			forger := tpmlab.Sign(t, nil, "middle", func(c *x509.Certificate) { crlSigner(c); c.SubjectKeyId = middle.Cert.SubjectKeyId })
			return [][]byte{crlOf(t, forger, nil, 77), crlOf(t, middle, nil), crlOf(t, root, nil)}
		}, "", ""},
		"revoked and taken back": {func(root, middle *tpmlab.CA) [][]byte {
			return [][]byte{crlOf(t, middle, func(l *x509.RevocationList) { l.RevokedCertificateEntries[1].ReasonCode = reasonRemoveFromCRL }, 77, 77)}
		}, checkRevoked, checkRevoked},
		"the middle's key under another name": {func(root, middle *tpmlab.CA) [][]byte {
			renamed := *middle
			renamed.Cert = renamedCA(middle.Cert, "another")
			return [][]byte{crlOf(t, &renamed, nil, 78), crlOf(t, root, nil)}
		}, checkRevocationUnknown, checkRevocationUnknown},
		"revoked by the middle's key under another name": {func(root, middle *tpmlab.CA) [][]byte {
			renamed := *middle
			renamed.Cert = renamedCA(middle.Cert, "another")
			return [][]byte{crlOf(t, &renamed, nil, 77), crlOf(t, middle, nil), crlOf(t, root, nil)}
		}, checkRevoked, checkRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			for require, want := range map[bool]refusal.Check{false: c.plain, true: c.requiring} {
				err := revoking(t, require, c.lists)
				if want == "" && err != nil || want != "" && !errors.Is(err, want) {
					t.Errorf("%s, required %t: got %v, want %q", name, require, err, want)
				}
				if want == checkRevocationUnknown && !errors.Is(err, refusal.ErrRetry) {
					t.Errorf("%s: %v is no reason to try again", name, err)
				}
			}
		})
	}
}

// A revoked certificate is refused though its key is on the list; the lists of a store
// can be replaced under way.
func TestRevokedBeatsAllowed(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	leaf := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil)
	p, err := ParseEKPresented([][]byte{leaf.Raw}, nil)
	testkit.NoError(t, err)
	store := &CRLStore{}
	c := trusting(EKProfileTCG(), root)
	c.Issuers[0].CRLs = store
	c.Allowed = []attest.Identity{p.Identity()}
	v := ekVerifierOf(t, c)
	if _, err := verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, checkRevocationUnknown) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("an empty store: got %v, want %s and a retry", err, checkRevocationUnknown)
	}
	testkit.NoError(t, store.Replace(crlOf(t, root, nil, 77)))
	_, err = verifyAt(v, tpmlab.Time, leaf)
	wantEKCheck(t, "revoked", err, checkRevoked, "certificate 4d of CN=root, revoked for reason 1")
	if err := store.Replace([]byte("no list")); !errors.Is(err, checkCRL) {
		t.Errorf("bad list: %v", err)
	}
	if _, err := verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, checkRevoked) {
		t.Errorf("a bad list emptied the store: %v", err)
	}
	if err := store.Replace(); !errors.Is(err, checkCRL) {
		t.Errorf("no lists: got %v, want %s", err, checkCRL)
	}
	if _, err := verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, checkRevoked) {
		t.Errorf("nothing emptied the store: %v", err)
	}
	testkit.NoError(t, store.Replace(crlOf(t, root, nil, 78)))
	if _, err := verifyAt(v, tpmlab.Time, leaf); err != nil {
		t.Errorf("another revoked: %v", err)
	}
	if s, err := NewCRLStore(); !errors.Is(err, checkCRL) {
		t.Errorf("a new store of nothing: got %v, %v, want %s", s, err, checkCRL)
	}
}

// Lists that say more than this package understands, or too little, are refused whole.
func TestCRLKinds(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	good := crlOf(t, root, nil, 7)
	if _, err := NewCRLStore(good); err != nil {
		t.Fatal(err)
	}
	extension := func(critical bool, value []byte, id ...int) pkix.Extension {
		return pkix.Extension{Id: id, Critical: critical, Value: value}
	}
	head := func(e pkix.Extension) []byte {
		return crlOf(t, root, func(l *x509.RevocationList) { l.ExtraExtensions = append(l.ExtraExtensions, e) })
	}
	entry := func(e pkix.Extension) []byte {
		return crlOf(t, root, func(l *x509.RevocationList) { l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{e} }, 7)
	}
	reason := func(value ...byte) []byte {
		extension := append([]byte{6, 3, 0x55, 0x1d, 0x15, 4, byte(len(value))}, value...)
		extension = append([]byte{0x30, byte(len(extension))}, extension...)
		return listOfEntries(t, good, root, []byte{2, 1, 1}, aTime, append([]byte{0x30, byte(len(extension))}, extension...))
	}
	directory := tpmlab.DirectoryName([]tpmlab.Attribute{{ID: oid.CommonName, Value: "another"}})
	for name, c := range map[string]struct {
		der []byte
		ok  bool
	}{
		"an extension that is not critical":        {head(extension(false, []byte{5, 0}, 1, 2, 3)), true},
		"a critical one":                           {head(extension(true, []byte{5, 0}, 1, 2, 3)), false},
		"a delta":                                  {head(extension(true, []byte{2, 1, 1}, 2, 5, 29, 27)), false},
		"a delta that is not critical":             {head(extension(false, []byte{2, 1, 1}, 2, 5, 29, 27)), false},
		"a scope":                                  {head(extension(true, []byte{0x30, 3, 0x81, 1, 0xff}, 2, 5, 29, 28)), false},
		"a scope that is not critical":             {head(extension(false, []byte{0x30, 3, 0x81, 1, 0xff}, 2, 5, 29, 28)), false},
		"an entry's extension":                     {entry(extension(false, []byte{5, 0}, 1, 2, 3)), true},
		"an entry's critical extension":            {entry(extension(true, []byte{5, 0}, 1, 2, 3)), false},
		"an entry of another issuer":               {entry(extension(true, tpmlab.Seq(directory), 2, 5, 29, 29)), false},
		"the same, not critical":                   {entry(extension(false, tpmlab.Seq(directory), 2, 5, 29, 29)), false},
		"the last reason":                          {reason(10, 1, 10), true},
		"a reason beyond the last":                 {reason(10, 1, 11), false},
		"a reason in two octets":                   {reason(10, 2, 0, 1), false},
		"a reason that is an INTEGER":              {reason(2, 1, 1), false},
		"a reason with something after it":         {reason(10, 1, 1, 0), false},
		"no nextUpdate":                            {elementsOfList(t, good, root, 4, nil), false},
		"no entries, but their SEQUENCE":           {elementsOfList(t, good, root, 5, []byte{0x30, 0}), true},
		"an end at its beginning":                  {crlOf(t, root, func(l *x509.RevocationList) { l.NextUpdate = l.ThisUpdate }), true},
		"an end before its beginning":              {elementsOfList(t, good, root, 4, aTime), false},
		"version 1":                                {elementsOfList(t, good, root, 0, nil), false},
		"version 3":                                {elementsOfList(t, good, root, 0, []byte{2, 1, 2}), false},
		"entries that are no SEQUENCE":             {elementsOfList(t, good, root, 5, []byte{0x31, 0}), false},
		"an entry that is no SEQUENCE":             {elementsOfList(t, good, root, 5, []byte{0x30, 2, 5, 0}), false},
		"a serial number that is not minimal":      {listOfEntries(t, good, root, []byte{2, 2, 0, 1}, aTime), false},
		"a negative one that is not minimal":       {listOfEntries(t, good, root, []byte{2, 2, 0xff, 0x80}, aTime), false},
		"a minimal one":                            {listOfEntries(t, good, root, []byte{2, 2, 0, 0x80}, aTime), true},
		"a negative one":                           {listOfEntries(t, good, root, []byte{2, 1, 0x80}, aTime), true},
		"an empty serial number":                   {listOfEntries(t, good, root, []byte{2, 0}, aTime), false},
		"a serial number of another type":          {listOfEntries(t, good, root, []byte{10, 1, 1}, aTime), false},
		"an entry without a time":                  {listOfEntries(t, good, root, []byte{2, 1, 1}), false},
		"an entry with no time":                    {listOfEntries(t, good, root, []byte{2, 1, 1}, []byte{5, 0}), false},
		"an entry with empty extensions":           {listOfEntries(t, good, root, []byte{2, 1, 1}, aTime, []byte{0x30, 0}), false},
		"an entry with extensions of another type": {listOfEntries(t, good, root, []byte{2, 1, 1}, aTime, []byte{0x31, 0}), false},
		"an entry with something after them": {listOfEntries(t, good, root, []byte{2, 1, 1}, aTime,
			[]byte{0x30, 11, 0x30, 9, 6, 2, 42, 3, 4, 3, 1, 2, 3}, []byte{5, 0}), false},
		"an extension with something after it": {listOfEntries(t, good, root, []byte{2, 1, 1}, aTime,
			[]byte{0x30, 13, 0x30, 11, 6, 2, 42, 3, 4, 3, 1, 2, 3, 5, 0}), false},
		"an extension without a value":   {listOfEntries(t, good, root, []byte{2, 1, 1}, aTime, []byte{0x30, 6, 0x30, 4, 6, 2, 42, 3}), false},
		"an extension with a bad flag":   {listOfEntries(t, good, root, []byte{2, 1, 1}, aTime, []byte{0x30, 11, 0x30, 9, 6, 2, 42, 3, 1, 1, 1, 4, 0}), false},
		"an extension that is no object": {listOfEntries(t, good, root, []byte{2, 1, 1}, aTime, []byte{0x30, 2, 5, 0}), false},
		"a name in an extension's place": {listOfEntries(t, good, root, []byte{2, 1, 1}, aTime, []byte{0x30, 6, 0x30, 4, 4, 0, 4, 0}), false},
		"extensions twice":               {elementsOfList(t, good, root, 5, []byte{0xa0, 2, 0x30, 0}), false},
		"a byte after the list":          {append(bytes.Clone(good), 0), false},
		"a byte cut off":                 {good[:len(good)-1], false},
		"an element after the signature": {afterSignature(t, good), false},
		"an empty list":                  {[]byte{0x30, 0}, false},
		"an empty TBSCertList":           {[]byte{0x30, 2, 0x30, 0}, false},
		"a version alone":                {[]byte{0x30, 5, 0x30, 3, 2, 1, 1}, false},
		"nothing":                        {nil, false},
		"the largest size, and no list":  {make([]byte, maxCRLSize), false},
		"over the largest size":          {make([]byte, maxCRLSize+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewCRLStore(good, c.der)
			if !c.ok {
				if !errors.Is(err, checkCRL) {
					t.Fatalf("got %v, want %s", err, checkCRL)
				}
				return
			}
			testkit.NoError(t, err)
			checkAgainstX509(t, (*s.set.Load())[1], c.der)
		})
	}
}

// aTime is a UTCTime.
var aTime = []byte("\x17\x0d200101000000Z")

// elementsOfList replaces one element of the TBSCertList, and signs again.
func elementsOfList(t testing.TB, der []byte, ca *tpmlab.CA, n int, element []byte) []byte {
	t.Helper()
	list, err := x509.ParseRevocationList(der)
	testkit.NoError(t, err)
	in, content := cryptobyte.String(list.RawTBSRevocationList), cryptobyte.String(nil)
	if !in.ReadASN1(&content, cbasn1.SEQUENCE) {
		t.Fatal("no SEQUENCE")
	}
	var elements [][]byte
	for !content.Empty() {
		var e cryptobyte.String
		var tag cbasn1.Tag
		if !content.ReadAnyASN1Element(&e, &tag) {
			t.Fatal("no element")
		}
		elements = append(elements, e)
	}
	elements[n] = element
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(bytes.Join(elements, nil)) })
	return signedList(t, b.BytesOrPanic(), elements[1], ca.Key, crypto.SHA256)
}

// listOfEntries is a list with one entry of these elements.
func listOfEntries(t testing.TB, der []byte, ca *tpmlab.CA, elements ...[]byte) []byte {
	t.Helper()
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(bytes.Join(elements, nil)) })
	})
	return elementsOfList(t, der, ca, 5, b.BytesOrPanic())
}

func signedList(t testing.TB, tbs, algorithm []byte, key crypto.Signer, hash crypto.Hash) []byte {
	t.Helper()
	h := hash.New()
	h.Write(tbs)
	signature, err := key.Sign(rand.Reader, h.Sum(nil), hash)
	testkit.NoError(t, err)
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(tbs)
		b.AddBytes(algorithm)
		b.AddASN1BitString(signature)
	})
	return b.BytesOrPanic()
}

// afterSignature is a list with an element too many, which crypto/x509 passes over.
func afterSignature(t testing.TB, der []byte) []byte {
	t.Helper()
	in, content := cryptobyte.String(der), cryptobyte.String(nil)
	if !in.ReadASN1(&content, cbasn1.SEQUENCE) {
		t.Fatal("no SEQUENCE")
	}
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(content)
		b.AddASN1NULL()
	})
	if _, err := x509.ParseRevocationList(b.BytesOrPanic()); err != nil {
		t.Fatal(err)
	}
	return b.BytesOrPanic()
}

// overSHA1 is a list signed again over SHA-1.
func overSHA1(t testing.TB, der []byte, key crypto.Signer) []byte {
	t.Helper()
	algorithm := []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05\x05\x00")
	if _, ok := key.(*ecdsa.PrivateKey); ok {
		algorithm = []byte("\x30\x09\x06\x07\x2a\x86\x48\xce\x3d\x04\x01")
	}
	ca := &tpmlab.CA{Key: key}
	changed, err := x509.ParseRevocationList(der)
	testkit.NoError(t, err)
	in, body, tbs := cryptobyte.String(elementsOfList(t, changed.Raw, ca, 1, algorithm)), cryptobyte.String(nil), cryptobyte.String(nil)
	if !in.ReadASN1(&body, cbasn1.SEQUENCE) || !body.ReadASN1Element(&tbs, cbasn1.SEQUENCE) {
		t.Fatal("no list")
	}
	return signedList(t, tbs, algorithm, key, crypto.SHA1)
}

// renamedCA is a CA's certificate with another name, for the key that it has.
func renamedCA(c *x509.Certificate, name string) *x509.Certificate {
	out := *c
	out.Subject, out.RawSubject = pkix.Name{CommonName: name}, nil
	return &out
}

// checkAgainstX509 holds the reader of entries against crypto/x509's.
func checkAgainstX509(t *testing.T, c *crl, der []byte) {
	t.Helper()
	want, err := x509.ParseRevocationList(der)
	if err != nil {
		t.Fatalf("crypto/x509 refuses it: %v", err)
	}
	if c.numEntries != len(want.RevokedCertificateEntries) || !bytes.Equal(c.tbs, want.RawTBSRevocationList) ||
		!bytes.Equal(c.head.RawIssuer, want.RawIssuer) || !c.head.NextUpdate.Equal(want.NextUpdate) {
		t.Fatal("another list")
	}
	index, revoked := newSerialIndex(c.entries, c.numEntries), map[string]bool{}
	for _, e := range want.RevokedCertificateEntries {
		s := e.SerialNumber.String()
		revoked[s] = revoked[s] || e.ReasonCode != reasonRemoveFromCRL
	}
	for _, e := range want.RevokedCertificateEntries {
		if _, got := index.find(e.SerialNumber); got != revoked[e.SerialNumber.String()] {
			t.Fatalf("serial number %s: revoked %t", e.SerialNumber, got)
		}
	}
}

// FuzzCRL: no list makes a store panic, and what crypto/x509 reads too it reads alike.
func FuzzCRL(f *testing.F) {
	root := tpmlab.Sign(f, nil, "root", crlSigner)
	f.Add(crlOf(f, root, nil, 1, 2, 3))
	f.Add(crlOf(f, root, nil))
	f.Add([]byte{0x30, 0})
	f.Fuzz(func(t *testing.T, der []byte) {
		s, err := NewCRLStore(der)
		if err != nil {
			if !errors.Is(err, checkCRL) {
				t.Fatal(err)
			}
			return
		}
		if _, err := x509.ParseRevocationList(der); err != nil {
			return // invalid times, which are not looked at here
		}
		for _, l := range *s.set.Load() {
			checkAgainstX509(t, l, der)
		}
	})
}
