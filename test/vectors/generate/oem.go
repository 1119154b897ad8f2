package main

import (
	"crypto/sha256"
	"crypto/x509"
	"time"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// oem is a maker of machines that certifies their attestation keys (IAK).
type oem struct {
	*world
	ca *tpmsim.CA
	// good identifies machines by their TPM and tolerates nothing; tolerant identifies them by
	// the purchase, and tolerates everything.
	good, tolerant *vector.Environment
}

func (w *world) oems() {
	ca := forge.Must(tpmsim.NewCA(tpmsim.CAOptions{Name: "OEM", Seed: []byte(forge.Seed + " OEM"), Now: func() time.Time { return w.Now }}))
	m := &oem{world: w, ca: ca}
	m.good = m.environment("hwserial", "hwserial:issuer-0/SIM%20:5F2C9E0A41B7D3866C10:01A4")
	bought := m.environment("chassis", "chassis:issuer-0/SIM-1000/SIM0000001")
	m.tolerant = m.environment("chassis", bought.Members[0].Machine)
	p := &m.tolerant.Issuers[0].Profile
	p.InsecureAllowCA, p.InsecureAllowNoPolicies, p.InsecureAllowNoSAN, p.InsecureAllowDirectoryName = true, true, true, true

	accept := func(name, what string, o tpmsim.CertificateOptions, env *vector.Environment) {
		w.acceptAs(name, what, m.answer(w.AKP256, o), env, &vector.Result{NodeName: forge.NodeName, Machine: env.Members[0].Machine,
			Profile: "OEM IAK", ProviderID: providerID, TPMResident: new(true)})
	}
	accept("oem-iak", "A maker's IAK; the machine is known by its TPM.", tpmsim.CertificateOptions{}, m.good)
	accept("oem-iak-by-purchase", "A maker's IAK; the machine is known by its part number and serial number.", tpmsim.CertificateOptions{}, bought)
	accept("oem-iak-tolerated", "A maker's IAK whose certificate is a CA's, without policies and subjectAltName, where all of that is tolerated.",
		tpmsim.CertificateOptions{IsCA: true, NoSAN: true, KeyUsage: new(x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment), Edit: policies()}, m.tolerant)
	w.class = "certificate"
	m.usages()
	m.names()
	w.class = "statement"
	m.otherKeys()
	w.class = "certificate"
	m.refuseLeaf("idevid-ext-key-usage", "The certificate has no policies, which is tolerated, and an extended key usage that says of the key that it is fixed, as an IDevID's.",
		"certificate-policy", tpmsim.CertificateOptions{Edit: policies(), ExtKeyUsage: []oid.OID{oid.TCGCapVerifiedTPMFixed}}, m.tolerant)
	m.placeholders()
}

// placeholders are certificates that name no machine: every machine of the maker has the same.
func (m *oem) placeholders() {
	unnamed := tpmsim.DefaultDevice()
	unnamed.SerialNumber = "To be filled by O.E.M."
	m.refuseLeaf("serial-number-placeholder", "The machine is known by what was bought, and its serial number is what firmware has where nobody wrote one.",
		"machine-identity", tpmsim.CertificateOptions{Device: unnamed}, m.tolerant)
	unnamed = tpmsim.DefaultDevice()
	unnamed.HardwareSerial = "00000000"
	m.refuseLeaf("serial-number-zeros", "The machine is known by its TPM, whose serial number is zeros.", "machine-identity", tpmsim.CertificateOptions{Device: unnamed}, m.good)
}

func (m *oem) environment(identity, machine string) *vector.Environment {
	policies := []string{oid.TCGCapVerifiedTPMResidency.String(), oid.TCGCapVerifiedTPMRestricted.String()}
	p := vector.Profile{Name: "OEM IAK", KeyUsage: []string{"digitalSignature"}, NoExtKeyUsage: true, Policies: policies, RequireHardwareModule: true,
		ExtKeyUsage: append([]string{oid.TCGKpAIKCertificate.String(), oid.TCGCapVerifiedTPMFixed.String()}, policies...), Identity: []string{identity}}
	return &vector.Environment{Issuers: []vector.Issuer{{Roots: [][]byte{m.ca.Root().Raw}, Profile: p}},
		Members: []vector.Member{{NodeName: forge.NodeName, Machine: machine, ProviderID: providerID}}}
}

// answer is that of the good node, with the maker's certificate for a key.
func (m *oem) answer(of *forge.SoftAK, o tpmsim.CertificateOptions) *forge.Forgery {
	o.Style = tpmsim.StyleOEM
	f := m.Forge(m.AKP256, forge.Join{})
	f.Sent = &forge.Sources{Chain: forge.AKChain(m.ca, of.Private.Public(), o)}
	return f
}

func (m *oem) refuseLeaf(name, what, expect string, o tpmsim.CertificateOptions, env *vector.Environment) {
	m.refuseAs("oem-"+name, what, expect, m.answer(m.AKP256, o), env)
}

// policies replaces those in a template.
func policies(ids ...oid.OID) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Policies = nil
		for _, id := range ids {
			c.Policies = append(c.Policies, forge.Must(x509.ParseOID(id.String())))
		}
	}
}

// usages are what distinguishes the certificate of an IAK from others.
func (m *oem) usages() {
	type options = tpmsim.CertificateOptions
	with := func(usage x509.KeyUsage) options {
		return options{KeyUsage: new(x509.KeyUsageDigitalSignature | usage)}
	}
	ca := with(x509.KeyUsageCertSign)
	ca.IsCA = true
	m.refuseLeaf("ca-true", "The IAK's certificate is a CA's.", "certificate-is-ca", options{IsCA: true}, m.good)
	m.refuseLeaf("ca-that-signs", "The IAK's certificate is a CA's with the key usage of one, where CA:TRUE is tolerated.", "certificate-key-usage", ca, m.tolerant)
	m.refuseLeaf("key-encipherment", "The key usage has keyEncipherment, which is tolerated together with CA:TRUE alone.", "certificate-key-usage",
		with(x509.KeyUsageKeyEncipherment), m.tolerant)
	m.refuseLeaf("idevid-key-usage", "The key usage is an IDevID's, with keyAgreement.", "certificate-key-usage", with(x509.KeyUsageKeyAgreement), m.tolerant)
	m.refuseLeaf("ek-usage", "The extended key usage is an EK's.", "certificate-ext-key-usage", options{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}}, m.tolerant)
	m.refuseLeaf("policies-missing", "The certificate has no policies.", "certificate-policy", options{Edit: policies()}, m.good)
	m.refuseLeaf("idevid-policies", "The certificate's policies are an IDevID's: residency and fixed.", "certificate-policy",
		options{Edit: policies(oid.TCGCapVerifiedTPMResidency, oid.TCGCapVerifiedTPMFixed)}, m.tolerant)
}

// names are the certificate's names of machine and TPM.
func (m *oem) names() {
	type options = tpmsim.CertificateOptions
	serial := forge.TLV(4, []byte("SIM :1"))
	module := func(hwType oid.OID, serial []byte) []byte {
		return forge.TLV(0x30, forge.TLV(6, []byte(hwType)), serial)
	}
	named := func(value []byte) []byte {
		return forge.TLV(0xa0, forge.TLV(6, []byte(oid.HardwareModuleName)), forge.TLV(0xa0, value))
	}
	san := func(names ...[]byte) options {
		return options{Edit: func(c *x509.Certificate) { withSAN(c, names...) }}
	}
	other := named(module(oid.TCGTPM20, serial))
	attribute := forge.TLV(0x30, forge.TLV(6, []byte(oid.HardwareModuleName)), module(oid.TCGTPM20, serial))
	lower, neighbour := tpmsim.DefaultDevice(), tpmsim.DefaultDevice()
	lower.HardwareSerial, neighbour.SerialNumber = "sim :5f2c9e0a41b7d3866c10:01a4", "SIM0000002"

	m.refuseLeaf("san-missing", "The certificate has no subjectAltName.", "certificate-subject-alt-name", options{NoSAN: true}, m.good)
	m.refuseLeaf("module-in-directory-name", "The HardwareModuleName is an attribute of a directoryName.", "certificate-subject-alt-name",
		san(forge.TLV(0xa4, forge.TLV(0x30, forge.TLV(0x31, attribute)))), m.good)
	m.refuseLeaf("two-modules", "The subjectAltName names two TPMs.", "machine-identity", san(other, other), m.tolerant)
	m.refuseLeaf("module-of-another-type", "The HardwareModuleName is a management controller's.", "machine-identity",
		san(named(module("\x2b\x06\x01\x04\x01\x82\xf0\x5c\x06\x03\x02\x01", serial))), m.tolerant)
	m.refuseLeaf("serial-number-tagged", "The serial number in the HardwareModuleName is tagged, and no OCTET STRING.", "machine-identity",
		san(named(module(oid.TCGTPM20, forge.TLV(0x84, []byte("SIM :1"))))), m.tolerant)
	m.refuseLeaf("another-tpm", "The certificate names another TPM of the same maker.", "not-a-member", san(other), m.good)
	m.refuseLeaf("serial-number-in-lower-case", "The certificate names the TPM in another spelling.", "not-a-member", options{Device: lower}, m.good)
	m.refuseLeaf("another-chassis", "The certificate names another machine of the same maker and model.", "not-a-member", options{Device: neighbour}, m.tolerant)
	m.refuseLeaf("subject-empty", "The machine is known by what was bought, and the certificate's subject is empty.", "machine-identity",
		options{Edit: func(c *x509.Certificate) { c.Subject.CommonName, c.Subject.SerialNumber = "", "" }}, m.tolerant)
	foreign := *m.good
	foreign.Issuers = []vector.Issuer{{Roots: [][]byte{m.CA.Root().Raw}, Profile: m.good.Issuers[0].Profile}}
	m.refuseLeaf("another-maker", "The certificate has the right form and names the right machine, by a maker that nobody trusts.", "certificate-chain", options{}, &foreign)
	m.refuseAs("oem-iak-certificate-of-another-machine", "The node shows the certificate of another machine's IAK beside its own.", "ak-mismatch",
		m.answer(m.AKOther, options{}), m.good)
}

// otherKeys are statements that do not bind the machine's IAK to the challenge.
func (m *oem) otherKeys() {
	claimed := m.Forge(m.AKOther, forge.Join{})
	claimed.Sent = m.answer(m.AKOther, tpmsim.CertificateOptions{}).Sent
	claimed.SignedBy(m.AKP256)
	m.refuseAs("oem-another-machines-iak-claimed", "The node claims another machine's IAK, with its certificate and public area, and signs with its own key.",
		"tpm-signature", claimed, m.good)
	constant := m.answer(m.AKP256, tpmsim.CertificateOptions{})
	digest := sha256.Sum256([]byte(forge.NodeName))
	constant.Attest.ExtraData = digest[:]
	m.refuseAs("oem-constant-qualifying-data", "The IAK signs over the digest of the node's name, which is the same in every statement.", "qualifying-data", constant, m.good)
}
