package statement

import (
	"bytes"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Public areas as TPMs write them. The keys are made up where no arithmetic is asked
// of them.
func publicSeeds(t testing.TB) map[string][]byte {
	rsaUnique, eccUnique := "0100 "+hexRepeat("c3", 256), "0020 "+hexRepeat("01", 32)+" 0020 "+hexRepeat("02", 32)
	return map[string][]byte{
		"GCE AK":          unhex(t, "0001 000b 00050072 0000 0010 0014 000b 0800 00000000 "+rsaUnique),
		"PSS AK":          unhex(t, "0001 000b 00050072 0000 0010 0016 000b 0800 00010001 "+rsaUnique),
		"RSA-3072":        unhex(t, "0001 000c 00050072 0000 0010 0014 000c 0c00 00000000 0180 "+hexRepeat("c3", 384)),
		"RSAES key":       unhex(t, "0001 000b 00020432 0020 "+hexRepeat("9a", 32)+" 0010 0015 0800 00000000 "+rsaUnique),
		"OAEP key":        unhex(t, "0001 000b 00020472 0000 0010 0017 000b 0800 00000000 "+rsaUnique),
		"RSA EK":          unhex(t, "0001 000b 000300b2 0020 837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa 0006 0080 0043 0010 0800 00000000 "+rsaUnique),
		"ECC EK":          unhex(t, "0023 000b 000300b2 0020 837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa 0006 0080 0043 0010 0003 0010 "+eccUnique),
		"P-384 EK":        unhex(t, "0023 000c 000300f2 0030 "+hexRepeat("b2", 48)+" 0006 0100 0043 0010 0004 0010 0030 "+hexRepeat("01", 48)+" 0030 "+hexRepeat("02", 48)),
		"ECDSA AK":        unhex(t, "0023 000b 00050072 0000 0010 0018 000b 0003 0010 "+eccUnique),
		"ECC key":         unhex(t, "0023 000b 00040072 0000 0010 0010 0003 0010 "+eccUnique),
		"ECDH key":        unhex(t, "0023 000b 00020072 0000 0010 0019 000b 0003 0010 "+eccUnique),
		"ECDAA key":       unhex(t, "0023 000b 00040072 0000 0010 001a 000b 0001 0003 0010 "+eccUnique),
		"ECC with KDF":    unhex(t, "0023 000b 00040072 0000 0010 0010 0003 0020 000b "+eccUnique),
		"P-521":           unhex(t, "0023 000d 00040072 0000 0010 0018 000d 0005 0010 0042 00"+hexRepeat("01", 65)+" 0042 00"+hexRepeat("02", 65)),
		"narrow X":        unhex(t, "0023 000b 00040072 0000 0010 0010 0003 0010 001f "+hexRepeat("01", 31)+" 0020 "+hexRepeat("02", 32)),
		"RSA template":    unhex(t, "0001 000b 00050072 0000 0010 0014 000b 0800 00000000 0000"),
		"ECC template":    unhex(t, "0023 000b 00050072 0000 0010 0018 000b 0003 0010 0000 0000"),
		"SHA-1 named key": unhex(t, "0001 0004 00040072 0014 "+hexRepeat("00", 20)+" 0010 0010 0400 00000000 0080 "+hexRepeat("c3", 128)),
		"SM2 scheme":      unhex(t, "0023 000b 00040072 0000 0010 001b 000b 0003 0010 "+eccUnique),
	}
}

func hexRepeat(octet string, n int) string { return string(bytes.Repeat([]byte(octet), n)) }

func TestParsePublic(t *testing.T) {
	for name, in := range publicSeeds(t) {
		t.Run(name, func(t *testing.T) {
			p, err := ParsePublic(in)
			testkit.NoError(t, err)
			out, err := p.Marshal()
			if err != nil || !bytes.Equal(in, out) {
				t.Errorf("marshals to %x (%v), was %x", out, err, in)
			}
			for n := range in {
				if _, err := ParsePublic(in[:n]); err == nil {
					t.Fatalf("%d of %d bytes parse", n, len(in))
				}
			}
			_, err = ParsePublic(append(bytes.Clone(in), 0))
			tpmlab.ExpectCheck(t, err, checkPublicEncoding)
		})
	}
}

func TestParsePublicFields(t *testing.T) {
	seeds := publicSeeds(t)
	p, err := ParsePublic(seeds["RSA EK"])
	testkit.NoError(t, err)
	if p.Type != tpm2.TPMAlgRSA || p.NameAlg != tpm2.TPMAlgSHA256 || p.Attributes != 0x300b2 || len(p.AuthPolicy) != 32 ||
		p.Symmetric != (SymmetricScheme{tpm2.TPMAlgAES, 128, tpm2.TPMAlgCFB}) || p.Scheme != noScheme || p.KDF != (KeyScheme{}) ||
		p.KeyBits != 2048 || p.Exponent != 0 || p.Curve != 0 || len(p.Modulus) != 256 || p.X != nil || p.Y != nil {
		t.Errorf("got %+v", p)
	}
	if p, err = ParsePublic(seeds["ECDAA key"]); err != nil {
		t.Fatal(err)
	}
	if p.Type != tpm2.TPMAlgECC || p.Symmetric.Alg != tpm2.TPMAlgNull || p.Scheme != (KeyScheme{tpm2.TPMAlgECDAA, tpm2.TPMAlgSHA256, 1}) ||
		p.KDF != noScheme || p.Curve != tpm2.TPMECCNistP256 || p.X[0] != 1 || p.Y[0] != 2 || p.Modulus != nil || p.KeyBits != 0 {
		t.Errorf("got %+v", p)
	}
}

func TestParsePublicRefuses(t *testing.T) {
	const eccUnique = " 0001 01 0001 02"
	for name, row := range map[string]struct {
		in   string
		want refusal.Check
	}{
		"keyed hash":             {"0008 000b 00040072 0000 0010 0000", checkKeyType},
		"symmetric cipher":       {"0025 000b 00060072 0000 0006 0080 0043 0000", checkKeyType},
		"NULL name":              {"0001 0010 00050072 0000 0010 0014 000b 0800 00000000 0000", checkNameAlgorithm},
		"SHA3 name":              {"0001 0027 00050072 0000 0010 0014 000b 0800 00000000 0000", checkNameAlgorithm},
		"reserved attribute 0":   {"0001 000b 00050073 0000 0010 0014 000b 0800 00000000 0000", checkPublicEncoding},
		"reserved attribute 31":  {"0001 000b 80050072 0000 0010 0014 000b 0800 00000000 0000", checkPublicEncoding},
		"policy of 20 bytes":     {"0001 000b 00050072 0014 " + hexRepeat("00", 20) + " 0010 0014 000b 0800 00000000 0000", checkPublicEncoding},
		"policy of 65535":        {"0001 000b 00050072 ffff 0010 0014 000b 0800 00000000 0000", checkPublicEncoding},
		"XOR":                    {"0001 000b 00050072 0000 000a 000b 0014 000b 0800 00000000 0000", checkPublicEncoding},
		"SM4":                    {"0001 000b 00050072 0000 0013 0080 0043 0014 000b 0800 00000000 0000", checkPublicEncoding},
		"ECDSA scheme for RSA":   {"0001 000b 00050072 0000 0010 0018 000b 0800 00000000 0000", checkPublicEncoding},
		"RSASSA scheme for ECC":  {"0023 000b 00050072 0000 0010 0014 000b 0003 0010" + eccUnique, checkPublicEncoding},
		"scheme without a hash":  {"0001 000b 00050072 0000 0010 0014 0010 0800 00000000 0000", checkPublicEncoding},
		"unknown hash":           {"0001 000b 00050072 0000 0010 0014 00ff 0800 00000000 0000", checkPublicEncoding},
		"keyBits 0":              {"0001 000b 00050072 0000 0010 0014 000b 0000 00000000 0000", checkPublicEncoding},
		"keyBits 2047":           {"0001 000b 00050072 0000 0010 0014 000b 07ff 00000000 0000", checkPublicEncoding},
		"keyBits 8192":           {"0001 000b 00050072 0000 0010 0014 000b 2000 00000000 0000", checkPublicEncoding},
		"modulus of 513 bytes":   {"0001 000b 00050072 0000 0010 0014 000b 1000 00000000 0201 " + hexRepeat("ff", 513), checkPublicEncoding},
		"P-192":                  {"0023 000b 00050072 0000 0010 0018 000b 0001 0010" + eccUnique, checkWeakKey},
		"P-224":                  {"0023 000b 00050072 0000 0010 0018 000b 0002 0010" + eccUnique, checkWeakKey},
		"BN P256":                {"0023 000b 00050072 0000 0010 0018 000b 0010 0010" + eccUnique, checkWeakKey},
		"unknown KDF":            {"0023 000b 00050072 0000 0010 0018 000b 0003 0014 000b" + eccUnique, checkPublicEncoding},
		"coordinate of 67 bytes": {"0023 000b 00050072 0000 0010 0018 000b 0003 0010 0043 " + hexRepeat("00", 67) + " 0001 02", checkPublicEncoding},
		"nothing":                {"", checkPublicSize},
		"over the cap":           {hexRepeat("00", tpmwire.MaxTPMTPublicSize+1), checkPublicSize},
		"with a size prefix":     {"0018 0001 000b 00050072 0000 0010 0014 000b 0800 00000000 0000", checkKeyType},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ParsePublic(unhex(t, row.in))
			tpmlab.ExpectCheck(t, err, row.want)
			if p != nil {
				t.Error("a result with the error")
			}
		})
	}
}

func TestPublicMarshalRefuses(t *testing.T) {
	if _, err := new(Public).Marshal(); err == nil {
		t.Error("the zero value marshals")
	}
	p := publicArea(t, tpmlab.P256().Public(), testAKAttributes, schemeECDSA)
	for name, change := range map[string]func(*Public){
		"policy":   func(p *Public) { p.AuthPolicy = []byte{1} },
		"scheme":   func(p *Public) { p.Scheme.Alg = tpm2.TPMAlgRSASSA },
		"wide":     func(p *Public) { p.X = make([]byte, 1<<16) },
		"reserved": func(p *Public) { p.Attributes |= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			again := *p
			change(&again)
			if _, err := again.Marshal(); err == nil {
				t.Errorf("%s: marshals", name)
			}
		})
	}
}

func TestKeySchemeString(t *testing.T) {
	for want, v := range map[string]KeyScheme{
		"NULL": noScheme, "RSASSA/SHA256": schemeRSASSA, "ECDSA/SHA384": schemeECDSA84, "0x0000": {}, "RSAES": {Alg: tpm2.TPMAlgRSAES},
		"0x7fff/SHA1": {Alg: 0x7fff, Hash: tpm2.TPMAlgSHA1},
	} {
		t.Run(want, func(t *testing.T) {
			if got := v.String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// FuzzParsePublic: what parses marshals to the same bytes, go-tpm reads the same from
// it and computes the same Name, and none of the methods panics.
func FuzzParsePublic(f *testing.F) {
	for _, in := range publicSeeds(f) {
		f.Add(in)
	}
	f.Add(publicArea(f, tpmlab.P256().Public(), testAKAttributes, schemeECDSA).Raw)
	f.Add(publicArea(f, tpmlab.P384().Public(), testAKAttributes, schemeECDSA84).Raw)
	f.Add(publicArea(f, tpmlab.RSA2048().Public(), testAKAttributes, schemeRSASSA).Raw)
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := ParsePublic(in)
		if err != nil {
			return
		}
		out, err := p.Marshal()
		if err != nil || !bytes.Equal(in, out) {
			t.Fatalf("marshals to %x (%v), was %x", out, err, in)
		}
		if !p.HasName(p.Name()) {
			t.Fatal("has not its own Name")
		}
		if key, err := p.Key(); err == nil && !p.SameKey(key) {
			t.Fatal("has not its own key")
		}
		_ = CheckAKPublic(p)
		comparePublicWithGoTPM(t, p)
	})
}

func comparePublicWithGoTPM(t *testing.T, p *Public) {
	t.Helper()
	if s := p.Scheme.Alg; s == tpm2.TPMAlgSM2 || s == tpm2.TPMAlgECSchnorr {
		return // go-tpm has no such member
	}
	g, err := tpm2.Unmarshal[tpm2.TPMTPublic](p.Raw)
	if err != nil {
		t.Fatalf("go-tpm: %v: %x", err, p.Raw)
	}
	if out := tpm2.Marshal(g); !bytes.Equal(p.Raw, out) {
		t.Fatalf("go-tpm marshals to %x, was %x", out, p.Raw)
	}
	name, err := tpm2.ObjectName(g)
	if err != nil || !bytes.Equal(name.Buffer, p.Name()) {
		t.Fatalf("Name %x, go-tpm has %x (%v)", p.Name(), name.Buffer, err)
	}
	same := p.Type == g.Type && p.NameAlg == g.NameAlg && bytes.Equal(p.AuthPolicy, g.AuthPolicy.Buffer)
	if p.Type == tpm2.TPMAlgRSA {
		detail, err1 := g.Parameters.RSADetail()
		unique, err2 := g.Unique.RSA()
		same = same && err1 == nil && err2 == nil && p.Symmetric.Alg == detail.Symmetric.Algorithm && p.Scheme.Alg == detail.Scheme.Scheme &&
			p.KeyBits == uint16(detail.KeyBits) && p.Exponent == detail.Exponent && bytes.Equal(p.Modulus, unique.Buffer)
	} else {
		detail, err1 := g.Parameters.ECCDetail()
		unique, err2 := g.Unique.ECC()
		same = same && err1 == nil && err2 == nil && p.Symmetric.Alg == detail.Symmetric.Algorithm && p.Scheme.Alg == detail.Scheme.Scheme &&
			p.Curve == detail.CurveID && p.KDF.Alg == detail.KDF.Scheme &&
			bytes.Equal(p.X, unique.X.Buffer) && bytes.Equal(p.Y, unique.Y.Buffer)
	}
	if !same {
		t.Fatalf("got %+v, go-tpm has %+v", p, g)
	}
}
