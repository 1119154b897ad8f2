package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

var record = flag.Bool("record", false, "make the inputs in testdata anew, on a simulated TPM")

// TestRecord makes the inputs in testdata where -record asks for it, and is nothing
// otherwise. They are kept, because a TPM's clock and signatures differ from run to
// run.
func TestRecord(t *testing.T) {
	if !*record {
		return
	}
	recordSoftwareKey(t)
	recordResidentKey(t)
	recordServing(t)
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join("testdata", name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// must fails the test on an error: must(t)(os.ReadFile(name)).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// recordSoftwareKey records every message of a join with the TCG's style of AK
// certificate, and each structure in them alone.
func recordSoftwareKey(t *testing.T) {
	node := must(attesttest.OpenNode(attesttest.NodeOptions{TPMOptions: tpmsim.Options{
		OtherName: &tpmsim.OtherName{Type: "\x2b\x06\x01\x04\x01\x82\xe4\x61\x01", Value: []byte("\x0c\x09machine-7")},
	}}))(t)
	defer node.Close()
	plane := attesttest.NewControlPlane(t, node)
	ctx, now := context.Background(), plane.Now().Truncate(time.Second)

	hello := must(node.Hello(ctx, now))(t)
	challenge := must(plane.Verifier.Challenge(ctx, hello))(t)
	answer := must(node.Answer(ctx, challenge, now))(t)
	result := must(plane.Verifier.Verify(ctx, answer))(t)
	issued := must(plane.CA.Issue(ctx, result.Attested()))(t)

	write(t, "hello.pem", hello.Spec.Request)
	write(t, "answer.pem", answer.Spec.Request)
	write(t, "challenge.der", challenge)
	write(t, "challenge.txt", []byte(attest.ChallengeDecision(challenge).Message+"\n"))
	for _, object := range []*csr.Request{hello, answer} {
		object.APIVersion, object.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	}
	hello.Status.Conditions = []csr.Condition{{Type: csr.ConditionDenied, Status: "True", Reason: "AttestationChallenge",
		Message: attest.ChallengeDecision(challenge).Message, LastUpdateTime: now, LastTransitionTime: now}}
	write(t, "denied.json", must(json.MarshalIndent(hello, "", "  "))(t))
	answer.Status.Conditions = []csr.Condition{{Type: csr.ConditionApproved, Status: "True", Reason: csr.ReasonApproved, Message: "evidence verified"}}
	answer.Status.Certificate = issued.PEM
	write(t, "issued.json", must(json.Marshal(answer))(t))

	data := must(csr.Parse(answer.Spec.Request))(t)
	bundle := must(message.ParseBundle(data.Data))(t)
	write(t, "request.der", data.Request)
	write(t, "evidence.der", data.Data)
	write(t, "certify.der", bundle.Statements[0].Stmt)
	write(t, "proof.der", bundle.Statements[1].Stmt)
	write(t, "binding.der", must(proof(bundle.Statements[1].Stmt))(t).Binding)
	write(t, "ak.der", bundle.Certificates[0])
	helloData := must(csr.Parse(hello.Spec.Request))(t)
	helloBundle := must(message.ParseBundle(helloData.Data))(t)
	write(t, "hello.der", helloBundle.Statements[0].Stmt)
	recordParts(t, data, bundle)
	recordCredential(t, challenge)
}

// recordParts records TPM structures alone, and the two dialects.
func recordParts(t *testing.T, data *csr.Bundle, bundle *message.Bundle) {
	certify := must(statement.ParseTCGAttestCertify(bundle.Statements[0].Stmt))(t)
	write(t, "attest.bin", certify.Attest)
	write(t, "signature.bin", certify.Signature)
	write(t, "public.bin", certify.Public)
	prefixed := append([]byte{byte(len(certify.Public) >> 8), byte(len(certify.Public))}, certify.Public...)
	write(t, "public2b.bin", prefixed)
	a := *must(statement.ParseAttestation(certify.Attest))(t)
	a.Type, a.Certified = 0x8018, nil
	a.Quote = &statement.QuoteInfo{PCRDigest: make([]byte, 32), Selections: []statement.PCRSelection{{Hash: 0x000b, Select: []byte{0x81, 0x08, 0}}}}
	quote := must(a.Marshal())(t)
	write(t, "quote.bin", quote)
	write(t, "quote.der", quoteStatement(t, quote, certify.Signature))

	write(t, "proposal.pem", blocks(csr.BlockRequest, data.Request, csr.BlockProposalData, data.Data))
	write(t, "chain.pem", blocks("CERTIFICATE", bundle.Certificates[0], "CERTIFICATE", bundle.Certificates[1]))
	write(t, "attribute.der", requestWithEvidence(t, data.Data))
}

// recordCredential records the challenge of the road that has a credential.
func recordCredential(t *testing.T, challenge []byte) {
	c := must(message.ParseChallenge(challenge))(t)
	c.Binding.Road, c.Clear = message.RoadEK, nil
	c.Binding.AKName = append([]byte{0, 0x0b}, make([]byte, 32)...)
	c.Credential = &message.Credential{IDObject: bytes.Repeat([]byte{0xc1}, 68), EncryptedSecret: bytes.Repeat([]byte{0xc2}, 256)}
	write(t, "credential.der", must(c.Marshal())(t))
}

// recordResidentKey records an answer for a key in the TPM, under a P-256 AK with a
// certificate in Google's style.
func recordResidentKey(t *testing.T) {
	node := must(attesttest.OpenNode(attesttest.NodeOptions{
		AK: tpm.GCEECC(), TPMKey: tpmkey.ECDSAP256, Profile: tpmcert.ProfileGoogle(), ExpirationSeconds: 86400,
		TPMOptions: tpmsim.Options{AKs: []tpmsim.AK{{Algorithm: tpmsim.P256}}, Instance: tpmsim.DefaultInstance()},
	}))(t)
	defer node.Close()
	answer := must(attesttest.NewControlPlane(t, node).Evidence(context.Background(), node))(t)
	write(t, "answer-gce.pem", answer.Spec.Request)
}

func recordServing(t *testing.T) {
	key := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)
	request := must(csr.Create(csr.PurposeServing, key, "node-1", csr.CreateOptions{
		DNSNames: []string{"node-1.example.com"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}}))(t)
	write(t, "serving.pem", blocks(csr.BlockRequest, request))
}

// blocks writes PEM: a label, a content, and so on.
func blocks(labelsAndContents ...any) []byte {
	var b bytes.Buffer
	for i := 0; i < len(labelsAndContents); i += 2 {
		_ = pem.Encode(&b, &pem.Block{Type: labelsAndContents[i].(string), Bytes: labelsAndContents[i+1].([]byte)})
	}
	return b.Bytes()
}

func quoteStatement(t *testing.T, quote, signature []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1OctetString(quote)
		b.AddASN1OctetString(signature)
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, index := range []int64{0, 7, 11} {
				b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1Int64(0x000b)
					b.AddASN1Int64(index)
					b.AddASN1OctetString(make([]byte, 32))
				})
			}
		})
	})
	return must(b.Bytes())(t)
}

// requestWithEvidence makes a PKCS#10 request that carries evidence as an attribute,
// as in draft-ietf-lamps-csr-attestation.
func requestWithEvidence(t *testing.T, evidence []byte) []byte {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	var info cryptobyte.Builder
	info.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(0)
		b.AddBytes(must(csr.ParsePKCS10(must(os.ReadFile("testdata/request.der"))(t)))(t).CSR.RawSubject)
		b.AddBytes(must(csr.CanonicalSPKI(key.Public()))(t))
		b.AddASN1(asn1.Tag(0).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) {
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
				oid.Add(b, oid.IDAAAttestation)
				b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) { b.AddBytes(evidence) })
			})
		})
	})
	signed := must(info.Bytes())(t)
	digest := sha256.Sum256(signed)
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(signed)
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) { oid.Add(b, oid.ECDSAWithSHA256) })
		b.AddASN1BitString(must(ecdsa.SignASN1(rand.Reader, key, digest[:]))(t))
	})
	return must(b.Bytes())(t)
}
