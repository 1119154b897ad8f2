package main

import (
	"bytes"
	"crypto/x509"
	"fmt"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
)

// maxChain bounds the certificates that are held against each other.
const maxChain = 16

// endorsement is TPM_RH_ENDORSEMENT, the hierarchy of EKs and of most AKs.
const endorsement = 0x4000000b

// parts are what was read, the first of each kind.
type parts struct {
	request      *csr.PKCS10
	binding      *attest.Binding
	attestation  *tpm.Attestation
	signature    []byte // over attestation
	bare         bool   // signature is no TPMT_SIGNATURE
	public       *tpm.Public
	ak           *tpm.Public
	certificates []*x509.Certificate
}

// showFit says how the parts fit together. Each line can be worked out from the input
// alone; none of them says that an issuer or a challenge is one to trust.
func (t *tree) showFit() {
	p := &t.parts
	var lines [][2]string
	add := func(question, answer string) { lines = append(lines, [2]string{question, answer}) }
	if p.attestation != nil && p.attestation.Certified != nil && p.public != nil {
		add("the certified Name is that of the certified public area", yesNo(p.public.HasName(p.attestation.Certified.Name)))
	}
	if p.public != nil && p.request != nil {
		add("the certified key is the request's", yesNo(p.public.SameKey(p.request.CSR.PublicKey)))
	}
	if p.ak != nil && len(p.certificates) > 0 {
		add("the AK is the key of the first certificate", yesNo(p.ak.SameKey(p.certificates[0].PublicKey)))
	}
	if p.attestation != nil && p.ak != nil {
		name := tpm.QualifiedNameOfPrimary(endorsement, p.ak.Name())
		add("the qualified signer is the AK, a primary key of the endorsement hierarchy", yesNo(bytes.Equal(name, p.attestation.QualifiedSigner)))
	}
	p.statement(add)
	p.bound(add)
	for i := 0; i+1 < len(p.certificates); i++ {
		lower, upper := p.certificates[i], p.certificates[i+1]
		if computable(upper.PublicKey) {
			add(fmt.Sprintf("certificate %d is signed by certificate %d", i+1, i+2), answer(upper.CheckSignature(lower.SignatureAlgorithm, lower.RawTBSCertificate, lower.Signature)))
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

// statement verifies a certify statement under the AK that came along.
func (p *parts) statement(add func(question, answer string)) {
	if p.attestation == nil || p.attestation.Certified == nil || p.signature == nil || p.public == nil {
		return
	}
	evidence := &tpm.CertifyEvidence{Attest: p.attestation.Raw, Signature: p.signature, Public: p.public.Raw}
	as := ""
	if p.bare {
		evidence.RawSignature = &tpm.RawScheme{Alg: 0x0014, Hash: 0x000b}
		as = ", taken for RSASSA with SHA-256,"
	}
	options := &tpm.CertifyOptions{
		AllowDecryptionKey: true, AllowRestrictedKey: true,
		InsecureAllowAnyQualifyingData: true, InsecureAllowAnyKey: true,
		InsecureAllowSHA1Signature: true, InsecureAllowSHA1Name: true,
	}
	switch {
	case p.ak != nil:
		options.AK = tpm.InsecureAKFromSender(nil, p.ak.Raw)
	case len(p.certificates) > 0 && computable(p.certificates[0].PublicKey):
		options.AK = tpm.InsecureAKFromSender(p.certificates[0].PublicKey, nil)
	default:
		return
	}
	certified, err := tpm.VerifyCertify(evidence, options)
	add("the statement"+as+" verifies under the AK, whatever its qualifying data", answer(err))
	if err == nil {
		add("signed with", certified.SignatureScheme.String())
		// Under an AK that nobody vouches for, TPMResident is never set.
		c := certified.Attestation.Certified
		lives := certified.Public.Attributes.Has(tpm.AttributeFixedTPM|tpm.AttributeFixedParent) && !bytes.Equal(c.Name, c.QualifiedName)
		add("the certified key lives in the TPM, if the AK does", yesNo(lives))
	}
}

// bound holds a Binding against the request and the AK.
func (p *parts) bound(add func(question, answer string)) {
	if p.binding == nil {
		return
	}
	if p.request != nil {
		add("the binding is for this request", yesNo(p.binding.RequestHash == p.request.InfoHash))
	}
	if p.ak == nil {
		return
	}
	if p.binding.Road == attest.RoadEK {
		add("the binding is for this AK", yesNo(p.ak.HasName(p.binding.AKName)))
		return
	}
	if key, err := p.ak.Key(); err == nil {
		hash, err := csr.SPKIHash(key)
		add("the binding is for this AK", yesNo(err == nil && hash == p.binding.MachineKey))
	}
}

func answer(err error) string {
	if err != nil {
		return "NO: " + err.Error()
	}
	return "yes"
}
