package jws

import (
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
