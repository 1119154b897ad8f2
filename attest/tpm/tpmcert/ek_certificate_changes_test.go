package tpmcert

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// derNode is an element of DER with those inside it, or with its content.
type derNode struct {
	tag      cbasn1.Tag
	content  []byte
	children []*derNode
}

// readDER reads what stands in constructed elements, and in BIT STRINGs of whole octets
// that hold a SEQUENCE.
func readDER(t testing.TB, in cryptobyte.String) (nodes []*derNode) {
	t.Helper()
	for !in.Empty() {
		n := &derNode{}
		var content cryptobyte.String
		if !in.ReadAnyASN1(&content, &n.tag) {
			t.Fatal("no DER")
		}
		n.content = content
		switch {
		case n.tag&0x20 != 0:
			n.children = readDER(t, content)
		case n.tag == cbasn1.BIT_STRING && len(content) > 1 && content[0] == 0 && content[1] == 0x30:
			n.children = readDER(t, content[1:])
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (n *derNode) add(b *cryptobyte.Builder) {
	b.AddASN1(n.tag, func(b *cryptobyte.Builder) {
		if n.children == nil {
			b.AddBytes(n.content)
			return
		}
		if n.tag == cbasn1.BIT_STRING {
			b.AddUint8(0)
		}
		for _, c := range n.children {
			c.add(b)
		}
	})
}

// derChanges are all changes to one element of der: removed, of another tag, empty, with
// something after it. Names are paths: "0.1 removed" is the second child of the first.
func derChanges(t testing.TB, der []byte) map[string][]byte {
	t.Helper()
	root := &derNode{children: readDER(t, der)}
	out := map[string][]byte{}
	note := func(name string) {
		var b cryptobyte.Builder
		for _, n := range root.children {
			n.add(&b)
		}
		out[name] = b.BytesOrPanic()
	}
	var walk func(parent *derNode, path string)
	walk = func(parent *derNode, path string) {
		for n := range parent.children {
			here, saved := fmt.Sprintf("%s.%d", path, n)[1:], slices.Clone(parent.children)
			if path == "" {
				here = fmt.Sprint(n)
			}
			own := *saved[n]
			parent.children = slices.Delete(slices.Clone(saved), n, n+1)
			if parent.content = nil; len(parent.children) == 0 {
				parent.children = []*derNode{}
			}
			note(here + " removed")
			parent.children = slices.Insert(slices.Clone(saved), n+1, &derNode{tag: cbasn1.NULL})
			note(here + " with a NULL after it")
			parent.children = slices.Clone(saved)
			other := own
			if other.tag ^= 0x40; own.tag == cbasn1.BIT_STRING {
				other = derNode{tag: 0x43, content: own.content}
			}
			parent.children[n] = &other
			note(here + " of another tag")
			parent.children[n] = &derNode{tag: own.tag}
			note(here + " empty")
			parent.children = saved
			walk(saved[n], "."+here)
		}
	}
	walk(root, "")
	return out
}

// refusesChanges demands that every change of der is refused, except the named ones, which must not
// be.
func refusesChanges(t *testing.T, der []byte, read func([]byte) error, want refusal.Check, accepted ...string) {
	t.Helper()
	testkit.NoError(t, read(der))
	changes := derChanges(t, der)
	for _, name := range accepted {
		if _, ok := changes[name]; !ok {
			t.Errorf("no change %q", name)
		}
	}
	for name, changed := range changes {
		err := read(changed)
		if ok := slices.Contains(accepted, name); ok && err != nil || !ok && !errors.Is(err, want) {
			t.Errorf("%s: got %v, want it refused: %t\n%x", name, err, !ok, changed)
		}
	}
}

func TestOAEPKeyChanges(t *testing.T) {
	key := rsaTestKeys()[0].Public().(*rsa.PublicKey)
	read := func(der []byte) error {
		got, err := oaepKey(der)
		if err == nil && !got.Equal(key) {
			return errors.New("another key")
		}
		return err
	}
	// The parameters may be a SEQUENCE, NULL or absent.
	refusesChanges(t, oaepSPKI(key, []byte{0x30, 0}), read, checkEKKeyEncoding, "0.0.1 removed", "0.0.1 empty")
	refusesChanges(t, oaepSPKI(key, []byte{5, 0}), read, checkEKKeyEncoding, "0.0.1 removed", "0.0.1 empty")
	for name, c := range map[string]struct {
		key *rsa.PublicKey
		ok  bool
	}{
		"the largest exponent": {&rsa.PublicKey{N: key.N, E: 1<<31 - 1}, true},
		"one above":            {&rsa.PublicKey{N: key.N, E: 1 << 31}, false},
		"exponent 1":           {&rsa.PublicKey{N: key.N, E: 1}, true},
		"exponent 0":           {&rsa.PublicKey{N: key.N, E: 0}, false},
		"a negative exponent":  {&rsa.PublicKey{N: key.N, E: -3}, false},
		"modulus 1":            {&rsa.PublicKey{N: big.NewInt(1), E: 3}, true},
		"modulus 0":            {&rsa.PublicKey{N: big.NewInt(0), E: 3}, false},
		"a negative modulus":   {&rsa.PublicKey{N: big.NewInt(-5), E: 3}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := oaepKey(oaepSPKI(c.key, nil))
			if !c.ok && !errors.Is(err, checkEKKeyEncoding) || c.ok && (err != nil || got.E != c.key.E || got.N.Cmp(c.key.N) != 0) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	for name, c := range map[string][]byte{
		"a NULL with content":    oaepSPKI(key, []byte{5, 1, 0}),
		"an OCTET STRING":        oaepSPKI(key, []byte{4, 0}),
		"bits left over":         bytes.Replace(oaepSPKI(key, nil), []byte{3, 0x82, 1, 15, 0}, []byte{3, 0x82, 1, 15, 1}, 1),
		"rsaEncryption":          x509.MarshalPKCS1PublicKey(key),
		"another algorithm":      testkit.Must(x509.MarshalPKIXPublicKey(key)),
		"nothing":                nil,
		"a byte after it":        append(oaepSPKI(key, nil), 0),
		"two parameters":         oaepSPKI(key, []byte{5, 0, 5, 0}),
		"parameters that are no": oaepSPKI(key, []byte{5}),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := oaepKey(c); !errors.Is(err, checkEKKeyEncoding) {
				t.Errorf("got %v, want %s", err, checkEKKeyEncoding)
			}
		})
	}
}

func TestSpecificationChanges(t *testing.T) {
	good := tpmlab.Specification("2.0", 0, 138)
	read := func(der []byte) error {
		s, err := parseSpecification(&x509.Certificate{Extensions: []pkix.Extension{{Id: good.Id, Value: der}}})
		if err == nil && s != nil && *s != (TPMSpecification{"2.0", 0, 138}) {
			return errors.New("another one")
		}
		return err
	}
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			oid.Add(b, oid.CommonName)
			b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) { der.AddText(b, "x") })
		})
		b.AddBytes(good.Value[2:])
	})
	// What stands in another attribute is passed over, and so is that attribute.
	refusesChanges(t, b.BytesOrPanic(), read, checkSpecification, "0 empty", "0.0 removed", "0.1 removed", "0.0.1 empty", "0.0.1.0 removed", "0.0.1.0 with a NULL after it",
		"0.0.1.0 of another tag", "0.0.1.0 empty")
	for size, ok := range map[int]bool{1: true, 16: true, 17: false} {
		s, err := parseSpecification(&x509.Certificate{Extensions: []pkix.Extension{tpmlab.Specification(string(bytes.Repeat([]byte("2"), size)), 0, 0)}})
		if (err == nil) != ok || err == nil && len(s.Family) != size {
			t.Errorf("a family of %d: %v", size, err)
		}
	}
}

func TestSubjectAltNameChanges(t *testing.T) {
	good := tpmlab.Seq(tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer}, []tpmlab.Attribute{model, version}), otherNameOf("\x2a\x03", []byte{0x0c, 1, 'x'}))
	want := DirectoryName{Manufacturer: "id:494E5443", Vendor: "INTC", Model: "ADL", Version: "id:00010002"}
	read := func(der []byte) error {
		san, err := parseSubjectAltName(withSAN(true, der))
		if err == nil && san.directory != want {
			return nil // an attribute less is for the profile to judge
		}
		return err
	}
	// A whole name, RDN or attribute may be absent, empty values are for the profile, the
	// OtherName's value is anything in DER, and an unknown form is refused as the extension is
	// critical.
	refusesChanges(t, good, read, checkSubjectAltName,
		"0.0 removed", "0.0.0.0 removed", "0.0.0.1 removed", "0.0.0.1.0 removed", "0.0.0.1.1 removed", "0.0.0 empty",
		"0.0.0.0 empty", "0.0.0.1 empty", "0.0.0.1.0.1 empty", "0.0.0.1.1.1 empty", "0.0.0.0.0 removed",
		"0.1 removed", "0.1.1.0 of another tag", "0.1.1.0 empty")
}

// A directory name is whole with manufacturer, model and version, and not with two of
// them.
func TestWholeDirectoryName(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	for name, c := range map[string]struct {
		attributes []tpmlab.Attribute
		ok         bool
	}{
		"whole":            {[]tpmlab.Attribute{manufacturer, model, version}, true},
		"no manufacturer":  {[]tpmlab.Attribute{model, version}, false},
		"no model":         {[]tpmlab.Attribute{manufacturer, version}, false},
		"no version":       {[]tpmlab.Attribute{manufacturer, model}, false},
		"an empty model":   {[]tpmlab.Attribute{manufacturer, {ID: oid.TCGAtTPMModel, Value: ""}, version}, false},
		"an empty version": {[]tpmlab.Attribute{manufacturer, model, {ID: oid.TCGAtTPMVersion, Value: ""}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), func(cert *x509.Certificate) {
				cert.ExtraExtensions[0].Value = tpmlab.Seq(tpmlab.DirectoryName(c.attributes))
			})
			_, err := verifyAt(ekVerifierOf(t, trusting(EKProfileTCG(), root)), tpmlab.Time, leaf)
			if (err == nil) != c.ok || err != nil && !errors.Is(err, checkSubjectAltName) {
				t.Errorf("got %v", err)
			}
			ak := ProfileTCG()
			ak.RequireDirectoryName = true
			cert := tpmlab.Sign(t, root, "ak", func(cert *x509.Certificate) {
				leafTemplate(cert)
				cert.ExtraExtensions = append(cert.ExtraExtensions, pkix.Extension{Id: []int{2, 5, 29, 17}, Value: tpmlab.Seq(tpmlab.DirectoryName(c.attributes))})
			}).Cert
			_, err = VerifyAKCertificate([]Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: ak}}, [][]byte{cert.Raw}, tpmlab.Time)
			if (err == nil) != c.ok || err != nil && !errors.Is(err, checkSubjectAltName) {
				t.Errorf("AK: got %v", err)
			}
		})
	}
	t.Run("an attribute twice, empty the first time", func(t *testing.T) {
		san := tpmlab.Seq(tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer, {ID: oid.TCGAtTPMModel, Value: ""}, model, version}))
		if _, err := parseSubjectAltName(withSAN(true, san)); !errors.Is(err, checkSubjectAltName) {
			t.Errorf("got %v, want %s", err, checkSubjectAltName)
		}
	})
}

// Sizes at their limits, and one above.
func TestEKSizes(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	good := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil).Raw
	for size, ok := range map[int]bool{maxEKCertificateSize: true, maxEKCertificateSize + 1: false} {
		padded := append(bytes.Clone(good), make([]byte, size-len(good))...)
		if _, err := ParseEK(padded); (err == nil) != ok || err != nil && !errors.Is(err, der.CheckSize) {
			t.Errorf("%d bytes of certificate: %v", size, err)
		}
	}
	for size, want := range map[int]refusal.Check{der.MaxPublicSize: checkEKKeyEncoding, der.MaxPublicSize + 1: der.CheckSize} {
		if _, err := parseEKPublic(make([]byte, size)); !errors.Is(err, want) {
			t.Errorf("%d bytes of EK: %v", size, err)
		}
	}
}

// Keys that crypto/x509 reads and that are no EKs are refused without a certificate too.
func TestBareEKStrength(t *testing.T) {
	key := rsaTestKeys()[0].PublicKey
	for name, c := range map[string]struct {
		key  *rsa.PublicKey
		want refusal.Check
	}{
		"good":       {&key, ""},
		"exponent 3": {&rsa.PublicKey{N: key.N, E: 3}, refusal.Check("tpm-key-strength")},
		"1024 bits":  {&rsa.PublicKey{N: new(big.Int).Rsh(key.N, 1024), E: 65537}, refusal.Check("tpm-key-strength")},
	} {
		t.Run(name, func(t *testing.T) {
			spki, err := csr.CanonicalSPKI(c.key)
			testkit.NoError(t, err)
			_, err = parseEKPublic(spki)
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
