package statement

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// expectGot is expectCheck, and compares the refusal's Got.
func expectGot(t *testing.T, err error, want refusal.Check, got string) {
	t.Helper()
	tpmlab.ExpectCheck(t, err, want)
	var e *refusal.Error
	if errors.As(err, &e); e != nil && e.Got != got {
		t.Errorf("got %q, want %q", e.Got, got)
	}
}

// A statement that ends within a field is refused at that field, whatever the bytes
// that are left would say as the next one.
func TestFieldsOfAttestation(t *testing.T) {
	const clock = "an end within clock or firmware version"
	for _, c := range []struct {
		hex   string
		rest  []int // where what follows the header ends
		field []string
	}{
		{certifyHex, []int{145}, []string{"certify info"}},
		{quoteHex, []int{73, 85, 119}, []string{"PCR selection", "PCR selection", "PCR digest"}},
	} {
		raw := unhex(t, c.hex)
		extra := 48
		if len(c.rest) > 1 {
			extra = 44 // a quote without qualifying data
		}
		ends := append([]int{4, 6, 42, extra, extra + 25}, c.rest...)
		fields := append([]string{"fewer than 4 bytes", "no type", "qualified signer", "extra data", clock}, c.field...)
		if ends[len(ends)-1] != len(raw) {
			t.Fatalf("%d bytes", len(raw))
		}
		at := 0
		for n := range raw {
			if n == ends[at] {
				at++
			}
			_, err := ParseAttestation(raw[:n])
			expectGot(t, err, checkAttestEncoding, fields[at])
		}
	}
	t.Run("what follows would do as the end", func(t *testing.T) {
		certify, quote := unhex(t, certifyHex), unhex(t, quoteHex)
		_, err := ParseAttestation(append(bytes.Clone(certify[:65]), 0, 0, 0, 0)) // two empty names in place of the firmware version
		expectGot(t, err, checkAttestEncoding, clock)
		_, err = ParseAttestation(append(bytes.Clone(quote[:69]), 0, 0)) // an empty digest in place of the count
		expectGot(t, err, checkAttestEncoding, "PCR selection")
	})
}

func TestSizesOfAttestation(t *testing.T) {
	certify := unhex(t, certifyHex)
	padded := func(size int) []byte { return append(bytes.Clone(certify), make([]byte, size-len(certify))...) }
	_, err := ParseAttestation(padded(maxAttestationSize))
	tpmlab.ExpectCheck(t, err, checkAttestEncoding)
	_, err = ParseAttestation(padded(maxAttestationSize + 1))
	tpmlab.ExpectCheck(t, err, checkAttestSize)

	quote := func(change func(*QuoteInfo)) []byte {
		a, err := ParseAttestation(unhex(t, quoteHex))
		testkit.NoError(t, err)
		change(a.Quote)
		raw, err := a.Marshal()
		testkit.NoError(t, err)
		return raw
	}
	banks := func(n int, octets ...byte) func(*QuoteInfo) {
		return func(q *QuoteInfo) {
			q.Selections = nil
			for range n {
				q.Selections = append(q.Selections, PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: octets})
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*QuoteInfo)
		bad    string
	}{
		"no bank":                 {banks(0), ""},
		"16 banks":                {banks(16, 1, 0, 0), ""},
		"17 banks":                {banks(17, 1, 0, 0), "PCR selection"},
		"18 banks":                {banks(18, 1, 0, 0), "PCR selection"},
		"selections of no octet":  {banks(2), "PCR selection"},
		"selections of 1 octet":   {banks(2, 1), ""},
		"selections of 4 octets":  {banks(2, 1, 0, 0, 0), ""},
		"selections of 5 octets":  {banks(2, 1, 0, 0, 0, 0), "PCR selection"},
		"no digest":               {func(q *QuoteInfo) { q.PCRDigest = nil }, ""},
		"the longest digest":      {func(q *QuoteInfo) { q.PCRDigest = make([]byte, 64) }, ""},
		"a digest of 65 bytes":    {func(q *QuoteInfo) { q.PCRDigest = make([]byte, 65) }, "PCR digest"},
		"16 banks and the digest": {func(q *QuoteInfo) { banks(16, 1, 0, 0, 0)(q); q.PCRDigest = make([]byte, 64) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseAttestation(quote(c.change))
			if c.bad == "" {
				tpmlab.ExpectCheck(t, err, "")
				return
			}
			expectGot(t, err, checkAttestEncoding, c.bad)
		})
	}
	for size, want := range map[int]refusal.Check{66: "", 67: checkAttestEncoding} {
		for name, change := range map[string]func(*Attestation){
			"qualified signer": func(a *Attestation) { a.QualifiedSigner = make([]byte, size) },
			"extra data":       func(a *Attestation) { a.ExtraData = make([]byte, size) },
			"name":             func(a *Attestation) { a.Certified.Name = make([]byte, size) },
			"qualified name":   func(a *Attestation) { a.Certified.QualifiedName = make([]byte, size) },
		} {
			t.Run(name, func(t *testing.T) {
				a, err := ParseAttestation(bytes.Clone(certify))
				testkit.NoError(t, err)
				change(a)
				raw, err := a.Marshal()
				testkit.NoError(t, err)
				_, err = ParseAttestation(raw)
				tpmlab.ExpectCheck(t, err, want)
			})
		}
	}
}

// The same for a public area.
func TestFieldsOfPublic(t *testing.T) {
	const header = "an end within type, name algorithm or attributes"
	for name, c := range map[string]struct {
		in  string
		bad string
	}{
		"nothing of the attributes":         {"0001 000b", header},
		"half the attributes":               {"0001 000b 0005", header},
		"attributes of 3 bytes":             {"0001 000b 000500", header},
		"a policy in place of attributes":   {"0001 000b 0000", header},
		"half a policy size":                {"0001 000b 00050072 00", "policy"},
		"no symmetric scheme":               {"0001 000b 00050072 0000", "an end before the symmetric scheme"},
		"half a symmetric scheme":           {"0001 000b 00050072 0000 00", "an end before the symmetric scheme"},
		"no key bits":                       {"0001 000b 000300b2 0000 0006", "an end within the symmetric scheme"},
		"no mode":                           {"0001 000b 000300b2 0000 0006 0080", "an end within the symmetric scheme"},
		"half a mode":                       {"0001 000b 000300b2 0000 0006 0080 00", "an end within the symmetric scheme"},
		"no RSA scheme":                     {"0001 000b 00050072 0000 0010", "RSA scheme 0x0000"},
		"an RSA scheme without its hash":    {"0001 000b 00050072 0000 0010 0014", "RSA scheme RSASSA"},
		"no RSA parameters":                 {"0001 000b 00050072 0000 0010 0010", "an end within the RSA parameters"},
		"no exponent":                       {"0001 000b 00050072 0000 0010 0010 0800", "an end within the RSA parameters"},
		"an exponent of 3 bytes":            {"0001 000b 00050072 0000 0010 0010 0800 000000", "an end within the RSA parameters"},
		"no modulus":                        {"0001 000b 00050072 0000 0010 0010 0800 00000000", "modulus"},
		"a modulus in place of an exponent": {"0001 000b 00050072 0000 0010 0010 0800 0000", "an end within the RSA parameters"},
		"no ECC scheme":                     {"0023 000b 00050072 0000 0010", "ECC scheme 0x0000"},
		"ECDAA without its count":           {"0023 000b 00050072 0000 0010 001a 000b", "ECC scheme ECDAA/SHA256"},
		"ECDAA with half its count":         {"0023 000b 00050072 0000 0010 001a 000b 00", "ECC scheme ECDAA/SHA256"},
		"no curve":                          {"0023 000b 00050072 0000 0010 0010", "an end within the ECC parameters"},
		"half a curve":                      {"0023 000b 00050072 0000 0010 0010 00", "an end within the ECC parameters"},
		"no KDF":                            {"0023 000b 00050072 0000 0010 0010 0003", "KDF scheme 0x0000"},
		"no point":                          {"0023 000b 00050072 0000 0010 0010 0003 0010", "point"},
		"half a point":                      {"0023 000b 00050072 0000 0010 0010 0003 0010 0000", "point"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePublic(unhex(t, c.in))
			expectGot(t, err, checkPublicEncoding, c.bad)
		})
	}
}

func TestSizesOfPublic(t *testing.T) {
	area := publicArea(t, tpmlab.P256().Public(), testAKAttributes, schemeECDSA).Raw
	padded := func(size int) []byte { return append(bytes.Clone(area), make([]byte, size-len(area))...) }
	_, err := ParsePublic(padded(tpmwire.MaxTPMTPublicSize))
	tpmlab.ExpectCheck(t, err, checkPublicEncoding)
	_, err = ParsePublic(padded(tpmwire.MaxTPMTPublicSize + 1))
	tpmlab.ExpectCheck(t, err, checkPublicSize)

	rsa := func(bits, modulus string) string {
		return "0001 000b 00050072 0000 0010 0014 000b " + bits + " 00000000 " + modulus
	}
	for name, c := range map[string]struct {
		in  string
		bad string
	}{
		"RSA-4096":                  {rsa("1000", "0200"+hexRepeat("c3", 512)), ""},
		"RSA of 4097 bits":          {rsa("1001", "0200"+hexRepeat("c3", 512)), "keyBits 4097"},
		"RSA of 4104 bits":          {rsa("1008", "0200"+hexRepeat("c3", 512)), "keyBits 4104"},
		"a modulus of 513 bytes":    {rsa("1000", "0201"+hexRepeat("c3", 513)), "modulus"},
		"coordinates of 66 bytes":   {"0023 000b 00050072 0000 0010 0010 0005 0010 0042" + hexRepeat("00", 66) + "0042" + hexRepeat("00", 66), ""},
		"a coordinate of 67 bytes":  {"0023 000b 00050072 0000 0010 0010 0005 0010 0042" + hexRepeat("00", 66) + "0043" + hexRepeat("00", 67), "point"},
		"another one of 67 bytes":   {"0023 000b 00050072 0000 0010 0010 0005 0010 0043" + hexRepeat("00", 67) + "0042" + hexRepeat("00", 66), "point"},
		"a policy of the hash":      {"0001 000b 00050072 0020" + hexRepeat("01", 32) + "0010 0010 0800 00000000 0000", ""},
		"a policy of another hash":  {"0001 000b 00050072 0030" + hexRepeat("01", 48) + "0010 0010 0800 00000000 0000", "policy"},
		"a policy of SHA-512":       {"0001 000d 00050072 0040" + hexRepeat("01", 64) + "0010 0010 0800 00000000 0000", ""},
		"a policy of 65 bytes":      {"0001 000d 00050072 0041" + hexRepeat("01", 65) + "0010 0010 0800 00000000 0000", "policy"},
		"something after the point": {"0023 000b 00050072 0000 0010 0010 0003 0010 0001 01 0001 02 00", "1 bytes after the public area"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePublic(unhex(t, c.in))
			if c.bad == "" {
				tpmlab.ExpectCheck(t, err, "")
				return
			}
			expectGot(t, err, checkPublicEncoding, c.bad)
		})
	}
	t.Run("marshal, a field over its size prefix", func(t *testing.T) {
		p := publicArea(t, tpmlab.P256().Public(), testAKAttributes, schemeECDSA)
		p.X = make([]byte, 1<<16)
		_, err := p.Marshal()
		tpmlab.ExpectCheck(t, err, checkPublicEncoding)
	})
}

func TestFieldsOfSignature(t *testing.T) {
	for name, c := range map[string]struct {
		in  string
		bad string
	}{
		"half a scheme":  {"00", "fewer than 2 bytes"},
		"no hash":        {"0014", "an end before the hash"},
		"half a hash":    {"0014 00", "an end before the hash"},
		"no RSA bytes":   {"0014 000b", "RSA signature"},
		"no r":           {"0018 000b", "r or s"},
		"no s":           {"0018 000b 0001 01", "r or s"},
		"bytes after it": {"0018 000b 0001 01 0001 02 00", "1 bytes after the signature"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseSignature(unhex(t, c.in))
			expectGot(t, err, checkSignatureEncoding, c.bad)
		})
	}
}

func TestSizesOfSignature(t *testing.T) {
	rsa := func(n int) []byte {
		return append(unhex(t, "0014 000b"), append([]byte{byte(n >> 8), byte(n)}, make([]byte, n)...)...)
	}
	ecdsa := func(r, s int) []byte {
		b := append(unhex(t, "0018 000b"), append([]byte{byte(r >> 8), byte(r)}, make([]byte, r)...)...)
		return append(b, append([]byte{byte(s >> 8), byte(s)}, make([]byte, s)...)...)
	}
	padded := func(n int) []byte { return append(rsa(256), make([]byte, n-262)...) }
	for name, c := range map[string]struct {
		in   []byte
		want refusal.Check
	}{
		"nothing":          {nil, checkSignatureSize},
		"the largest":      {padded(maxTPMTSignatureSize), checkSignatureEncoding}, // looked at, and refused for its padding
		"one byte more":    {padded(maxTPMTSignatureSize + 1), checkSignatureSize},
		"RSA-4096":         {rsa(512), ""},
		"RSA of 513 bytes": {rsa(513), checkSignatureEncoding},
		"P-521":            {ecdsa(66, 66), ""},
		"r of 67 bytes":    {ecdsa(67, 66), checkSignatureEncoding},
		"s of 67 bytes":    {ecdsa(66, 67), checkSignatureEncoding},
		"r says 67 bytes":  {unhex(t, "0018 000b 0043 0001 01"), checkSignatureEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseSignature(c.in)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
	number := func(n int) []byte { return tpmlab.Element(asn1.INTEGER, append([]byte{1}, make([]byte, n-1)...)) }
	onRSA := KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
	onECC := KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}
	for name, c := range map[string]struct {
		in     []byte
		scheme KeyScheme
		want   refusal.Check
	}{
		"RSA-4096":         {make([]byte, 512), onRSA, ""},
		"RSA of 513 bytes": {make([]byte, 513), onRSA, checkSignatureEncoding},
		"P-521":            {tpmlab.Seq(number(66), number(66)), onECC, ""},
		"r of 67 bytes":    {tpmlab.Seq(number(67), number(66)), onECC, checkSignatureEncoding},
		"s of 67 bytes":    {tpmlab.Seq(number(66), number(67)), onECC, checkSignatureEncoding},
		"no list":          {tpmlab.Octets(number(1)), onECC, checkSignatureEncoding},
		"a third number":   {tpmlab.Seq(number(1), number(1), number(1)), onECC, checkSignatureEncoding},
		"one number":       {tpmlab.Seq(number(1)), onECC, checkSignatureEncoding},
		"a byte after":     {append(tpmlab.Seq(number(1), number(1)), 0), onECC, checkSignatureEncoding},
		"a key agreement":  {make([]byte, 256), KeyScheme{Alg: tpm2.TPMAlgRSAES, Hash: tpm2.TPMAlgSHA256}, checkSignatureScheme},
		"an unknown hash":  {make([]byte, 256), KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSM3256}, checkSignatureScheme},
	} {
		t.Run("raw, "+name, func(t *testing.T) {
			_, err := ParseRawSignature(c.in, c.scheme)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
	t.Run("marshal, over its size prefix", func(t *testing.T) {
		_, err := (&Signature{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256, RSA: make([]byte, 1<<16)}).Marshal()
		tpmlab.ExpectCheck(t, err, checkSignatureEncoding)
	})
}

// The words of the TCG Algorithm Registry, in which refusals speak.
func TestAlgorithmNames(t *testing.T) {
	for alg, want := range map[tpm2.TPMAlgID]string{
		tpm2.TPMAlgRSA: "RSA", tpm2.TPMAlgECC: "ECC", tpm2.TPMAlgKeyedHash: "KEYEDHASH", tpm2.TPMAlgSymCipher: "SYMCIPHER",
		tpm2.TPMAlgNull: "NULL", tpm2.TPMAlgRSASSA: "RSASSA", tpm2.TPMAlgRSAPSS: "RSAPSS", tpm2.TPMAlgRSAES: "RSAES",
		tpm2.TPMAlgOAEP: "OAEP", tpm2.TPMAlgECDSA: "ECDSA", tpm2.TPMAlgECDAA: "ECDAA", tpm2.TPMAlgECDH: "ECDH",
		tpm2.TPMAlgSM2: "SM2", tpm2.TPMAlgECSchnorr: "ECSCHNORR", tpm2.TPMAlgHMAC: "HMAC", tpm2.TPMAlgSHA1: "SHA1",
		tpm2.TPMAlgSHA256: "SHA256", tpm2.TPMAlgSHA384: "SHA384", tpm2.TPMAlgSHA512: "SHA512", tpm2.TPMAlgSM3256: "SM3_256",
		tpm2.TPMAlgSHA3256: "SHA3_256", tpm2.TPMAlgSHA3384: "SHA3_384", tpm2.TPMAlgSHA3512: "SHA3_512", 0xabc: "0x0abc",
	} {
		if got := tpmwire.AlgorithmName(alg); got != want {
			t.Errorf("0x%04x: got %s, want %s", uint16(alg), got, want)
		}
	}
}
