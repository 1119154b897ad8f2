package statement

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/binary"
	"math/big"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// keyWithZero is a P-256 key whose X and Y begin with a zero byte: one in 65536.
var keyWithZero = sync.OnceValue(func() *ecdsa.PublicKey {
	// Adding the generator again and again is cheaper than making keys.
	c := elliptic.P256()
	g := c.Params()
	x, y := g.Gx, g.Gy
	for i := 0; ; i++ {
		//nolint:staticcheck // no other way to walk the curve, and no secret is near
		x, y = c.Add(x, y, g.Gx, g.Gy)
		if i == 0 || x.BitLen() > 248 || y.BitLen() > 248 {
			continue
		}
		point := append([]byte{4}, append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)...)
		k, err := ecdsa.ParseUncompressedPublicKey(c, point)
		if err != nil {
			panic(err)
		}
		return k
	}
})

func TestHasNameWidths(t *testing.T) {
	full := publicArea(t, keyWithZero(), testSoftwareAttributes, noScheme)
	if full.X[0] != 0 || full.Y[0] != 0 || len(full.X) != 32 || len(full.Y) != 32 {
		t.Fatalf("no zero bytes in %x, %x", full.X, full.Y)
	}
	forms := map[string]*Public{
		"both padded": full,
		"X narrow":    changed(t, full, func(p *Public) { p.X = p.X[1:] }),
		"Y narrow":    changed(t, full, func(p *Public) { p.Y = p.Y[1:] }),
		"both narrow": changed(t, full, func(p *Public) { p.X, p.Y = p.X[1:], p.Y[1:] }),
	}
	for given, p := range forms {
		for hashed, named := range forms {
			if !p.HasName(named.Name()) {
				t.Errorf("%s given, %s in the Name: refused", given, hashed)
			}
			if !p.SameKey(keyWithZero()) {
				t.Errorf("%s: another key", given)
			}
			if !p.sameKeyAs(named) {
				t.Errorf("%s and %s: two keys", given, hashed)
			}
		}
		for _, other := range []*Public{
			changed(t, p, func(p *Public) { p.Attributes |= 1 << 10 }),
			changed(t, p, func(p *Public) { p.X, p.Y = p.Y, p.X }),
			changed(t, p, func(p *Public) { p.X = append([]byte{0, 0}, p.X...) }),
			changed(t, p, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA384 }),
			changed(t, p, func(p *Public) { p.Scheme = schemeECDSA }),
		} {
			if p.HasName(other.Name()) {
				t.Errorf("%s: has the Name of another area", given)
			}
		}
		if !bytes.Equal(p.Name()[2:], sum256(p.Raw)) {
			t.Errorf("%s: Name is not over the received bytes", given)
		}
	}
}

func sum256(b []byte) []byte { d := sha256.Sum256(b); return d[:] }

// TestVerifyCertifyWidths: a TPM that hashed 31 bytes, and a public area that was
// written with 32, and the reverse.
func TestVerifyCertifyWidths(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	wide := publicArea(t, keyWithZero(), testResidentAttributes, noScheme)
	narrow := changed(t, wide, func(p *Public) { p.X, p.Y = p.X[1:], p.Y[1:] })
	for _, row := range [][2]*Public{{wide, narrow}, {narrow, wide}, {wide, wide}, {narrow, narrow}} {
		f := goodForgery(t, ak, keyWithZero())
		f.certify(row[0])
		f.public = row[1]
		if got := f.verify(t, ""); !got.TPMResident {
			t.Error("not resident")
		}
		// Not even here is the stated Name trusted.
		f.public = changed(t, row[1], func(p *Public) { p.Attributes |= 1 << 10 })
		f.verify(t, checkCertifiedName)
	}
}

func TestNameOfEveryAlgorithm(t *testing.T) {
	for alg, size := range map[tpm2.TPMAlgID]int{
		tpm2.TPMAlgSHA1: 20, tpm2.TPMAlgSHA256: 32, tpm2.TPMAlgSHA384: 48, tpm2.TPMAlgSHA512: 64,
	} {
		p := publicArea(t, tpmlab.P256().Public(), testSoftwareAttributes, noScheme)
		p = changed(t, p, func(p *Public) { p.NameAlg = alg })
		name := p.Name()
		g, err := tpm2.Unmarshal[tpm2.TPMTPublic](p.Raw)
		testkit.NoError(t, err)
		want, err := tpm2.ObjectName(g)
		if err != nil || !bytes.Equal(name, want.Buffer) || len(name) != 2+size || !p.HasName(name) || !isName(name) {
			t.Errorf("%v: got %x, go-tpm has %x (%v)", alg, name, want.Buffer, err)
		}
		for _, bad := range [][]byte{nil, name[:1], name[:2], name[:len(name)-1], append(bytes.Clone(name), 0), name[2:]} {
			if p.HasName(bad) || isName(bad) {
				t.Errorf("%v: %x is taken for the Name", alg, bad)
			}
		}
	}
	var zero Public
	if zero.HasName(nil) || zero.HasName([]byte{0, 0}) {
		t.Error("the zero value has a Name")
	}
	unread := &Public{Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256, Curve: tpm2.TPMECCNistP256, X: []byte{1}, Y: []byte{1}}
	if unread.HasName(tpmlab.DigestName(1)) {
		t.Error("an area without received bytes has a Name")
	}
}

func TestQualifiedName(t *testing.T) {
	name := tpmlab.DigestName(0x22)
	primary := QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, name)
	want := append([]byte{0, 0x0b}, sum256(append([]byte{0x40, 0, 0, 0x0b}, name...))...)
	if !bytes.Equal(primary, want) {
		t.Errorf("got %x, want %x", primary, want)
	}
	child := QualifiedName(primary, tpmlab.DigestName(0x33))
	want = append([]byte{0, 0x0b}, sum256(append(bytes.Clone(primary), tpmlab.DigestName(0x33)...))...)
	if !bytes.Equal(child, want) {
		t.Errorf("got %x, want %x", child, want)
	}
	if QualifiedName(primary, nil) != nil || QualifiedName(primary, binary.BigEndian.AppendUint32(nil, uint32(tpm2.TPMRHOwner))) != nil ||
		QualifiedName(make([]byte, message.MaxNameSize+1), name) != nil || QualifiedNameOfPrimary(tpm2.TPMRHOwner, name[:33]) != nil {
		t.Error("a Qualified Name of what is no Name")
	}
}

// naiveNames computes every Name that a public area may have the slow way: through
// go-tpm, with each coordinate as a number.
func naiveNames(t *testing.T, p *Public) [][]byte {
	t.Helper()
	names := [][]byte{}
	x, y := [][]byte{p.X}, [][]byte{p.Y}
	if p.Type == tpm2.TPMAlgECC && len(p.X) > 0 && len(p.Y) > 0 {
		width := map[tpm2.TPMECCCurve]int{tpm2.TPMECCNistP256: 32, tpm2.TPMECCNistP384: 48, tpm2.TPMECCNistP521: 66}[p.Curve]
		if len(p.X) <= width && len(p.Y) <= width {
			x = append(x, new(big.Int).SetBytes(p.X).FillBytes(make([]byte, width)), new(big.Int).SetBytes(p.X).Bytes())
			y = append(y, new(big.Int).SetBytes(p.Y).FillBytes(make([]byte, width)), new(big.Int).SetBytes(p.Y).Bytes())
		}
	}
	for _, x := range x {
		for _, y := range y {
			again := *p
			again.X, again.Y = x, y
			raw, err := again.Marshal()
			testkit.NoError(t, err)
			h := map[tpm2.TPMAlgID]crypto.Hash{tpm2.TPMAlgSHA1: crypto.SHA1, tpm2.TPMAlgSHA256: crypto.SHA256,
				tpm2.TPMAlgSHA384: crypto.SHA384, tpm2.TPMAlgSHA512: crypto.SHA512}[p.NameAlg].New()
			h.Write(raw)
			names = append(names, h.Sum(binary.BigEndian.AppendUint16(nil, uint16(p.NameAlg))))
		}
	}
	return names
}

// FuzzHasName holds HasName against the slow way.
func FuzzHasName(f *testing.F) {
	wide := publicArea(f, keyWithZero(), testResidentAttributes, noScheme)
	f.Add(wide.Raw, wide.Name())
	f.Add(wide.Raw, changed(f, wide, func(p *Public) { p.X = p.X[1:] }).Name())
	f.Add(publicSeeds(f)["GCE AK"], tpmlab.DigestName(1))
	f.Fuzz(func(t *testing.T, area, name []byte) {
		p, err := ParsePublic(area)
		if err != nil {
			return
		}
		want := false
		for _, one := range naiveNames(t, p) {
			want = want || bytes.Equal(one, name)
			if !p.HasName(one) {
				t.Fatalf("%x has not the Name %x", area, one)
			}
		}
		if p.HasName(name) != want {
			t.Fatalf("HasName(%x) of %x is %v, the slow way says %v", name, area, !want, want)
		}
	})
}
