package attesttest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

func statement(name, what string, change func(*forgery)) Attack {
	return forged(ClassStatement, name, what, nil, change)
}

// structureAttacks have the AK sign what is no certify statement, or another one.
func structureAttacks() []Attack {
	patch := func(name, what string, how func([]byte) []byte) Attack {
		return statement(name, what, func(f *forgery) { f.patch = how })
	}
	return []Attack{
		patch("forged-magic", "The AK signed a structure that no TPM made.", func(b []byte) []byte { b[3] ^= 1; return b }),
		statement("forged-quote", "A quote stands in place of the certify statement.", func(f *forgery) {
			f.attest.Type, f.tpm.Certified = tpm2.TPMSTAttestQuote, nil
			f.attest.Quote = &tpm.QuoteInfo{Selections: []tpm.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0}}}, PCRDigest: make([]byte, 32)}
		}),
		patch("command-audit", "A command audit stands in place of the certify statement.", func(b []byte) []byte { b[4], b[5] = 0x80, 0x15; return b }),
		patch("statement-with-bytes-behind", "A byte stands behind the statement, under the signature.", func(b []byte) []byte { return append(b, 0) }),
		patch("statement-truncated", "The statement lacks its last byte, under the signature.", func(b []byte) []byte { return b[:len(b)-1] }),
		statement("qualifying-data-absent", "The statement has no qualifying data.", func(f *forgery) { f.attest.ExtraData = nil }),
		statement("qualifying-data-prefix", "The statement has the first 31 bytes of the qualifying data.", func(f *forgery) { f.attest.ExtraData = f.attest.ExtraData[:31] }),
		statement("qualifying-data-other", "The statement has other qualifying data.", func(f *forgery) { f.attest.ExtraData = make([]byte, 32) }),
		statement("qualifying-data-is-the-secret", "The qualifying data is the challenge's secret itself.", func(f *forgery) { f.attest.ExtraData = f.secret }),
		statement("proof-missing", "There is no proof statement.", func(f *forgery) {
			f.evidence = func(b *attest.AttestationBundle) { b.Statements = b.Statements[:1] }
		}),
		statement("statements-reversed", "The proof stands before the certify statement.", func(f *forgery) {
			f.evidence = func(b *attest.AttestationBundle) {
				b.Statements[0], b.Statements[1] = b.Statements[1], b.Statements[0]
			}
		}),
		statement("statement-unknown", "A statement that nobody knows stands behind the others.", func(f *forgery) {
			f.evidence = func(b *attest.AttestationBundle) {
				b.Statements = append(b.Statements, attest.AttestationStatement{Type: machineType, Stmt: []byte{5, 0}})
			}
		}),
		statement("two-certify-statements", "There are two certify statements.", func(f *forgery) {
			f.evidence = func(b *attest.AttestationBundle) { b.Statements = append(b.Statements, b.Statements[0]) }
		}),
		statement("hello-as-answer", "The evidence is a hello.", func(f *forgery) {
			f.evidence = func(b *attest.AttestationBundle) {
				stmt, _ := (&attest.Hello{Road: f.road, ClusterID: ClusterID, TargetSigner: f.binding.SignerName, AKPublic: f.akPublic}).Marshal()
				b.Statements = []attest.AttestationStatement{{Type: oid.NodeAttestHello, Stmt: stmt}}
			}
		}),
	}
}

// certifiedKeyAttacks are about which key the statement is for.
func certifiedKeyAttacks() []Attack {
	other := func() *tpm.Public {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil
		}
		public, _ := publicArea(&key.PublicKey, residentAttributes, noScheme)
		return public
	}
	as := func(name, what string, attributes tpm.Attributes, external bool) Attack {
		return statement(name, what, func(f *forgery) { f.certifyAs(attributes, external) })
	}
	return []Attack{
		statement("name-of-another-key", "The certified Name is another key's.", func(f *forgery) { f.tpm.Certified.Name = other().Name() }),
		statement("public-area-swapped", "The public area sent along is another key's.", func(f *forgery) { f.public = other() }),
		statement("request-key-swapped", "The statement certifies another key than the request's.", func(f *forgery) { f.certify(other()) }),
		statement("public-area-with-bytes-behind", "A byte stands behind the public area.", func(f *forgery) {
			f.after = func(e *tpm.CertifyEvidence) { e.Public = append(bytes.Clone(e.Public), 0) }
		}),
		statement("sha1-name", "The certified key's Name is a SHA-1 digest.", func(f *forgery) {
			again := *f.public
			again.NameAlg = tpm2.TPMAlgSHA1
			if p, err := reparsed(&again); err == nil {
				f.certify(p)
			}
		}),
		as("external-key-claims-fixed-tpm", "A key that was loaded from outside says fixedTPM.", residentAttributes, true),
		as("key-fixed-tpm-without-fixed-parent", "The certified key has fixedTPM without fixedParent, which no TPM allows.", residentAttributes&^tpm.AttributeFixedParent, false),
		as("key-restricted", "The certified key is restricted, an attestation key itself.", akAttributes, false),
		as("key-cannot-sign", "The certified key can decrypt and not sign.", residentAttributes&^tpm.AttributeSign|tpm.AttributeDecrypt, false),
		{Name: "ak-certified-as-tls-key", Class: ClassStatement, Description: "The AK's own key is certified, and the request is for it.", make: certifyAK},
	}
}

// certifyAK asks for a certificate for the AK's own key.
func certifyAK(_ context.Context, a *attempt) (*csr.Request, error) {
	applicant, err := a.applicant(wish{key: a.machines[MachineOne].key})
	if err != nil {
		return nil, err
	}
	f, err := a.forge(applicant, nil)
	if err != nil {
		return nil, err
	}
	f.certifyAs(softwareAttributes, true)
	return f.object()
}

// residenceAttacks pass off keys that the TPM did not make, where only its own are
// wanted.
func residenceAttacks() []Attack {
	return []Attack{
		statement("software-key-passed-off-as-resident", "A software key was loaded with sensitiveDataOrigin set.", func(f *forgery) {
			f.certifyAs(softwareAttributes|tpm.AttributeSensitiveDataOrigin, true)
		}),
		statement("imported-key-passed-off-as-resident", "A key has a parent in the TPM, but not fixedTPM.", func(f *forgery) { f.certifyAs(softwareAttributes, false) }),
	}
}

// signatureAttacks are about the AK's signature.
func signatureAttacks() []Attack {
	return []Attack{
		statement("signature-by-another-key", "Another machine's AK signed the statement.", func(f *forgery) {
			thief := *f.machine
			thief.key = f.world.machines[Stranger].key
			f.machine = &thief
		}),
		statement("signature-of-another-statement", "The signature is of another statement of the same AK.", func(f *forgery) {
			f.after = func(e *tpm.CertifyEvidence) { e.Attest[len(e.Attest)-1] ^= 1 }
		}),
		statement("signature-sha1", "The statement is signed with SHA-1.", func(f *forgery) { f.hash = tpm2.TPMAlgSHA1 }),
		statement("signature-of-another-hash", "The statement is signed with another hash than the AK's scheme has.", func(f *forgery) { f.hash = tpm2.TPMAlgSHA384 }),
		statement("signature-of-zeros", "R and s of the signature are zero.", func(f *forgery) {
			f.signature = func(s *tpm.Signature) { s.R, s.S = make([]byte, 32), make([]byte, 32) }
		}),
		statement("signature-r-over-order", "R of the signature is over the curve's order.", func(f *forgery) {
			f.signature = func(s *tpm.Signature) { s.R = bytes.Repeat([]byte{0xff}, 32) }
		}),
		statement("signature-with-bytes-behind", "A byte stands behind the signature.", func(f *forgery) {
			f.after = func(e *tpm.CertifyEvidence) { e.Signature = append(e.Signature, 0) }
		}),
		statement("signature-truncated", "The signature lacks its last byte.", func(f *forgery) {
			f.after = func(e *tpm.CertifyEvidence) { e.Signature = e.Signature[:len(e.Signature)-1] }
		}),
	}
}
