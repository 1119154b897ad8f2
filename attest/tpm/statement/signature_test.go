package statement

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestParseSignature(t *testing.T) {
	for name, row := range map[string]struct {
		in   string
		want *Signature
	}{
		"RSASSA":     {"0014 000b 0004 01020304", &Signature{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256, RSA: []byte{1, 2, 3, 4}}},
		"RSAPSS":     {"0016 000c 0001 00", &Signature{Alg: tpm2.TPMAlgRSAPSS, Hash: tpm2.TPMAlgSHA384, RSA: []byte{0}}},
		"ECDSA":      {"0018 000d 0001 05 0002 0006", &Signature{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA512, R: []byte{5}, S: []byte{0, 6}}},
		"SHA-1":      {"0014 0004 0001 01", &Signature{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1, RSA: []byte{1}}},
		"empty r, s": {"0018 000b 0000 0000", &Signature{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256, R: []byte{}, S: []byte{}}},
	} {
		t.Run(name, func(t *testing.T) {
			in := unhex(t, row.in)
			got, err := ParseSignature(in)
			testkit.NoError(t, err)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			out, err := got.Marshal()
			if err != nil || !bytes.Equal(in, out) {
				t.Errorf("marshals to %x (%v), was %x", out, err, in)
			}
			for n := range in {
				if _, err := ParseSignature(in[:n]); err == nil {
					t.Errorf("%d of %d bytes parse", n, len(in))
				}
			}
			_, err = ParseSignature(append(in, 0))
			tpmlab.ExpectCheck(t, err, checkSignatureEncoding)
		})
	}
}

func TestParseSignatureRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		in   string
		want refusal.Check
	}{
		"nothing":           {"", checkSignatureSize},
		"over the cap":      {hexRepeat("00", maxTPMTSignatureSize+1), checkSignatureSize},
		"NULL":              {"0010", checkSignatureScheme},
		"ECDAA":             {"001a 000b 0001 05 0001 06", checkSignatureScheme},
		"SM2":               {"001b 000b 0001 05 0001 06", checkSignatureScheme},
		"HMAC":              {"0005 000b " + hexRepeat("00", 32), checkSignatureScheme},
		"RSA encryption":    {"0015 0001 00", checkSignatureScheme},
		"SHA-3":             {"0014 0027 0001 00", checkSignatureScheme},
		"no hash":           {"0014 0010 0001 00", checkSignatureScheme},
		"RSA of 513 bytes":  {"0014 000b 0201 " + hexRepeat("00", 513), checkSignatureEncoding},
		"r of 67 bytes":     {"0018 000b 0043 " + hexRepeat("00", 67) + " 0001 01", checkSignatureEncoding},
		"size over the end": {"0014 000b ffff 00", checkSignatureEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSignature(unhex(t, row.in))
			tpmlab.ExpectCheck(t, err, row.want)
			if got != nil {
				t.Error("a result with the error")
			}
		})
	}
}

func TestParseRawSignature(t *testing.T) {
	raw := KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
	ecdsaRaw := KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}
	got, err := ParseRawSignature([]byte{0, 1, 2}, raw)
	if diff := cmp.Diff(&Signature{Alg: raw.Alg, Hash: raw.Hash, RSA: []byte{0, 1, 2}}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	got, err = ParseRawSignature(unhex(t, "3007 0201 05 0202 0080"), ecdsaRaw)
	if diff := cmp.Diff(&Signature{Alg: ecdsaRaw.Alg, Hash: ecdsaRaw.Hash, R: []byte{5}, S: []byte{0x80}}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for name, row := range map[string]struct {
		in     string
		scheme KeyScheme
		want   refusal.Check
	}{
		"nothing":           {"", raw, checkSignatureSize},
		"no scheme":         {"01", KeyScheme{}, checkSignatureScheme},
		"no hash":           {"01", KeyScheme{Alg: tpm2.TPMAlgRSASSA}, checkSignatureScheme},
		"513 bytes":         {hexRepeat("01", 513), raw, checkSignatureEncoding},
		"no DER":            {"01", ecdsaRaw, checkSignatureEncoding},
		"trailing":          {"3006 020105 020106 00", ecdsaRaw, checkSignatureEncoding},
		"trailing inside":   {"3008 020105 020106 0500", ecdsaRaw, checkSignatureEncoding},
		"negative r":        {"3006 0201ff 020106", ecdsaRaw, checkSignatureEncoding},
		"padded s":          {"3007 020105 02020006", ecdsaRaw, checkSignatureEncoding},
		"one number":        {"3003 020105", ecdsaRaw, checkSignatureEncoding},
		"67 bytes":          {"3048 0243" + hexRepeat("01", 67) + " 020106", ecdsaRaw, checkSignatureEncoding},
		"indefinite length": {"3080 020105 020106 0000", ecdsaRaw, checkSignatureEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseRawSignature(unhex(t, row.in), row.scheme)
			tpmlab.ExpectCheck(t, err, row.want)
		})
	}
}

func TestSignatureMarshalRefuses(t *testing.T) {
	for name, v := range map[string]*Signature{
		"zero": {}, "no hash": {Alg: tpm2.TPMAlgRSASSA}, "long": {Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256, RSA: make([]byte, 1<<16)},
		"wide": {Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256, R: make([]byte, 67)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := v.Marshal(); err == nil {
				t.Errorf("%s: marshals", name)
			}
		})
	}
	_, err := (&Signature{Alg: tpm2.TPMAlgRSASSA}).MarshalECDSA()
	tpmlab.ExpectCheck(t, err, checkSignatureScheme)
}

// TestSignatureVerify holds our reading of signatures against the standard library's.
func TestSignatureVerify(t *testing.T) {
	message := []byte("what was signed")
	for name, f := range forgers(t) {
		t.Run(name, func(t *testing.T) {
			v := f.sign(t, f.public.Scheme, message)
			key := f.private.Public()
			testkit.NoError(t, v.checkForm(key))
			testkit.NoError(t, v.verify(key, message))
			tpmlab.ExpectCheck(t, v.verify(key, message[1:]), checkSignature)
			tpmlab.ExpectCheck(t, v.verify(nil, message), checkSignatureScheme)
			tpmlab.ExpectCheck(t, v.checkForm(nil), checkSignatureScheme)
			if k, ok := key.(*ecdsa.PublicKey); ok {
				der, err := v.MarshalECDSA()
				if err != nil || !ecdsa.VerifyASN1(k, tpmwire.AppendDigest(nil, tpmwire.HashOf(v.Hash), message), der) {
					t.Errorf("crypto/ecdsa refuses %x (%v)", der, err)
				}
				again, err := ParseRawSignature(der, KeyScheme{Alg: v.Alg, Hash: v.Hash})
				if err != nil || !bytes.Equal(withoutLeadingZeros(v.R), again.R) || !bytes.Equal(withoutLeadingZeros(v.S), again.S) {
					t.Errorf("reads its own DER as %+v (%v)", again, err)
				}
			}
		})
	}
}

// TestPSSSaltLength: TPMs make the salt as long as the digest, and no other passes.
func TestPSSSaltLength(t *testing.T) {
	k, message := tpmlab.RSA2048(), []byte("what was signed")
	h := tpmwire.HashOf(tpm2.TPMAlgSHA256)
	digest := tpmwire.AppendDigest(nil, h, message)
	// The longest salt that fits RSA-2048 with SHA-256 has 222 bytes.
	for salt, want := range map[int]refusal.Check{32: "", 1: checkSignature, 20: checkSignature, 31: checkSignature, 33: checkSignature, 222: checkSignature} {
		out, err := rsa.SignPSS(rand.Reader, k, h, digest, &rsa.PSSOptions{SaltLength: salt})
		testkit.NoError(t, err)
		v := &Signature{Alg: tpm2.TPMAlgRSAPSS, Hash: tpm2.TPMAlgSHA256, RSA: out}
		tpmlab.ExpectCheck(t, v.verify(k.Public(), message), want)
	}
}

// FuzzParseSignature: what parses marshals to the same bytes, go-tpm reads and writes
// the same, and no method panics.
func FuzzParseSignature(f *testing.F) {
	for _, in := range []string{"0014 000b 0004 01020304", "0016 000c 0001 00", "0018 000d 0001 05 0002 0006", "0018 000b 0000 0000", "0010", ""} {
		f.Add(unhex(f, in))
	}
	keys := []any{tpmlab.RSA2048().Public(), tpmlab.P256().Public(), tpmlab.P521().Public()}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := ParseSignature(in)
		if err != nil {
			return
		}
		out, err := v.Marshal()
		if err != nil || !bytes.Equal(in, out) {
			t.Fatalf("marshals to %x (%v), was %x", out, err, in)
		}
		g, err := tpm2.Unmarshal[tpm2.TPMTSignature](in)
		if err != nil {
			t.Fatalf("go-tpm: %v", err)
		}
		if out := tpm2.Marshal(g); !bytes.Equal(in, out) || g.SigAlg != v.Alg {
			t.Fatalf("go-tpm marshals to %x, was %x", out, in)
		}
		for _, key := range keys {
			if v.checkForm(key) == nil && v.verify(key, []byte("never signed")) == nil {
				t.Fatalf("a forged signature verifies: %x", in)
			}
		}
	})
}

// FuzzParseRawSignature: an ECDSA signature has one DER.
func FuzzParseRawSignature(f *testing.F) {
	f.Add(unhex(f, "3007 0201 05 0202 0080"))
	f.Add(unhex(f, "3006 020100 020100"))
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := ParseRawSignature(in, KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256})
		if err != nil {
			return
		}
		out, err := v.MarshalECDSA()
		if err != nil || !bytes.Equal(in, out) {
			t.Fatalf("marshals to %x (%v), was %x", out, err, in)
		}
	})
}
