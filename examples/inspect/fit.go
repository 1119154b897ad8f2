package main

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
)

// maxChain limits the certificates that are checked against each other.
const maxChain = 16

// parts holds what was read, the first of each kind.
type parts struct {
	request      *csr.PKCS10
	binding      *message.Binding
	attestation  *statement.Attestation
	signature    []byte // over attestation
	bare         bool   // signature is not a TPMT_SIGNATURE
	public       *statement.Public
	ak           *statement.Public
	certificates []*x509.Certificate
}

// take keeps the first structure of each kind. A public area on its own counts as an AK's if
// it has an AK's attributes.
func (p *parts) take(v any, raw []byte) {
	switch v := v.(type) {
	case *message.Binding:
		p.binding = cmp.Or(p.binding, v)
	case *message.Challenge:
		p.binding = cmp.Or(p.binding, &v.Binding)
	case *statement.Attestation:
		p.attestation = cmp.Or(p.attestation, v)
	case *statement.Signature:
		if p.signature == nil {
			p.signature = raw
		}
	case *statement.CertifyEvidence:
		p.public = cmp.Or(p.public, publicArea(v.Public))
	case *message.Hello:
		p.ak = cmp.Or(publicArea(v.AKPublic), p.ak)
	case *message.Proof:
		p.ak = cmp.Or(publicArea(v.AKPublic), p.ak)
	case *statement.Public:
		if v.Attributes.Has(statement.AttributeRestricted | statement.AttributeSign) {
			p.ak = cmp.Or(p.ak, v)
		} else {
			p.public = cmp.Or(p.public, v)
		}
	}
}

// publicArea parses a public area that a message carries. It returns nil if it is malformed.
func publicArea(b []byte) *statement.Public {
	p, _ := statement.ParsePublic(b)
	return p
}

// showFit says how the parts fit together. Each line follows from the input alone; none of
// them says that an issuer or a challenge can be trusted.
func (t *tree) showFit() {
	p := &t.parts
	var lines [][2]string
	ask := func(question, answer string) { lines = append(lines, [2]string{question, answer}) }
	if p.attestation != nil && p.attestation.Certified != nil && p.public != nil {
		ask("the certified Name is that of the certified public area", yesNo(p.public.HasName(p.attestation.Certified.Name)))
	}
	if p.public != nil && p.request != nil {
		ask("the certified key is the request's", yesNo(p.public.SameKey(p.request.CSR.PublicKey)))
	}
	if p.ak != nil && len(p.certificates) > 0 {
		ask("the AK is the key of the first certificate", yesNo(p.ak.SameKey(p.certificates[0].PublicKey)))
	}
	if p.ak != nil && p.attestation != nil {
		name := statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, p.ak.Name())
		ask("the qualified signer is the AK, a primary key of the endorsement hierarchy", yesNo(bytes.Equal(name, p.attestation.QualifiedSigner)))
	}
	p.statement(ask)
	if p.binding != nil && p.request != nil {
		ask("the binding is for this request", yesNo(p.binding.RequestHash == p.request.InfoHash))
	}
	if p.binding != nil && p.ak != nil {
		ask("the binding is for this AK", yesNo(p.boundToAK()))
	}
	for i := 1; i < len(p.certificates); i++ {
		lower, upper := p.certificates[i-1], p.certificates[i]
		if computable(upper.PublicKey) {
			err := upper.CheckSignature(lower.SignatureAlgorithm, lower.RawTBSCertificate, lower.Signature)
			ask(fmt.Sprintf("certificate %d is signed by certificate %d", i, i+1), answer(err))
		}
	}
	if len(lines) == 0 {
		return
	}
	t.in("how the parts fit", "", func() {
		for _, l := range lines {
			t.line(l[0], l[1])
		}
	})
}

// statement verifies a certify statement under the AK that came with it.
func (p *parts) statement(ask func(question, answer string)) {
	if p.attestation == nil || p.attestation.Certified == nil || p.signature == nil || p.public == nil {
		return
	}
	options := statement.CertifyOptions{
		AllowDecryptionKey: true, AllowRestrictedKey: true,
		InsecureAllowAnyQualifyingData: true, InsecureAllowAnyKey: true,
		InsecureAllowSHA1Signature: true, InsecureAllowSHA1Name: true,
	}
	switch {
	case p.ak != nil:
		options.AK = statement.InsecureAKFromSender(nil, p.ak.Raw)
	case len(p.certificates) > 0 && computable(p.certificates[0].PublicKey):
		options.AK = statement.InsecureAKFromSender(p.certificates[0].PublicKey, nil)
	default:
		return
	}
	evidence, as := statement.CertifyEvidence{Attest: p.attestation.Raw, Signature: p.signature, Public: p.public.Raw}, ""
	if p.bare {
		evidence.RawSignature = &statement.RawScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
		as = ", taken for RSASSA with SHA-256,"
	}
	certified, err := statement.VerifyCertify(&evidence, options)
	ask("the statement"+as+" verifies under the AK, whatever its qualifying data", answer(err))
	if err == nil {
		ask("signed with", certified.SignatureScheme.String())
		// TPMResident is never set under an AK that nobody vouches for.
		c := certified.Attestation.Certified
		lives := certified.Public.Attributes.Has(statement.AttributeFixedTPM|statement.AttributeFixedParent) && !bytes.Equal(c.Name, c.QualifiedName)
		ask("the certified key lives in the TPM, if the AK does", yesNo(lives))
	}
}

// boundToAK reports whether the binding names the AK: by its key, or by its Name.
func (p *parts) boundToAK() bool {
	if p.binding.Road == message.RoadEK {
		return p.ak.HasName(p.binding.AKName)
	}
	key, err := p.ak.Key()
	if err != nil {
		return false
	}
	hash, err := csr.SPKIHash(key)
	return err == nil && hash == p.binding.MachineKey
}

func answer(err error) string {
	if err != nil {
		return "NO: " + err.Error()
	}
	return "yes"
}
