package attest

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/csr"
)

// crlOf is a revocation list of a CA; edit may change the template.
func crlOf(t testing.TB, ca *testCA, edit func(*x509.RevocationList), serials ...int64) []byte {
	t.Helper()
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: chainTime.Add(-time.Hour), NextUpdate: chainTime.Add(time.Hour)}
	for _, s := range serials {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(s), RevocationTime: chainTime.Add(-2 * time.Hour), ReasonCode: 1})
	}
	if edit != nil {
		edit(template)
	}
	signer := *ca.cert
	signer.KeyUsage |= x509.KeyUsageCRLSign
	der, err := x509.CreateRevocationList(rand.Reader, template, &signer, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func crlSigner(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }

// revoking is a verifier with revocation lists, and an EK certificate with serial 77
// below an intermediate with serial 5.
func revoking(t *testing.T, require bool, lists func(root, middle *testCA) [][]byte) error {
	t.Helper()
	root := sign(t, nil, "root", crlSigner)
	middle := sign(t, root, "middle", func(c *x509.Certificate) { crlSigner(c); c.SerialNumber = big.NewInt(5) })
	leaf := ekCert(t, middle, newTestKey(t).Public(), nil)
	store, err := NewCRLStore(lists(root, middle)...)
	if err != nil {
		t.Fatal(err)
	}
	c := trusting(EKProfileTCG(), root)
	c.Issuers[0].CRLs, c.Issuers[0].RequireCRL = store, require
	v := ekVerifierOf(t, c)
	_, err = verifyAt(v, chainTime, leaf, middle.cert)
	_, again := verifyAt(v, chainTime, leaf, middle.cert) // signatures from memory
	if (err == nil) != (again == nil) {
		t.Errorf("%v, then %v", err, again)
	}
	return err
}

func TestRevocation(t *testing.T) {
	late := func(l *x509.RevocationList) { l.NextUpdate = chainTime.Add(-time.Second) }
	early := func(l *x509.RevocationList) { l.ThisUpdate = chainTime.Add(time.Second) }
	removed := func(l *x509.RevocationList) { l.RevokedCertificateEntries[0].ReasonCode = reasonRemoveFromCRL }
	for name, c := range map[string]struct {
		lists            func(root, middle *testCA) [][]byte
		plain, requiring Check
	}{
		"no lists":        {func(root, middle *testCA) [][]byte { return nil }, "", CheckRevocationUnknown},
		"nothing revoked": {func(root, middle *testCA) [][]byte { return [][]byte{crlOf(t, root, nil), crlOf(t, middle, nil)} }, "", ""},
		"leaf": {func(root, middle *testCA) [][]byte {
			return [][]byte{crlOf(t, root, nil), crlOf(t, middle, nil, 1, 77)}
		}, CheckRevoked, CheckRevoked},
		"intermediate": {func(root, middle *testCA) [][]byte { return [][]byte{crlOf(t, root, nil, 5), crlOf(t, middle, nil)} }, CheckRevoked, CheckRevoked},
		"others": {func(root, middle *testCA) [][]byte {
			return [][]byte{crlOf(t, root, nil, 77), crlOf(t, middle, nil, 5)}
		}, "", ""},
		"taken back": {func(root, middle *testCA) [][]byte {
			return [][]byte{crlOf(t, root, nil), crlOf(t, middle, removed, 77)}
		}, "", ""},
		"one missing": {func(root, middle *testCA) [][]byte { return [][]byte{crlOf(t, middle, nil)} }, "", CheckRevocationUnknown},
		"late":        {func(root, middle *testCA) [][]byte { return [][]byte{crlOf(t, root, nil), crlOf(t, middle, late)} }, CheckRevocationUnknown, CheckRevocationUnknown},
		"early":       {func(root, middle *testCA) [][]byte { return [][]byte{crlOf(t, root, nil), crlOf(t, middle, early)} }, CheckRevocationUnknown, CheckRevocationUnknown},
		"late and current": {func(root, middle *testCA) [][]byte {
			return [][]byte{crlOf(t, middle, late), crlOf(t, middle, nil), crlOf(t, root, nil)}
		}, "", ""},
		"revoked long ago": {func(root, middle *testCA) [][]byte {
			return [][]byte{crlOf(t, middle, late, 77), crlOf(t, middle, nil), crlOf(t, root, nil)}
		}, CheckRevoked, CheckRevoked},
		"forged": {func(root, middle *testCA) [][]byte {
			forger := sign(t, nil, "middle", func(c *x509.Certificate) { crlSigner(c); c.SubjectKeyId = middle.cert.SubjectKeyId })
			return [][]byte{crlOf(t, forger, nil, 77), crlOf(t, root, nil)}
		}, "", CheckRevocationUnknown},
	} {
		for require, want := range map[bool]Check{false: c.plain, true: c.requiring} {
			err := revoking(t, require, c.lists)
			if want == "" && err != nil || want != "" && !errors.Is(err, want) {
				t.Errorf("%s, required %t: got %v, want %q", name, require, err, want)
			}
			if want == CheckRevocationUnknown && !errors.Is(err, csr.ErrRetry) {
				t.Errorf("%s: %v is no reason to try again", name, err)
			}
		}
	}
}

// A CA whose key usage lacks cRLSign signs no list.
func TestRevocationListOfNoSigner(t *testing.T) {
	root := sign(t, nil, "root", nil)
	leaf := ekCert(t, root, newTestKey(t).Public(), nil)
	store, err := NewCRLStore(crlOf(t, root, nil))
	if err != nil {
		t.Fatal(err)
	}
	c := trusting(EKProfileTCG(), root)
	c.Issuers[0].CRLs, c.Issuers[0].RequireCRL = store, true
	if _, err := verifyAt(ekVerifierOf(t, c), chainTime, leaf); !errors.Is(err, CheckRevocationUnknown) {
		t.Errorf("%v", err)
	}
}

// A revoked certificate is refused though its key is on the list; the lists of a store
// can be replaced under way.
func TestRevokedBeatsAllowed(t *testing.T) {
	root := sign(t, nil, "root", crlSigner)
	leaf := ekCert(t, root, newTestKey(t).Public(), nil)
	p, err := readEK([][]byte{leaf.Raw}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := &CRLStore{}
	c := trusting(EKProfileTCG(), root)
	c.Issuers[0].CRLs = store
	c.Allowed = []Identity{p.identity()}
	v := ekVerifierOf(t, c)
	if _, err := verifyAt(v, chainTime, leaf); err != nil {
		t.Errorf("an empty store: %v", err)
	}
	if err := store.Replace(crlOf(t, root, nil, 77)); err != nil {
		t.Fatal(err)
	}
	_, err = verifyAt(v, chainTime, leaf)
	wantEKCheck(t, "revoked", err, CheckRevoked, "certificate 4d of CN=root, revoked for reason 1")
	if err := store.Replace([]byte("no list")); !errors.Is(err, CheckCRL) {
		t.Errorf("bad list: %v", err)
	}
	if _, err := verifyAt(v, chainTime, leaf); !errors.Is(err, CheckRevoked) {
		t.Errorf("a bad list emptied the store: %v", err)
	}
	if err := store.Replace(); err != nil {
		t.Fatal(err)
	}
	if _, err := verifyAt(v, chainTime, leaf); err != nil {
		t.Errorf("emptied: %v", err)
	}
}

// Lists that say more than this package understands are refused whole.
func TestCRLKinds(t *testing.T) {
	root := sign(t, nil, "root", crlSigner)
	good := crlOf(t, root, nil, 7)
	if _, err := NewCRLStore(good); err != nil {
		t.Fatal(err)
	}
	critical := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}
	for name, der := range map[string][]byte{
		"delta": crlOf(t, root, func(l *x509.RevocationList) { l.ExtraExtensions = append(l.ExtraExtensions, critical) }),
		"indirect": crlOf(t, root, func(l *x509.RevocationList) {
			l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{critical}
		}, 7),
		"trailing": append(bytes.Clone(good), 0),
		"cut":      good[:len(good)-1],
		"empty":    nil,
		"large":    make([]byte, MaxCRLSize+1),
	} {
		if _, err := NewCRLStore(good, der); !errors.Is(err, CheckCRL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Lists over SHA-1 count under the same tolerance as links over SHA-1.
func TestCRLOverSHA1(t *testing.T) {
	keys := rsaTestKeys()
	root := rsaCA(t, nil, "root", keys[0], nil)
	leaf := sha1Signed(t, ekCert(t, root, newTestKey(t).Public(), nil), keys[0])
	list := sha1SignedCRL(t, crlOf(t, root, nil, 77), keys[0])
	forged := sha1SignedCRL(t, crlOf(t, root, nil, 77), keys[1])
	for want, der := range map[Check][]byte{CheckRevoked: list, CheckRevocationUnknown: forged} {
		store, err := NewCRLStore(der)
		if err != nil {
			t.Fatal(err)
		}
		c := trusting(allowingSHA1(), root)
		c.Issuers[0].CRLs, c.Issuers[0].RequireCRL = store, true
		if _, err := verifyAt(ekVerifierOf(t, c), chainTime, leaf); !errors.Is(err, want) {
			t.Errorf("got %v, want %s", err, want)
		}
		strict := trusting(EKProfileTCG(), root)
		strict.Issuers[0].CRLs, strict.Issuers[0].RequireCRL = store, true
		leaf := ekCert(t, root, newTestKey(t).Public(), nil)
		if _, err := verifyAt(ekVerifierOf(t, strict), chainTime, leaf); !errors.Is(err, CheckRevocationUnknown) {
			t.Errorf("without the tolerance: %v", err)
		}
	}
}

func sha1SignedCRL(t *testing.T, der []byte, key *rsa.PrivateKey) []byte {
	t.Helper()
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		t.Fatal(err)
	}
	with256 := []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00")
	with1 := []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05\x05\x00")
	tbs := bytes.Replace(list.RawTBSRevocationList, with256, with1, 1)
	sum := sha1.Sum(tbs)
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA1, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(tbs)
		b.AddBytes(with1)
		b.AddASN1BitString(signature)
	})
	return b.BytesOrPanic()
}

// FuzzCRL: no list makes a store panic, and a list that it takes it takes again.
func FuzzCRL(f *testing.F) {
	root := sign(f, nil, "root", crlSigner)
	f.Add(crlOf(f, root, nil, 1, 2, 3))
	f.Add(crlOf(f, root, nil))
	f.Add([]byte{0x30, 0})
	f.Fuzz(func(t *testing.T, der []byte) {
		s, err := NewCRLStore(der)
		if err != nil {
			if !errors.Is(err, CheckCRL) {
				t.Fatal(err)
			}
			return
		}
		for _, lists := range s.lists {
			if !bytes.Equal(lists[0].list.Raw, der) {
				t.Fatal("another list")
			}
		}
	})
}
