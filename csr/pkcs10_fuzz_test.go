package csr

import (
	"bytes"
	"crypto"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/oid"
)

// TestEveryFlippedByteIsRefused changes each byte of requests with each kind of key.
func TestEveryFlippedByteIsRefused(t *testing.T) {
	for name, good := range map[string][]byte{
		"P-256": clientRequest(t, keyP256()),
		"P-384": servingRequest(t, keyP384()),
		"RSA":   clientRequest(t, keyRSA2()),
	} {
		t.Run(name, func(t *testing.T) {
			der := bytes.Clone(good)
			for i := range der {
				for _, flip := range []byte{0x01, 0x80, 0xff} {
					der[i] = good[i] ^ flip
					p, err := ParsePKCS10(der)
					if err == nil && p.CheckSignature() == nil {
						t.Errorf("byte %d of %d is %02x instead of %02x, and is accepted", i, len(der), der[i], good[i])
					}
				}
				der[i] = good[i]
			}
		})
	}
}

func FuzzParsePKCS10(f *testing.F) {
	for _, key := range []crypto.Signer{keyP256(), keyP384(), keyRSA2()} {
		f.Add(clientRequest(f, key))
		f.Add(servingRequest(f, key))
	}
	r := goodDER(f)
	r.attributes = append([][]byte{attributeDER(oid.ChallengePassword, element(12, []byte("a")))}, r.attributes...)
	f.Add(r.bytes())
	r.attributes = withExtensions(extensionDER(oid.KeyUsage, []byte{1, 1, 0}, nil))
	f.Add(r.bytes())
	f.Fuzz(func(t *testing.T, der []byte) {
		p, err := ParsePKCS10(der)
		if err != nil {
			var v *Error
			if !errors.As(err, &v) || p != nil {
				t.Fatalf("request %v, error %v", p, err)
			}
			return
		}
		sameAsParts(t, der, p)
		name, _ := oid.KubernetesNodeProviderIdentifier.ASN1()
		claimed := slices.ContainsFunc(p.CSR.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(name) })
		if claimed != (p.ProviderID != "") {
			t.Fatalf("provider ID %q", p.ProviderID)
		}
		var parts struct {
			Info, Algorithm asn1.RawValue
			Signature       asn1.BitString
		}
		if rest, err := asn1.Unmarshal(der, &parts); err != nil || len(rest) > 0 || !bytes.Equal(parts.Info.FullBytes, p.Info) {
			t.Fatalf("encoding/asn1 reads %+v, %v", parts, err)
		}
		// Whatever the signature is, to check it ends.
		_ = p.CheckSignature()
	})
}

// FuzzParseForeignPKCS10 holds the reader of other software's requests against the
// strict one: it takes more in the signature algorithm, and nothing else.
func FuzzParseForeignPKCS10(f *testing.F) {
	for _, key := range []crypto.Signer{keyP256(), keyRSA2()} {
		f.Add(servingRequest(f, key))
	}
	r := goodDER(f)
	r.attributes = append(r.attributes, attributeDER(oid.IDAAAttestation, sequence([]byte{2, 1, 7})))
	slices.SortFunc(r.attributes, bytes.Compare)
	f.Add(r.bytes())
	p, err := ParsePKCS10(clientRequest(f, keyRSA2()))
	if err != nil {
		f.Fatal(err)
	}
	r = goodDER(f)
	r.spki, r.algorithm = p.CSR.RawSubjectPublicKeyInfo, sequence(oidDER(oid.SHA256WithRSA))
	r.signature = append([]byte{0}, p.CSR.Signature...)
	f.Add(r.bytes())
	f.Fuzz(func(t *testing.T, der []byte) {
		p, err := ParseForeignPKCS10(der)
		strict, strictErr := ParsePKCS10(der)
		if err != nil {
			var v *Error
			if !errors.As(err, &v) || p != nil || strictErr == nil {
				t.Fatalf("request %v, error %v, strictly %v", p, err, strictErr)
			}
			return
		}
		if strictErr != nil && !errors.Is(strictErr, ruleSignatureAlgorithm) {
			t.Fatalf("taken, and strictly %v", strictErr)
		}
		if strictErr == nil && (p.InfoHash != strict.InfoHash || p.ProviderID != strict.ProviderID || !slices.Equal(p.OtherAttributes, strict.OtherAttributes)) {
			t.Fatalf("%+v, strictly %+v", p, strict)
		}
		if len(p.CSR.Extensions) > maxExtensions || len(p.OtherAttributes) > maxAttributes {
			t.Fatalf("%d extensions, %d other attributes", len(p.CSR.Extensions), len(p.OtherAttributes))
		}
		for _, id := range p.OtherAttributes {
			p.Attribute(id)
		}
		// Whatever the signature is, to check it ends.
		_ = p.CheckSignature()
	})
}
