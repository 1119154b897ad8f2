package tpmcert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

var (
	hardware = tpmcert.HardwareIdentity{Issuer: "example-oem"}
	chassis  = tpmcert.ChassisIdentity{Issuer: "example-oem"}
)

// oemWith is the profile with tolerances.
func oemWith(identity tpmcert.IdentitySource, change func(*tpmcert.Profile)) tpmcert.Profile {
	p := tpmcert.ProfileOEM(identity)
	if change != nil {
		change(&p)
	}
	return p
}

func allowCA(p *tpmcert.Profile)        { p.InsecureAllowCA = true }
func allowNoPolicy(p *tpmcert.Profile)  { p.InsecureAllowNoPolicies = true }
func allowNoSAN(p *tpmcert.Profile)     { p.InsecureAllowNoSAN = true }
func allowDirectory(p *tpmcert.Profile) { p.InsecureAllowDirectoryName = true }

func oemFile(t *testing.T, path ...string) []byte {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory of real certificates")
	}
	der, err := os.ReadFile(filepath.Join(append([]string{dir, "oem"}, path...)...))
	testkit.NoError(t, err)
	if block, _ := pem.Decode(der); block != nil && len(path) > 0 && strings.HasSuffix(path[len(path)-1], "ak.pem") {
		return block.Bytes
	}
	return der
}

// Makers' certificates, and certificates of the document's form, give the expected identities.
func TestOEMProfileOnTheCorpus(t *testing.T) {
	const (
		tcg    = "othername:1.3.6.1.5.5.7.8.4:MDwGBWeBBQECBDMwMDAwMTAxNDo1YWFhNDdjZDVmN2Q0YzAyNjRkMDdlZmNmM2NlYjM4ZGU1YTBhY2E4OjI"
		serial = "hwserial:example-oem/00001014:5aaa47cd5f7d4c0264d07efcf3ceb38de5a0aca8:2"
		bought = "chassis:example-oem/P39886-B21/MXQ1490VZK"
		// SEQUENCE { 2.23.133.1.2, [4] "00001014:2f6d…:4d5" }
		othername = "othername:example-oem/1.3.6.1.5.5.7.8.4:MD4GBWeBBQEChDUwMDAwMTAxNDoyZjZkNTFkYjc3MzZlY2I5MmRjZGUyMjc4MDMxYzhiMWVjYzM4N2I0OjRkNQ"
	)
	ek, err := x509.ParseCertificate(oemFile(t, "generated", "ek.der"))
	testkit.NoError(t, err)
	if name := fmt.Sprintf("00001014:%x:%x", ek.AuthorityKeyId, ek.SerialNumber); "hwserial:example-oem/"+name != serial {
		t.Errorf("the TPM is %s, and the IAK's %s", name, serial)
	}
	generated := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	old := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	all := func(p *tpmcert.Profile) { allowCA(p); allowNoPolicy(p); allowNoSAN(p); allowDirectory(p) }
	tagged := tpmcert.OtherNameIdentity{Types: []oid.OID{oid.HardwareModuleName}, Issuer: "example-oem"}
	untyped := func(p *tpmcert.Profile) { p.RequireHardwareModule = false }
	for _, c := range []struct {
		name, file, roots string
		at                time.Time
		profile           tpmcert.Profile
		want              attest.Identity
		refused           error
	}{
		{"EKU of AKs, one OtherName", "generated/cert.aik-eku.no-permid.der", "generated/root.der", generated, oemWith(hardware, nil), serial, nil},
		{"the same, no subject", "generated/cert.aik-eku.no-permid.der", "generated/root.der", generated, oemWith(chassis, nil), "", attest.CheckIdentity},
		{"EKU of AKs, PermanentIdentifier", "generated/cert.aik-eku.permid.der", "generated/root.der", generated, oemWith(hardware, nil), serial, nil},
		{"the same by purchase", "generated/cert.aik-eku.permid.der", "generated/root.der", generated, oemWith(chassis, nil), bought, nil},
		{"empty subject", "generated/cert.aik-eku.permid.empty-subject.der", "generated/root.der", generated, oemWith(hardware, nil), serial, nil},
		{"no EKU", "generated/cert.no-eku.der", "generated/root.der", generated, oemWith(hardware, nil), serial, nil},
		{"no EKU, PermanentIdentifier", "generated/cert.no-eku.permid.der", "generated/root.der", generated, oemWith(chassis, nil), bought, nil},
		{"a policy as EKU", "generated/cert.cap-eku.der", "generated/root.der", generated, oemWith(hardware, nil), serial, nil},
		{"CA:TRUE", "generated/cert.ca-true.der", "generated/root.der", generated, oemWith(hardware, nil), "", refusal.Check("certificate-is-ca")},
		{"CA:TRUE, tolerated", "generated/cert.ca-true.der", "generated/root.der", generated, oemWith(hardware, allowCA), serial, nil},
		{"expired", "generated/cert.no-eku.der", "generated/root.der", old, oemWith(hardware, nil), "", refusal.Check("certificate-not-yet-valid")},
		{"H-1", "generated/H-1.iak.cert", "generated/root.der", generated, oemWith(hardware, nil), serial, nil},
		{"H-2", "generated/H-2.iak.cert", "generated/root.der", generated, oemWith(hardware, nil), serial, nil},
		{"H-3", "generated/H-3.iak.cert", "generated/root.der", generated, oemWith(chassis, nil), bought, nil},
		{"H-4", "generated/H-4.iak.cert", "generated/root.der", generated, oemWith(chassis, nil), bought, nil},
		{"EKU of AKs, one OtherName, under ProfileTCG", "generated/cert.aik-eku.no-permid.der", "generated/root.der", generated, tpmcert.ProfileTCG(), tcg, nil},
		{"PermanentIdentifier, under ProfileTCG", "generated/cert.aik-eku.permid.der", "generated/root.der", generated, tpmcert.ProfileTCG(), "", attest.CheckIdentity},
		{"empty subject, under ProfileTCG", "generated/cert.aik-eku.permid.empty-subject.der", "generated/root.der", generated, tpmcert.ProfileTCG(), "", attest.CheckIdentity},
		{"no EKU, under ProfileTCG", "generated/cert.no-eku.der", "generated/root.der", generated, tpmcert.ProfileTCG(), "", refusal.Check("certificate-ext-key-usage")},
		{"no EKU, PermanentIdentifier, under ProfileTCG", "generated/cert.no-eku.permid.der", "generated/root.der", generated, tpmcert.ProfileTCG(), "", refusal.Check("certificate-ext-key-usage")},
		{"a policy as EKU, under ProfileTCG", "generated/cert.cap-eku.der", "generated/root.der", generated, tpmcert.ProfileTCG(), "", refusal.Check("certificate-ext-key-usage")},
		{"CA:TRUE, under ProfileTCG", "generated/cert.ca-true.der", "generated/root.der", generated, tpmcert.ProfileTCG(), "", refusal.Check("certificate-is-ca")},
		{"another maker's root", "generated/H-4.iak.cert", "keylime/ca-iak_idevid_chain.pem", generated, oemWith(chassis, nil), "", tpmcert.CheckCertificateChain},
		{"a tagged serial number", "devattest/ak.pem", "devattest/root.pem", generated, oemWith(hardware, all), "", attest.CheckIdentity},
		{"a tagged serial number, as any OtherName", "devattest/ak.pem", "devattest/root.pem", generated, oemWith(tagged, untyped), othername, nil},
		{"one's own CA, under ProfileTCG", "devattest/ak.pem", "devattest/root.pem", generated, tpmcert.ProfileTCG(), "", attest.CheckIdentity},
		{"keyEncipherment", "keylime/iak.der", "keylime/ca-iak_idevid_chain.pem", old, oemWith(hardware, nil), "", refusal.Check("certificate-key-usage")},
		{"keyEncipherment and no CA", "keylime/iak.der", "keylime/ca-iak_idevid_chain.pem", old, oemWith(hardware, all), "", refusal.Check("certificate-key-usage")},
		{"the same, under ProfileTCG", "keylime/iak.der", "keylime/ca-iak_idevid_chain.pem", old, tpmcert.ProfileTCG(), "", refusal.Check("certificate-key-usage")},
		{"a key of id-RSASSA-PSS", "keylime/idevid.der", "keylime/ca-iak_idevid_chain.pem", old, oemWith(hardware, all), "", refusal.Check("tpm-key-strength")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var roots, intermediates []*x509.Certificate
			cas := oemFile(t, c.roots)
			all, err := x509.ParseCertificates(cas)
			if err != nil {
				if all, err = tpmcert.ParseCertificatesPEM(cas); err != nil {
					t.Fatal(err)
				}
			}
			for _, ca := range all {
				if string(ca.RawIssuer) == string(ca.RawSubject) {
					roots = append(roots, ca)
				} else {
					intermediates = append(intermediates, ca)
				}
			}
			issuers := []tpmcert.Issuer{{Roots: roots, Intermediates: intermediates, Profile: c.profile}}
			got, err := tpmcert.VerifyAKCertificate(issuers, [][]byte{oemFile(t, c.file)}, c.at)
			if c.refused != nil {
				if !errors.Is(err, c.refused) {
					t.Errorf("got %v, want %v", err, c.refused)
				}
				return
			}
			if err != nil || got.Machine != c.want {
				t.Errorf("got %+v, %v, want %s", got, err, c.want)
			}
			if id, err := attest.ParseIdentity(string(c.want)); err != nil || id != c.want {
				t.Errorf("%s is read as %s, %v", c.want, id, err)
			}
		})
	}
}

// moduleName is an OtherName with a HardwareModuleName.
func moduleName(hwType oid.OID, serial []byte) *tpmsim.OtherName {
	return &tpmsim.OtherName{Type: oid.HardwareModuleName, Value: tpmlab.Seq(tpmlab.Element(6, []byte(hwType)), serial)}
}

// onlySAN puts these GeneralNames into the subjectAltName.
func onlySAN(names ...[]byte) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		i := slices.IndexFunc(c.ExtraExtensions, func(e pkix.Extension) bool { return oid.SubjectAltName.Equal(e.Id) })
		c.ExtraExtensions[i].Value = tpmlab.Seq(names...)
	}
}

func otherNameDER(id oid.OID, value []byte) []byte {
	return tpmlab.Element(0xa0, slices.Concat(tpmlab.Element(6, []byte(id)), tpmlab.Element(0xa0, value)))
}

// directoryDER is a directoryName with one attribute.
func directoryDER(id oid.OID, value []byte) []byte {
	return tpmlab.Element(0xa4, tpmlab.Seq(tpmlab.Element(0x31, tpmlab.Seq(tpmlab.Element(6, []byte(id)), value))))
}

func policies(ids ...oid.OID) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Policies = nil
		for _, id := range ids {
			policy, _ := x509.ParseOID(id.String())
			c.Policies = append(c.Policies, policy)
		}
	}
}

func subject(names ...pkix.AttributeTypeAndValue) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject = pkix.Name{ExtraNames: names} }
}

// Each smallest change of a good certificate is refused by its own check, and let through
// by the tolerance that is there for it and by no other.
func TestOEMProfile(t *testing.T) {
	const self = "hwserial:example-oem/SIM%20:5F2C9E0A41B7D3866C10:01A4"
	octets := func(s string) []byte { return tpmlab.Element(4, []byte(s)) }
	module := func(s string) []byte { return moduleName(oid.TCGTPM20, octets(s)).Value }
	cn := func(s string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: s}
	}
	sn := func(s string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 5}, Value: s}
	}
	sign := x509.KeyUsageDigitalSignature
	good := func(*tpmcert.Profile) {}
	all := func(p *tpmcert.Profile) { allowCA(p); allowNoPolicy(p); allowNoSAN(p); allowDirectory(p) }
	type options = tpmsim.CertificateOptions
	for _, c := range []struct {
		name    string
		change  options
		source  tpmcert.IdentitySource
		profile func(*tpmcert.Profile)
		want    attest.Identity
		refused error
	}{
		{"good", options{}, hardware, good, self, nil},
		{"good by purchase", options{}, chassis, good, chassis.Machine("SIM-1000", "SIM0000001"), nil},
		{"good by pointer", options{}, &hardware, good, self, nil},
		{"another serial number", options{Device: &tpmsim.Device{PartNumber: "p", SerialNumber: "s", HardwareSerial: "stm :5f2c/\x00"}}, hardware, good, "hwserial:example-oem/stm%20:5f2c%2F%00", nil},

		{"CA:TRUE", options{IsCA: true}, hardware, good, "", refusal.Check("certificate-is-ca")},
		{"CA:TRUE, other tolerances", options{IsCA: true}, hardware, func(p *tpmcert.Profile) { all(p); p.InsecureAllowCA = false }, "", refusal.Check("certificate-is-ca")},
		{"CA:TRUE, tolerated", options{IsCA: true}, hardware, allowCA, self, nil},
		{"CA:TRUE and keyEncipherment, tolerated", options{IsCA: true, KeyUsage: new(sign | x509.KeyUsageKeyEncipherment)}, hardware, allowCA, self, nil},
		{"CA:TRUE and keyCertSign", options{IsCA: true, KeyUsage: new(sign | x509.KeyUsageCertSign)}, hardware, all, "", refusal.Check("certificate-key-usage")},
		{"CA:TRUE and cRLSign", options{IsCA: true, KeyUsage: new(sign | x509.KeyUsageCRLSign)}, hardware, all, "", refusal.Check("certificate-key-usage")},
		{"keyEncipherment alone", options{KeyUsage: new(sign | x509.KeyUsageKeyEncipherment)}, hardware, all, "", refusal.Check("certificate-key-usage")},
		{"an IDevID's keyAgreement", options{KeyUsage: new(sign | x509.KeyUsageKeyAgreement)}, hardware, all, "", refusal.Check("certificate-key-usage")},
		{"no key usage", options{KeyUsage: new(x509.KeyUsage(0))}, hardware, all, "", refusal.Check("certificate-key-usage")},

		{"EKU of AKs", options{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}}, hardware, good, self, nil},
		{"EKU of a policy", options{ExtKeyUsage: []oid.OID{oid.TCGCapVerifiedTPMFixed}}, hardware, good, self, nil},
		{"EKU of EKs", options{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}}, hardware, all, "", refusal.Check("certificate-ext-key-usage")},
		{"EKU of AKs and EKs", options{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate, oid.TCGKpEKCertificate}}, hardware, all, "", refusal.Check("certificate-ext-key-usage")},
		{"EKU of servers", options{ExtKeyUsage: []oid.OID{oid.KpServerAuth}}, hardware, all, "", refusal.Check("certificate-ext-key-usage")},

		{"no policies", options{Edit: policies()}, hardware, good, "", refusal.Check("certificate-policy")},
		{"no policies, other tolerances", options{Edit: policies()}, hardware, func(p *tpmcert.Profile) { all(p); p.InsecureAllowNoPolicies = false }, "", refusal.Check("certificate-policy")},
		{"no policies, tolerated", options{Edit: policies()}, hardware, allowNoPolicy, self, nil},
		{"no policies, an IDevID's capability as EKU", options{Edit: policies(), ExtKeyUsage: []oid.OID{oid.TCGCapVerifiedTPMFixed}}, hardware, all, "", refusal.Check("certificate-policy")},
		{"no policies, both of an IDevID's as EKU", options{Edit: policies(), ExtKeyUsage: []oid.OID{oid.TCGCapVerifiedTPMResidency, oid.TCGCapVerifiedTPMFixed}}, hardware, all, "", refusal.Check("certificate-policy")},
		{"no policies, residency alone as EKU", options{Edit: policies(), ExtKeyUsage: []oid.OID{oid.TCGCapVerifiedTPMResidency, oid.TCGKpAIKCertificate}}, hardware, all, "", refusal.Check("certificate-policy")},
		{"no policies, an IAK's as EKU", options{Edit: policies(), ExtKeyUsage: []oid.OID{oid.TCGCapVerifiedTPMResidency, oid.TCGCapVerifiedTPMRestricted}}, hardware, allowNoPolicy, self, nil},
		{"no policies, EKU of AKs", options{Edit: policies(), ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}}, hardware, allowNoPolicy, self, nil},
		{"an IDevID's policies", options{Edit: policies(oid.TCGCapVerifiedTPMResidency, oid.TCGCapVerifiedTPMFixed)}, hardware, all, "", refusal.Check("certificate-policy")},
		{"residency alone", options{Edit: policies(oid.TCGCapVerifiedTPMResidency)}, hardware, all, "", refusal.Check("certificate-policy")},
		{"restricted alone", options{Edit: policies(oid.TCGCapVerifiedTPMRestricted)}, hardware, all, "", refusal.Check("certificate-policy")},

		{"no SAN", options{NoSAN: true}, chassis, good, "", refusal.Check("certificate-subject-alt-name")},
		{"no SAN, other tolerances", options{NoSAN: true}, chassis, func(p *tpmcert.Profile) { all(p); p.InsecureAllowNoSAN = false }, "", refusal.Check("certificate-subject-alt-name")},
		{"no SAN, tolerated", options{NoSAN: true}, chassis, allowNoSAN, chassis.Machine("SIM-1000", "SIM0000001"), nil},
		{"no SAN, and the TPM asked for", options{NoSAN: true}, hardware, allowNoSAN, "", attest.CheckIdentity},
		{"a SAN without a HardwareModuleName", options{Edit: onlySAN(otherNameDER(oid.PermanentIdentifier, tpmlab.Seq()))}, chassis, all, "", refusal.Check("certificate-subject-alt-name")},
		{"in a directoryName", options{Edit: onlySAN(directoryDER(oid.HardwareModuleName, module("x")))}, hardware, good, "", refusal.Check("certificate-subject-alt-name")},
		{"in a directoryName, other tolerances", options{Edit: onlySAN(directoryDER(oid.HardwareModuleName, module("x")))}, hardware,
			func(p *tpmcert.Profile) { all(p); p.InsecureAllowDirectoryName = false }, "", refusal.Check("certificate-subject-alt-name")},
		{"in a directoryName, tolerated", options{Edit: onlySAN(directoryDER(oid.HardwareModuleName, module("x")))}, hardware, allowDirectory, "hwserial:example-oem/x", nil},
		{"in a directoryName, as a text", options{Edit: onlySAN(directoryDER(oid.HardwareModuleName, tpmlab.Element(12, []byte("x"))))}, hardware, allowDirectory, "", refusal.Check("certificate-subject-alt-name")},
		{"in both places", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, module("x")), directoryDER(oid.HardwareModuleName, module("y")))}, hardware, allowDirectory, "", attest.CheckIdentity},
		{"in both places, one of which counts", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, module("x")), directoryDER(oid.HardwareModuleName, module("y")))}, hardware, good, "hwserial:example-oem/x", nil},
		{"two HardwareModuleNames", options{OtherName: moduleName(oid.TCGTPM20, octets("y"))}, hardware, all, "", attest.CheckIdentity},
		{"two HardwareModuleNames, by purchase", options{OtherName: moduleName(oid.TCGTPM20, octets("y"))}, chassis, all, "", attest.CheckIdentity},
		{"of a management controller", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, moduleName("\x2b\x06\x01\x04\x01\x82\xf0\x5c\x06\x03\x02\x01", octets("x")).Value))}, chassis, all, "", attest.CheckIdentity},
		{"an empty serial number", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, module("")))}, hardware, all, "", attest.CheckIdentity},
		{"a tagged serial number", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, moduleName(oid.TCGTPM20, tpmlab.Element(0x80, []byte("x"))).Value))}, hardware, all, "", attest.CheckIdentity},
		{"a third member", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, moduleName(oid.TCGTPM20, append(octets("x"), 5, 0)).Value))}, hardware, all, "", attest.CheckIdentity},
		{"a SET", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, tpmlab.Element(0x31, module("x")[2:])))}, hardware, all, "", attest.CheckIdentity},

		{"no common name", options{Edit: subject(sn("s"))}, chassis, all, "", attest.CheckIdentity},
		{"no serial number", options{Edit: subject(cn("p"))}, chassis, all, "", attest.CheckIdentity},
		{"an empty common name", options{Edit: subject(cn(""), sn("s"))}, chassis, all, "", attest.CheckIdentity},
		{"two serial numbers", options{Edit: subject(cn("p"), sn("s"), sn("t"))}, chassis, all, "", attest.CheckIdentity},
		{"two common names", options{Edit: subject(cn("p"), cn("p"), sn("s"))}, chassis, all, "", attest.CheckIdentity},
		{"an empty serial number of a chassis", options{Edit: subject(cn("p"), sn(""))}, chassis, all, "", attest.CheckIdentity},
		{"a placeholder", options{Edit: subject(cn("p"), sn("To be filled by O.E.M."))}, chassis, all, "", attest.CheckIdentity},
		{"a placeholder and an address", options{Edit: subject(cn("p"), sn("Default string, BaseMAC AAAAAA-BBBBBB"))}, chassis, all, "", attest.CheckIdentity},
		{"a part number that says nothing", options{Edit: subject(cn("Default string"), sn("s"))}, chassis, good, "chassis:example-oem/Default%20string/s", nil},
		{"zeros for a serial number", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, module("\x00\x00\x00\x00")))}, hardware, all, "", attest.CheckIdentity},
		{"zeros, and the chassis asked for", options{Edit: onlySAN(otherNameDER(oid.HardwareModuleName, module("\x00\x00\x00\x00")))}, chassis, good, chassis.Machine("SIM-1000", "SIM0000001"), nil},
		{"nothing but an address", options{Edit: subject(cn("p"), sn(", BaseMAC AAAAAA-BBBBBB"))}, chassis, all, "", attest.CheckIdentity},
		{"a serial number and an address", options{Edit: subject(cn("p"), sn("s, BaseMAC AAAAAA-BBBBBB"))}, chassis, good, "chassis:example-oem/p/s", nil},
		{"texts with slashes", options{Edit: subject(cn("p/q"), sn("PID:x SN:y"))}, chassis, good, "chassis:example-oem/p%2Fq/PID:x%20SN:y", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ca, err := tpmsim.NewCA(tpmsim.CAOptions{})
			testkit.NoError(t, err)
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			testkit.NoError(t, err)
			c.change.Style = tpmsim.StyleOEM
			leaf, err := ca.IssueAK(key.Public(), c.change)
			testkit.NoError(t, err)
			issuers := []tpmcert.Issuer{{Roots: []*x509.Certificate{ca.Root()}, Profile: oemWith(c.source, c.profile)}}
			got, err := tpmcert.VerifyAKCertificate(issuers, [][]byte{leaf.Raw, ca.AKIntermediate().Raw}, time.Now())
			if c.refused != nil {
				if !errors.Is(err, c.refused) {
					t.Errorf("got %v, want %v", err, c.refused)
				}
				return
			}
			if err != nil || got.Machine != c.want {
				t.Fatalf("got %+v, %v, want %s", got, err, c.want)
			}
			if id, err := attest.ParseIdentity(string(c.want)); err != nil || id != c.want {
				t.Errorf("%s is read as %s, %v", c.want, id, err)
			}
		})
	}
}

// A source that is called by itself returns the fault of the certificate, too.
func TestHardwareIdentityOfNoNames(t *testing.T) {
	extension, _ := oid.SubjectAltName.ASN1()
	module := otherNameDER(oid.HardwareModuleName, moduleName(oid.TCGTPM20, tpmlab.Element(4, []byte("x"))).Value)
	for name, c := range map[string]struct {
		value []byte
		want  attest.Identity
		err   error
	}{
		"good":           {tpmlab.Seq(module), "hwserial:example-oem/x", nil},
		"a SET of names": {tpmlab.Element(0x31, module), "", refusal.Check("certificate-subject-alt-name")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := hardware.Identify(&x509.Certificate{Extensions: []pkix.Extension{{Id: extension, Value: c.value}}})
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

// One maker cannot certify the machines of another.
func TestOEMsHaveNames(t *testing.T) {
	var roots [2][]*x509.Certificate
	for n := range roots {
		ca, err := tpmsim.NewCA(tpmsim.CAOptions{})
		testkit.NoError(t, err)
		roots[n] = []*x509.Certificate{ca.Root()}
	}
	one, other := hardware, tpmcert.HardwareIdentity{Issuer: "other"}
	for name, c := range map[string]struct {
		sources [2]tpmcert.IdentitySource
		same    bool // roots
		ok      bool
	}{
		"two names":            {[2]tpmcert.IdentitySource{one, other}, false, true},
		"one name":             {[2]tpmcert.IdentitySource{one, one}, false, false},
		"one name, by pointer": {[2]tpmcert.IdentitySource{&one, one}, false, false},
		"one name, one root":   {[2]tpmcert.IdentitySource{one, one}, true, true},
		"one name of chassis":  {[2]tpmcert.IdentitySource{chassis, chassis}, false, false},
		"two kinds":            {[2]tpmcert.IdentitySource{one, chassis}, false, true},
		"no name":              {[2]tpmcert.IdentitySource{tpmcert.HardwareIdentity{}, other}, false, false},
		"no name of a chassis": {[2]tpmcert.IdentitySource{tpmcert.ChassisIdentity{}, other}, false, false},
		"a name with a slash":  {[2]tpmcert.IdentitySource{tpmcert.ChassisIdentity{Issuer: "a/b"}, other}, false, false},
		"none":                 {[2]tpmcert.IdentitySource{nil, other}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			issuers := []tpmcert.Issuer{{Roots: roots[0], Profile: tpmcert.ProfileOEM(c.sources[0])}, {Roots: roots[1], Profile: tpmcert.ProfileOEM(c.sources[1])}}
			if c.same {
				issuers[1].Roots = roots[0]
			}
			if _, err := tpmcert.NewAKVerifier(issuers); c.ok != (err == nil) || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Error(err)
			}
		})
	}
}
