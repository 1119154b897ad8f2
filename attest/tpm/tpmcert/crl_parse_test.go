package tpmcert

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"math/big"
	"runtime"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// A list of the largest size costs a small multiple of its bytes, and nothing for its
// entries before the signature has been verified.
func TestLargestCRL(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	small := crlOf(t, root, nil, 1)
	der := listOfSize(t, small, root, maxCRLSize)
	if len(der) != maxCRLSize {
		t.Fatalf("%d bytes", len(der))
	}
	var store *CRLStore
	if got := allocated(func() { store = storeOf(t, der) }); got > maxCRLSize+1<<20 {
		t.Errorf("%d bytes allocated for a list of %d", got, len(der))
	}
	if _, err := NewCRLStore(listOfSize(t, small, root, maxCRLSize+1)); !errors.Is(err, checkCRL) {
		t.Errorf("a byte more: got %v, want %s", err, checkCRL)
	}
	list := (*store.set.Load())[0]
	if list.revoked != nil {
		t.Error("entries were read before the signature")
	}
	if list.isSignedBy(tpmlab.Sign(t, nil, "root", crlSigner).Cert); list.revoked != nil {
		t.Error("entries were read without a signature")
	}
	if got := allocated(func() { list.isSignedBy(root.Cert) }); got > maxCRLSize {
		t.Errorf("%d bytes allocated for the entries of a list of %d", got, len(der))
	}
	leaf := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil)
	if _, revoked := list.revoked.find(leaf.SerialNumber); !revoked {
		t.Error("an entry was not found")
	}
	if _, revoked := list.revoked.find(root.Cert.SerialNumber); revoked {
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
func listOfSize(t testing.TB, der []byte, ca *tpmlab.CA, size int) []byte {
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
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	serials := []int64{0, 1, 127, 128, 255, 256, 1<<62 + 1, 5, 5, 5, 5}
	for n := range 200 {
		serials = append(serials, int64(1000+3*n))
	}
	der := crlOf(t, root, nil, serials...)
	list, err := parseCRL(der)
	testkit.NoError(t, err)
	checkAgainstX509(t, list, der)
	index := newSerialIndex(list.entries, list.numEntries)
	for _, absent := range []int64{2, 126, 129, 1001, 1002, -1, -128, -5} {
		if _, revoked := index.find(big.NewInt(absent)); revoked {
			t.Errorf("%d is not on the list", absent)
		}
	}
	negative, err := parseCRL(listOfEntries(t, der, root, []byte{2, 1, 0xff}, aTime))
	testkit.NoError(t, err)
	index = newSerialIndex(negative.entries, 1)
	if _, revoked := index.find(big.NewInt(255)); revoked {
		t.Error("255 is not -1")
	}
	if _, revoked := index.find(big.NewInt(-1)); !revoked {
		t.Error("-1 is on the list")
	}
	index = newSerialIndex(nil, 0)
	if _, revoked := index.find(big.NewInt(1)); revoked {
		t.Error("an empty list revokes")
	}
}

// A list remembers which keys signed it, and of those no more than a bound.
func TestListRemembersSigners(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	list, err := parseCRL(crlOf(t, root, nil, 77))
	testkit.NoError(t, err)
	for n := range maxCRLSigners + 2 {
		other := *root.Cert
		other.RawSubjectPublicKeyInfo = append(bytes.Clone(root.Cert.RawSubjectPublicKeyInfo), byte(n))
		other.PublicKey = rsaTestKeys()[0].Public()
		if list.isSignedBy(&other) || !list.isSignedBy(root.Cert) || len(list.signers) > maxCRLSigners {
			t.Fatalf("key %d: %d keys remembered", n, len(list.signers))
		}
	}
}

// A CA whose key stands as RSAES-OAEP signs lists as any other.
func TestListOfOAEPKey(t *testing.T) {
	key := rsaTestKeys()[0]
	root := rsaCA(t, nil, "root", key, nil)
	list, err := parseCRL(crlOf(t, root, nil, 77))
	testkit.NoError(t, err)
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
