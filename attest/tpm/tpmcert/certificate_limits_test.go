package tpmcert

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// private is an unknown extension.
func private(value []byte, arcs ...int) pkix.Extension {
	return pkix.Extension{Id: append(asn1.ObjectIdentifier{2, 999}, arcs...), Value: value}
}

// withElements adds an extension that makes a certificate one of so many elements.
func withElements(t testing.TB, c *tpmlab.Cert, elements int) {
	t.Helper()
	now, err := der.CountElements("a certificate", c.Sign(t, nil), 1<<20)
	testkit.NoError(t, err)
	// SEQUENCE { OBJECT IDENTIFIER, OCTET STRING { SEQUENCE { NULL … } } }
	c.Extensions = append(c.Extensions, private(tpmlab.Seq(bytes.Repeat([]byte{5, 0}, elements-now-4))))
}

// What can repeat in a certificate is bounded before anything is made of it or compared with it,
// in a machine's as in a CA's, and no certificate that is known comes near a bound.
func TestListsInCertificates(t *testing.T) {
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		own, other := oid.TCGKpAIKCertificate, oid.OID("\x2a\x03")
		if road == attest.RoadEK {
			own = oid.TCGKpEKCertificate
		}
		usages := func(n int) func(*tpmlab.Cert) {
			return func(c *tpmlab.Cert) {
				c.Extensions = slices.DeleteFunc(c.Extensions, func(e pkix.Extension) bool { return oid.ExtendedKeyUsage.Equal(e.Id) })
				c.Extensions = append(c.Extensions, tpmlab.Usages(append(slices.Repeat([]oid.OID{other}, n-1), own)...))
			}
		}
		elements := func(n int) func(*tpmlab.Cert) { return func(c *tpmlab.Cert) { withElements(t, c, n) } }
		policies := func(n int) func(*tpmlab.Cert) {
			return func(c *tpmlab.Cert) {
				var list [][]byte
				for i := range n {
					list = append(list, tpmlab.Seq([]byte{6, 2, 0x2a, byte(i)}))
				}
				c.Extensions = append(c.Extensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 32}, Value: tpmlab.Seq(list...)})
			}
		}
		identifier := func(arcs int) func(*tpmlab.Cert) {
			return func(c *tpmlab.Cert) {
				c.Extensions = append(c.Extensions, private([]byte{5, 0}, slices.Repeat([]int{1}, arcs-2)...)) // 2.999 has two bytes
			}
		}
		for name, c := range map[string]struct {
			change func(*tpmlab.Cert)
			want   refusal.Check
		}{
			"as many usages as may be":   {usages(32), ""},
			"one usage more":             {usages(33), checkCertificateExtKeyUsage},
			"a usage again and again":    {usages(1100), der.CheckSize},
			"as many policies as may be": {policies(32), ""},
			"one policy more":            {policies(33), der.CheckSize},
			"as many elements as may be": {elements(256), ""},
			"one element more":           {elements(257), der.CheckSize},
			"as long an identifier":      {identifier(128), ""},
			"a longer identifier":        {identifier(129), der.CheckSize},
			"a large private extension":  {func(c *tpmlab.Cert) { c.Extensions = append(c.Extensions, private(bytes.Repeat([]byte{0xff}, 4<<10))) }, ""},
		} {
			for _, inCA := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/of a CA: %t", road, name, inCA), func(t *testing.T) {
					l, key := newLab(t, EKProfileTCG(), tenRoots(t)[:1]...), tpmlab.NewP256(t)
					leaf, ca := leafOn(road, "middle", t), tpmlab.CACert("middle", "root 0", key)
					leaf.Algorithm = tpmlab.AlgorithmOf(key.Public())
					if inCA {
						c.change(ca)
					} else {
						c.change(leaf)
					}
					w, _, err := l.verify(t.Context(), road, [][]byte{leaf.Sign(t, key), ca.Sign(t, l.roots[0].Key)})
					tpmlab.ExpectCheck(t, err, c.want)
					if _, _, work := w.Spent(); c.want == der.CheckSize && work > 64<<10 {
						t.Errorf("refused after work of %d", work)
					}
				})
			}
		}
	}
}

// A name of 1 KiB is as long as a name may be, and an error shows the beginning of one.
func TestLongNames(t *testing.T) {
	for size, want := range map[int]refusal.Check{1024: "", 1025: der.CheckSize, 8000: der.CheckSize} {
		for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
			t.Run(fmt.Sprint(road, size), func(t *testing.T) {
				l, key, name := newLab(t, EKProfileTCG(), tenRoots(t)[:1]...), tpmlab.NewP256(t), strings.Repeat("a", size)
				name = name[len(tpmlab.NameOf(name))-size:]
				if got := len(tpmlab.NameOf(name)); got != size {
					t.Fatal(got)
				}
				leaf, ca := leafOn(road, name, t), tpmlab.CACert(name, "root 0", key)
				leaf.Algorithm = tpmlab.AlgorithmOf(key.Public())
				_, _, err := l.verify(t.Context(), road, [][]byte{leaf.Sign(t, key), ca.Sign(t, l.roots[0].Key)})
				tpmlab.ExpectCheck(t, err, want)
			})
		}
	}
	var name pkix.Name
	for n := range 80 {
		name.Names = append(name.Names, pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: fmt.Sprint(n)})
	}
	if got, want := nameText(name), "CN=15,CN=14,CN=13,CN=12,CN=11,CN=10,CN=9,CN=8,CN=7,CN=6,CN=5,CN=4,CN=3,CN=2,CN=1,CN=0"; got != want {
		t.Errorf("got %s", got)
	}
	if got := nameText(pkix.Name{}); got != "(no name)" {
		t.Errorf("got %s", got)
	}
}

// A zero verifier, and nothing presented to one, is an error and neither a panic nor an acceptance.
func TestVerifiersThatWereNotMade(t *testing.T) {
	ctx, now := t.Context(), tpmlab.Time
	l := newLab(t, EKProfileTCG(), tenRoots(t)[:1]...)
	ak, err := ParseAKPresented([][]byte{leafOnLab(t, attest.RoadAK, "root 0")})
	testkit.NoError(t, err)
	ek, err := ParseEKPresented([][]byte{leafOnLab(t, attest.RoadEK, "root 0")}, nil)
	testkit.NoError(t, err)
	askAK := func(v *AKVerifier, p *AKPresented, at time.Time) error {
		_, err := v.Verify(ctx, p, at, nil)
		return err
	}
	askEK := func(v *EKVerifier, p *EKPresented) error {
		_, err := v.Verify(ctx, p, nil, now, nil)
		return err
	}
	for name, ask := range map[string]func() error{
		"a zero AKVerifier":                func() error { return askAK(&AKVerifier{}, ak, now) },
		"a nil AKVerifier":                 func() error { return askAK(nil, ak, now) },
		"a zero AK":                        func() error { return askAK(l.aks, &AKPresented{}, now) },
		"no AK":                            func() error { return askAK(l.aks, nil, now) },
		"no time":                          func() error { return askAK(l.aks, ak, time.Time{}) },
		"a zero EKVerifier":                func() error { return askEK(&EKVerifier{}, ek) },
		"a nil EKVerifier":                 func() error { return askEK(nil, ek) },
		"a zero EK":                        func() error { return askEK(l.eks, &EKPresented{}) },
		"no EK":                            func() error { return askEK(l.eks, nil) },
		"the firmware, by a zero verifier": func() error { return (&EKVerifier{}).CheckFirmware(DirectoryName{}, 1) },
		"the firmware, by a nil verifier":  func() error { return (*EKVerifier)(nil).CheckFirmware(DirectoryName{}, 1) },
		"an AK, by no issuers":             func() error { _, err := VerifyAKCertificate(nil, [][]byte{ak.Leaf().Raw}, now); return err },
		"a new certificate, by no CA": func() error {
			_, err := CreateAKCertificate(ctx, AKTemplate{}, nil, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ask(); err == nil {
				t.Error("no error")
			}
		})
	}
	if err := askAK(l.aks, ak, now); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("a verifier that was made: %v", err)
	}
}
