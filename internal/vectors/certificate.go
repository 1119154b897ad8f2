package main

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// chainAttack is one change to the AK's certificates. It becomes two vectors: in an
// answer, and, with -in-hello behind its name, in a hello.
type chainAttack struct {
	name, what, expect string
	chain              [][]byte
	env                *vector.Environment
}

func (w *world) certificates() {
	for _, a := range slices.Concat(w.chainAttacks(), w.leafAttacks(), w.chainCosts()) {
		answer := forge.TakeApart(w.good)
		answer.Evidence.Certificates = a.chain
		w.add(&vector.Vector{Name: a.name, Class: "certificate", Level: vector.LevelVerify, Description: a.what, Expect: a.expect,
			Package: vector.PackageAttest, Object: answer.Together(), Environment: a.env})
		hello := forge.TakeApart(w.goodHello)
		hello.Evidence.Certificates = a.chain
		w.add(&vector.Vector{Name: a.name + "-in-hello", Class: "certificate", Level: vector.LevelChallenge, Description: a.what, Expect: a.expect,
			Package: vector.PackageAttest, Object: hello.Together(), Environment: a.env})
	}
}

// chainAttacks change which certificates are sent, all of them good ones.
func (w *world) chainAttacks() []chainAttack {
	ca, good := w.tpm.CA(), w.tpm.AKCertificate(tpmsim.RSA2048).Raw
	middle := ca.AKIntermediate().Raw
	key := w.tpm.AKPublic(tpmsim.RSA2048)
	foreign := forge.Must(w.Stranger.IssueAK(key, tpmsim.AKCertificateOptions{OtherName: forge.MachineName("machine-1")}))
	old := forge.Must(tpmsim.NewCA(tpmsim.CAOptions{Name: "old", Seed: []byte(forge.Seed + " old"), Now: func() time.Time { return w.Now.AddDate(-60, 0, 0) }}))
	late := forge.Must(old.IssueAK(key, tpmsim.AKCertificateOptions{OtherName: forge.MachineName("machine-1"), NotBefore: w.Now.AddDate(0, -1, 0), NotAfter: w.Now.AddDate(1, 0, 0)}))
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 1
	return []chainAttack{
		{"certificate-missing", "No certificate is sent.", "certificate-missing", nil, nil},
		{"certificate-not-a-certificate", "The AK certificate is an empty SEQUENCE.", "certificate-encoding", [][]byte{{0x30, 0}, middle}, nil},
		{"certificate-signature-changed", "The last byte of the AK certificate's signature was changed.", "certificate-chain", [][]byte{broken, middle}, nil},
		{"certificate-of-another-ak", "The AK certificate is that of another AK of the same machine.", "ak-mismatch", w.AKP256.Chain, nil},
		{"certificate-of-another-machines-ak", "The AK certificate is that of another machine's AK.", "ak-mismatch", w.AKOther.Chain, nil},
		{"ek-certificate-of-the-tpm", "The certificate is that of the TPM's EK.", "ak-mismatch",
			[][]byte{w.tpm.EKCertificate(tpmsim.RSA2048).Raw, ca.EKIntermediate().Raw}, nil},
		{"certificate-of-the-issuer", "The leaf is left out, and the issuer's own certificate comes first.", "ak-mismatch", [][]byte{middle}, nil},
		{"unknown-root", "The AK certificate is for the right key and machine, by a CA that nobody trusts.", "certificate-chain",
			[][]byte{foreign.Raw, w.Stranger.AKIntermediate().Raw}, nil},
		{"unknown-root-sent-along", "The certificates of a CA that nobody trusts are sent with its root.", "certificate-order",
			[][]byte{foreign.Raw, w.Stranger.AKIntermediate().Raw, w.Stranger.Root().Raw}, nil},
		{"intermediate-missing", "The certificate between leaf and root is left out.", "certificate-chain", [][]byte{good}, nil},
		{"intermediate-of-another-ca", "The certificate behind the leaf did not issue it.", "certificate-order", [][]byte{good, ca.EKIntermediate().Raw}, nil},
		{"intermediate-twice", "The intermediate is sent twice.", "certificate-order", [][]byte{good, middle, middle}, nil},
		{"certificate-too-many", "A certificate that the chain does not need is sent behind it.", "certificate-order", [][]byte{good, middle, ca.EKIntermediate().Raw}, nil},
		{"root-sent-along", "The root is sent behind the chain.", "certificate-order", [][]byte{good, middle, ca.Root().Raw}, nil},
		{"intermediate-expired", "The AK certificate is valid, the certificates above it have expired.", "certificate-expired",
			[][]byte{late.Raw, old.AKIntermediate().Raw}, &vector.Environment{Issuers: []vector.Issuer{{Roots: [][]byte{old.Root().Raw}, Profile: profileTCG()}}}},
	}
}

// leafAttacks have the right CA certify the right AK in a wrong way.
func (w *world) leafAttacks() []chainAttack {
	sign, encipher := x509.KeyUsageDigitalSignature, x509.KeyUsageKeyEncipherment
	google := w.issuersWith(func(p *vector.Profile) {
		*p = vector.Profile{Name: "Google Compute Engine AK", KeyUsage: []string{"digitalSignature"}, NoExtKeyUsage: true,
			ExtKeyUsage: []string{oid.TCGKpEKCertificate.String(), oid.TCGKpAIKCertificate.String()},
			Extensions:  []string{oid.KubernetesNodeProviderIdentifier.String()}, Identity: []string{"gce"}}
	})
	microsoft := w.issuersWith(func(p *vector.Profile) { p.Name, p.RequireDirectoryName = "Microsoft AIK", true })
	var out []chainAttack
	add := func(name, what, expect string, o tpmsim.AKCertificateOptions, issuers []vector.Issuer) {
		if o.Style == 0 && !o.NoSAN {
			o.OtherName = forge.MachineName("machine-1")
		}
		leaf := forge.Must(w.CA.IssueAK(w.tpm.AKPublic(tpmsim.RSA2048), o))
		a := chainAttack{name, what, expect, [][]byte{leaf.Raw, w.tpm.CA().AKIntermediate().Raw}, nil}
		if issuers != nil {
			a.env = &vector.Environment{Issuers: issuers}
		}
		out = append(out, a)
	}
	for _, a := range w.AKCertificates() {
		add(a.Name, a.What, a.Expect, a.Options, nil)
	}
	add("instance-extension-missing", "The issuer's profile asks for Google's instance extension, and the AK certificate has none.", "certificate-extension",
		tpmsim.AKCertificateOptions{}, google)
	add("ek-told-by-key-usage-alone", "Under Google's profile the key usage alone tells an EK certificate from an AK's.", "certificate-key-usage",
		tpmsim.AKCertificateOptions{Style: tpmsim.StyleGoogle, KeyUsage: &encipher}, google)
	add("instance-extension-malformed", "Google's instance extension in the AK certificate holds a provider ID.", "machine-identity",
		tpmsim.AKCertificateOptions{KeyUsage: &sign, Extra: []pkix.Extension{forge.Must(oid.ProviderIDExtension(providerID))}}, google)
	add("directory-name-missing", "The issuer's profile asks for a TCG directory name, and the AK certificate has no subjectAltName.", "certificate-subject-alt-name",
		tpmsim.AKCertificateOptions{NoSAN: true}, microsoft)
	add("two-machine-identities", "The subjectAltName of the AK certificate names two machines.", "machine-identity",
		tpmsim.AKCertificateOptions{Edit: func(c *x509.Certificate) { withSAN(c, otherName("machine-1"), otherName("machine-2")) }}, nil)
	add("subject-alt-name-form-unknown", "The critical subjectAltName of the AK certificate has an ediPartyName, a form that nobody reads.", "certificate-subject-alt-name",
		tpmsim.AKCertificateOptions{Edit: func(c *x509.Certificate) {
			withSAN(c, otherName("machine-1"), []byte{0xa5, 0x04, 0xa1, 0x02, 0x0c, 0x00})
		}}, nil)
	return append(out, w.ekForms()...)
}

// ekForms have the issuer of EK certificates certify the AK's key as an EK.
func (w *world) ekForms() []chainAttack {
	ca, sign := w.tpm.CA(), x509.KeyUsageDigitalSignature
	chain := func(o tpmsim.EKCertificateOptions) [][]byte {
		return [][]byte{forge.Must(ca.IssueEK(w.tpm.AKPublic(tpmsim.RSA2048), o)).Raw, ca.EKIntermediate().Raw}
	}
	return []chainAttack{
		{"ek-certificate-as-ak-certificate", "The AK's key has an EK certificate, below the same root.", "certificate-key-usage", chain(tpmsim.EKCertificateOptions{}), nil},
		{"ek-certificate-with-an-aks-key-usage", "The AK's key has an EK certificate with the key usage of an AK's.", "certificate-ext-key-usage",
			chain(tpmsim.EKCertificateOptions{KeyUsage: &sign}), nil},
	}
}

// otherName is an otherName of a subjectAltName, with tag and length.
func otherName(machine string) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.Tag(0).Constructed().ContextSpecific(), func(b *cryptobyte.Builder) {
		oid.Add(b, forge.MachineType)
		b.AddASN1(cryptobyteasn1.Tag(0).Constructed().ContextSpecific(), func(b *cryptobyte.Builder) { b.AddBytes(forge.MachineName(machine).Value) })
	})
	return forge.Must(b.Bytes())
}

// withSAN replaces the critical subjectAltName of a template.
func withSAN(c *x509.Certificate, names ...[]byte) {
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(bytes.Join(names, nil)) })
	for i := range c.ExtraExtensions {
		if oid.SubjectAltName.Equal(c.ExtraExtensions[i].Id) {
			c.ExtraExtensions[i].Value = forge.Must(b.Bytes())
			return
		}
	}
	forge.Check(errors.New("no subjectAltName to replace"))
}
