package oid_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestNamesOfTPM: the identifiers in the certificates of a TPM have names.
func TestNamesOfTPM(t *testing.T) {
	device := attesttest.NewNode(t, attesttest.NodeOptions{}).TPM
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		usage       oid.OID
	}{
		"EK": {device.EKCertificate(tpmsim.RSA2048), oid.TCGKpEKCertificate},
		"AK": {device.AKCertificate(tpmsim.RSA2048), oid.TCGKpAIKCertificate},
	} {
		t.Run(name, func(t *testing.T) {
			ids := slices.Clone(c.certificate.UnknownExtKeyUsage)
			if len(ids) != 1 || !c.usage.Equal(ids[0]) {
				t.Errorf("extended key usages %v, want %s (%s)", ids, c.usage, c.usage.Name())
			}
			for _, e := range c.certificate.Extensions {
				ids = append(ids, e.Id)
				if oid.SubjectAltName.Equal(e.Id) {
					ids = append(ids, directoryAttributes(t, e.Value)...)
				}
			}
			var manufacturer bool
			for _, id := range ids {
				o, err := oid.FromASN1(id)
				if err != nil || o.Name() == "" || o.Name() == o.String() {
					t.Errorf("%s: %q, %v, want a name", id, o.Name(), err)
				}
				manufacturer = manufacturer || o == oid.TCGAtTPMManufacturer
			}
			if !manufacturer {
				t.Errorf("%v: no %s", ids, oid.TCGAtTPMManufacturer.Name())
			}
		})
	}
}

// directoryAttributes are the types of the attributes in the directory name of a subjectAltName.
func directoryAttributes(t *testing.T, san []byte) (ids []asn1.ObjectIdentifier) {
	t.Helper()
	var names []asn1.RawValue
	if _, err := asn1.Unmarshal(san, &names); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		var directory pkix.RDNSequence
		if n.Tag != 4 { // directoryName
			continue
		}
		if _, err := asn1.Unmarshal(n.Bytes, &directory); err != nil {
			t.Fatal(err)
		}
		for _, rdn := range directory {
			for _, a := range rdn {
				ids = append(ids, a.Type)
			}
		}
	}
	return ids
}

// TestGCEInstanceOfTPM reads the machine from the AK certificate of a TPM such as Google's. The
// extension has the provider ID's identifier and is not one.
func TestGCEInstanceOfTPM(t *testing.T) {
	want := tpmsim.DefaultInstance()
	device := attesttest.NewNode(t, attesttest.NodeOptions{TPMOptions: tpmsim.Options{Instance: want}}).TPM
	ak := device.AKCertificate(tpmsim.RSA2048)
	i := slices.IndexFunc(ak.Extensions, func(e pkix.Extension) bool { return oid.KubernetesNodeProviderIdentifier.Equal(e.Id) })
	if i < 0 {
		t.Fatal("no extension")
	}
	got, err := oid.ParseGCEInstance(ak.Extensions[i].Value)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if id, err := oid.ParseProviderID(ak.Extensions); err == nil {
		t.Errorf("provider ID %q", id)
	}
}

// TestProviderIDOfTPM reads the provider ID from the certificate that a node with a TPM was given.
func TestProviderIDOfTPM(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{ProviderID: "metal://rack-1/slot-7"})
	issued, err := attesttest.NewControlPlane(t, node).Join(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := oid.ParseProviderID(issued.Certificate.Extensions); err != nil || id != node.ProviderID {
		t.Errorf("provider ID %q, %v", id, err)
	}
}
