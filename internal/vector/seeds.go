package vector

import (
	"encoding/json"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// Part is a kind of bytes that some parser of this module reads.
type Part string

// The parts that Seeds finds.
const (
	PartObject     Part = "object"     // the JSON of a request object, csr.ParseRequest
	PartPEM        Part = "pem"        // csr.Parse
	PartRequest    Part = "request"    // PKCS#10, csr.ParsePKCS10
	PartEvidence   Part = "evidence"   // attest.ParseAttestationBundle
	PartHello      Part = "hello"      // attest.ParseHello
	PartChallenge  Part = "challenge"  // attest.ParseChallenge
	PartProof      Part = "proof"      // attest.ParseProof
	PartCertify    Part = "certify"    // tpm.ParseTCGAttestCertify
	PartAttest     Part = "attest"     // tpm.ParseAttestation
	PartSignature  Part = "signature"  // tpm.ParseSignature
	PartPublic     Part = "public"     // tpm.ParsePublic
	PartProviderID Part = "providerID" // oid.UnmarshalProviderID
	PartInstance   Part = "instance"   // oid.ParseGCEInstance
	PartQuote      Part = "quote"      // tpm.ParseQuote
	PartEK         Part = "ek"         // tpm.ParseEKCertificate
	PartCRL        Part = "crl"        // tpm.NewCRLStore
)

// Seeds returns every input of one kind in the vectors, for the corpus of a fuzz
// target: good ones, and those that an attacker changed. What no parser can take
// apart is left whole. The order is that of the vectors, each value once.
func (set *Set) Seeds(part Part) [][]byte {
	var out [][]byte
	seen := map[string]bool{}
	for _, v := range set.Vectors {
		for _, p := range v.parts() {
			if p.part == part && len(p.bytes) > 0 && !seen[string(p.bytes)] {
				seen[string(p.bytes)] = true
				out = append(out, p.bytes)
			}
		}
	}
	return out
}

type seed struct {
	part  Part
	bytes []byte
}

func (v *Vector) parts() []seed {
	var out []seed
	if v.Object != nil {
		if text, err := json.Marshal(v.Object); err == nil {
			out = append(out, seed{PartObject, text})
		}
		out = append(out, partsOfPEM(v.Object.Spec.Request)...)
	}
	if v.Bundle != nil {
		out = append(out, partsOfPEM(v.Bundle.PEM)...)
	}
	if n := v.Node; n != nil {
		out = append(out, seed{PartChallenge, n.Challenge}, seed{PartRequest, n.Request}, seed{PartPublic, n.AKPublic})
	}
	if s := v.Statement; s != nil {
		out = append(out, seed{PartAttest, s.Attest}, seed{PartPublic, s.Public}, seed{PartPublic, s.AKPublic})
		if s.RawSignature == nil {
			out = append(out, seed{PartSignature, s.Signature})
		}
	}
	out = append(out, v.partsOfRoadEK()...)
	for _, e := range v.Extensions {
		out = append(out, seed{PartProviderID, e.Value})
	}
	return append(out, seed{PartInstance, v.Value})
}

// partsOfRoadEK are those of a quote, an EK, and a credential.
func (v *Vector) partsOfRoadEK() []seed {
	var out []seed
	if q := v.Quote; q != nil {
		out = append(out, seed{PartAttest, q.Attest}, seed{PartPublic, q.AKPublic})
		if q.RawSignature == nil {
			out = append(out, seed{PartSignature, q.Signature})
		}
		if der, err := tpm.MarshalQuote(&tpm.QuoteEvidence{Attest: q.Attest, Signature: q.Signature, PCRs: pcrs(q.PCRs)}); err == nil {
			out = append(out, seed{PartQuote, der})
		}
	}
	if v.EK != nil && len(v.EK.Certificates) > 0 {
		out = append(out, seed{PartEK, v.EK.Certificates[0]})
	}
	if v.Environment != nil {
		for _, i := range v.Environment.EKIssuers {
			for _, der := range i.CRLs {
				out = append(out, seed{PartCRL, der})
			}
		}
	}
	if v.Credential != nil {
		out = append(out, seed{PartChallenge, v.Credential.Challenge})
	}
	return out
}

func partsOfPEM(pem []byte) []seed {
	out := []seed{{PartPEM, pem}}
	bundle, err := csr.Parse(pem)
	if err != nil {
		return out
	}
	out = append(out, seed{PartRequest, bundle.Request}, seed{PartEvidence, bundle.Data})
	evidence, err := attest.ParseAttestationBundle(bundle.Data)
	if err != nil {
		return out
	}
	for _, s := range evidence.Statements {
		switch s.Type {
		case oid.NodeAttestHello:
			out = append(out, seed{PartHello, s.Stmt})
		case oid.NodeAttestQuote:
			out = append(out, seed{PartQuote, s.Stmt})
		case oid.NodeAttestProof:
			out = append(out, seed{PartProof, s.Stmt})
		case oid.TCGAttestTPMCertify:
			out = append(out, seed{PartCertify, s.Stmt})
			if c, err := tpm.ParseTCGAttestCertify(s.Stmt); err == nil {
				out = append(out, seed{PartAttest, c.Attest}, seed{PartSignature, c.Signature}, seed{PartPublic, c.Public})
			}
		}
	}
	return out
}
