package statement_test

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// A public area as a TPM gives it: a restricted signing key, RSASSA with SHA-256,
// here without its modulus.
const templateHex = "0001000b00050072000000100014000b0800000000000000"

func ExampleParsePublic() {
	area, err := hex.DecodeString(templateHex)
	if err != nil {
		panic(err)
	}
	p, err := statement.ParsePublic(area)
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Attributes)
	fmt.Println(p.Scheme, p.KeyBits)
	fmt.Printf("%x\n", p.Name())
	_, err = p.Key()
	fmt.Println(err)
	// Output:
	// fixedTPM|fixedParent|sensitiveDataOrigin|userWithAuth|restricted|sign
	// RSASSA/SHA256 2048
	// 000b1e60188db7ff1d3ba644a29a79da5f3ed3c4ced03a0b768b277fb922d8887719
	// public-encoding: got a modulus of 0 bytes, want keyBits 2048
}

func ExampleParseAttestation() {
	// The magic says that a TPM made the structure, the type that it is a
	// statement of TPM2_Certify.
	evidence, err := hex.DecodeString("ff5443478017" + "0000" + "000400ff55aa" +
		"00000000000000070000000100000002012019102300163636" + "0000" + "0000")
	if err != nil {
		panic(err)
	}
	a, err := statement.ParseAttestation(evidence)
	if err != nil {
		panic(err)
	}
	fmt.Printf("extra data %x, reset %d times, clock %d ms\n", a.ExtraData, a.ResetCount, a.Clock)

	evidence[0] = 0
	_, err = statement.ParseAttestation(evidence)
	fmt.Println(errors.Is(err, statement.CheckMagic), err)
	// Output:
	// extra data 00ff55aa, reset 1 times, clock 7 ms
	// true attest-magic: got 0x00544347, want 0xff544347
}

// A statement that tpm2_certify 5.4 made on swtpm: an ECDSA attestation key under the
// endorsement hierarchy certifies a P-256 key below the owner's. The tool's
// qualifying data is always 00ff55aa.
const (
	recordedAK = "0023000b00050072000000100018000b00030010002000290862ee3ccd79735bf31da48f67624b49" +
		"00a8b451c06d71aea880dcbe20eb0020e5d3cb295cd3d1a848d5fb5bd8ecabe5fb212f6a6675a5bf" +
		"952a46c53deb5652"
	recordedKey = "0023000b00040072000000100010000300100020e921df24af4b97655dfe4c50ed3777151880c1b1" +
		"d294241b595139c3d28c9a41002045d89c66b82d1043c9b1c5db8affddbd1f6a48aebfb8d34ceba3" +
		"dc3b46dcc7ff"
	recordedAttest = "ff54434780170022000b07ed113792dcbe23fa0cb5ec8f515aea5ceaa5efc53099d4a380e30974a7" +
		"1e99000400ff55aa00000000000000a900000001000000000120191023001636360022000b783e07" +
		"422f7b2b0d0616069065ce3e6298aae5d5b3300d33f21635c46c7293330022000b02c531bb1b04b3" +
		"7fe07130d0985d2ec2396fbc28db1eea1d95d2ff9654f8fe57"
	recordedSignature = "0018000b0020de7911deda34be9eda67901c698fa5630eeba66cc93c6f08cea8149c511e4bfa0020" +
		"1c9ee0f6ccaedba770d975065b3ae7b10a42bef0b4ee23e121db0d60e935506c"
)

func fromHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func ExampleVerifyCertify() {
	evidence := &statement.CertifyEvidence{
		Attest: fromHex(recordedAttest), Signature: fromHex(recordedSignature), Public: fromHex(recordedKey),
	}
	// The expected key comes from a certificate request, as a rule; here from the
	// same place as the evidence.
	area, err := statement.ParsePublic(evidence.Public)
	if err != nil {
		panic(err)
	}
	expected, err := area.Key()
	if err != nil {
		panic(err)
	}
	options := statement.CertifyOptions{
		AK:             statement.AKFromCredential(fromHex(recordedAK)),
		QualifyingData: []byte{0x00, 0xff, 0x55, 0xaa},
		Key:            expected,
	}
	certified, err := statement.VerifyCertify(evidence, options)
	if err != nil {
		panic(err)
	}
	fmt.Println("signed with", certified.SignatureScheme)
	fmt.Println("TPM-resident:", certified.TPMResident, "clock trusted:", certified.ClockTrusted)
	fmt.Println(certified.Public.Attributes)

	options.QualifyingData = []byte("another challenge")
	_, err = statement.VerifyCertify(evidence, options)
	fmt.Println(errors.Is(err, attest.CheckQualifyingData))
	_, err = statement.VerifyCertify(evidence, statement.CertifyOptions{}) // says nothing, accepts nothing
	fmt.Println(err)
	// Output:
	// signed with ECDSA/SHA256
	// TPM-resident: true clock trusted: true
	// fixedTPM|fixedParent|sensitiveDataOrigin|userWithAuth|sign
	// true
	// certify-options: got no attestation key, want AKFromCredential or AKFromIssuer
}

func ExampleAttributes_String() {
	fmt.Println(statement.AttributeFixedTPM | statement.AttributeSign)
	fmt.Println(statement.Attributes(0x300b2))
	// Output:
	// fixedTPM|sign
	// fixedTPM|fixedParent|sensitiveDataOrigin|adminWithPolicy|restricted|decrypt
}
