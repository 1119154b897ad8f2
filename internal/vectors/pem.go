package main

import (
	"bytes"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// pems are attacks on the PEM of a request.
func (w *world) pems() {
	good := string(forge.Must((&csr.Bundle{Request: w.Request, Provider: "tpm/v1", Data: forge.Derive("evidence", 94)}).Marshal()))
	for _, a := range forge.PEMAttacks() {
		text := a.Change(good)
		if text == good {
			forge.Check(forge.ErrUnchanged(a.Name))
		}
		w.add(&vector.Vector{Name: a.Name, Class: "request", Level: vector.LevelBundle, Description: a.What, Expect: a.Expect,
			Package: vector.PackageCSR, Bundle: &vector.Bundle{PEM: []byte(text)}})
	}
	gke := w.gkePEM(gkeIdentity)
	for _, a := range []forge.PEMAttack{
		{Name: "gke-identity-member-twice", What: "In GKE's dialect, the identity has a member twice: the last one won.", Expect: "gke-identity",
			Change: func(string) string { return w.gkePEM(strings.Replace(gkeIdentity, "}", `,"id":1}`, 1)) }},
		{Name: "gke-block-twice", What: "In GKE's dialect, a block stands there twice: the last one won.", Expect: "bundle-block-duplicate",
			Change: func(s string) string {
				return s + s[strings.Index(s, "-----BEGIN VM"):strings.Index(s, "-----BEGIN ATTESTATION CERT")]
			}},
		{Name: "gke-blocks-reordered", What: "In GKE's dialect, identity and certificate change places.", Expect: "bundle-block-order",
			Change: func(s string) string {
				i, j := strings.Index(s, "-----BEGIN VM"), strings.Index(s, "-----BEGIN ATTESTATION CERT")
				return s[:i] + s[j:] + s[i:j]
			}},
	} {
		w.add(&vector.Vector{Name: a.Name, Class: "request", Level: vector.LevelBundle, Description: a.What, Expect: a.Expect,
			Package: vector.PackageCSR, Bundle: &vector.Bundle{Format: "gke", PEM: []byte(a.Change(gke))}})
	}
}

// gkeIdentity is the JSON of GKE's block VM IDENTITY.
const gkeIdentity = `{"zone":"us-central1-a","id":5779862431105934320,"name":"gke-node-1","project_id":117485845609,"project_name":"example.com:project"}`

// gkePEM is a request in GKE's dialect.
func (w *world) gkePEM(identity string) string {
	p := forge.TakeApart(w.good)
	sig := p.Certify.Signature[6:] // bare
	var out bytes.Buffer
	for _, b := range []struct {
		label string
		data  []byte
	}{
		{csr.BlockRequest, w.Request}, {csr.BlockProposalData, p.Certify.Attest}, {csr.BlockGKESignature, sig},
		{csr.BlockGKEIdentity, []byte(identity)}, {csr.BlockGKECertificate, p.Evidence.Certificates[0]},
	} {
		out.WriteString(forge.PEMBlock(b.label, b.data))
	}
	return out.String()
}
