package jws

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"testing"
)

// wycheproofKey binds a group's public key to an algorithm.
func wycheproofKey(t *testing.T, text string, algorithm Algorithm) *Key {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatal("no PEM block")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key, err := NewKey(public, KeyOptions{Algorithm: algorithm})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestWycheproofSignatures runs the signatures over any bytes through the function that
// checks signatures of tokens.
func TestWycheproofSignatures(t *testing.T) {
	for _, test := range []struct {
		file      string
		algorithm Algorithm
		der       bool // signatures are in DER, as a crypto.Signer returns them
		other     bool // made with other parameters than the algorithm's: none verifies but one
		exception int  // of these, made as the algorithm has it, and so marked invalid
	}{
		{file: "ecdsa_secp256r1_sha256_p1363_test.json", algorithm: ES256},
		{file: "ecdsa_secp256r1_sha256_test.json", algorithm: ES256, der: true},
		{file: "ecdsa_secp384r1_sha384_p1363_test.json", algorithm: ES384},
		{file: "ecdsa_secp384r1_sha384_test.json", algorithm: ES384, der: true},
		{file: "ecdsa_secp384r1_sha256_test.json", algorithm: ES384, der: true, other: true},
		{file: "rsa_signature_2048_sha256_test.json", algorithm: RS256},
		{file: "rsa_signature_2048_sha256_test.json", algorithm: PS256, other: true, exception: 257},
		{file: "rsa_signature_2048_sha256_test.json", algorithm: RS512, other: true, exception: 223},
		{file: "rsa_pss_2048_sha256_mgf1_32_test.json", algorithm: PS256},
		{file: "rsa_pss_2048_sha256_mgf1_32_test.json", algorithm: RS256, other: true, exception: 108},
		{file: "rsa_pss_2048_sha256_mgf1_0_test.json", algorithm: PS256, other: true, exception: 69},
	} {
		t.Run(test.file+"/"+string(test.algorithm), func(t *testing.T) {
			for _, group := range wycheproof(t, test.file).TestGroups {
				key := wycheproofKey(t, group.PublicKeyPem, test.algorithm)
				for _, vector := range group.Tests {
					signature := unhex(t, vector.Signature)
					if test.der {
						signature = fixedWidth(signature, key.signatureSize()/2)
					}
					want := vector.valid()
					if test.other {
						want = vector.ID == test.exception
					}
					if err := key.verify(unhex(t, vector.Message), signature); (err == nil) != want {
						t.Errorf("%d %s, %s: %v", vector.ID, vector.Result, vector.Comment, err)
					}
				}
			}
		})
	}
}

// TestWycheproofHMAC checks that the HMAC which detached signatures have is the one of
// the vectors. Truncated tags are not: a detached signature has all 32 bytes.
func TestWycheproofHMAC(t *testing.T) {
	for _, group := range wycheproof(t, "hmac_sha256_test.json").TestGroups {
		for _, vector := range group.Tests {
			mac := hmac.New(sha256.New, unhex(t, vector.Key))
			mac.Write(unhex(t, vector.Message))
			got := subtle.ConstantTimeCompare(mac.Sum(nil), unhex(t, vector.Tag)) == 1
			if want := vector.valid() && group.TagSize == 8*sha256.Size; got != want {
				t.Errorf("%d %s with a tag of %d bits, %s", vector.ID, vector.Result, group.TagSize, vector.Comment)
			}
		}
	}
}
