package tpm

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestStatedProviderID: a verified certificate states a provider ID in Google's form or in that of
// certificates of nodes, whatever its issuer's profile, and is refused if it cannot be read.
func TestStatedProviderID(t *testing.T) {
	google, err := tpmsim.DefaultInstance().Marshal()
	testkit.NoError(t, err)
	text, err := oid.MarshalProviderID("metal://rack-1/7")
	testkit.NoError(t, err)
	id, _ := oid.KubernetesNodeProviderIdentifier.ASN1()
	other, _ := oid.SubjectAltName.ASN1()
	for name, c := range map[string]struct {
		extensions []pkix.Extension
		want       string
		refused    bool
	}{
		"none":                {nil, "", false},
		"another extension":   {[]pkix.Extension{{Id: other, Value: google}}, "", false},
		"Google's":            {[]pkix.Extension{{Id: other}, {Id: id, Value: google}}, "gce://tpmsim-project/us-central1-a/tpmsim-instance", false},
		"a text":              {[]pkix.Extension{{Id: id, Value: text}}, "metal://rack-1/7", false},
		"a byte behind it":    {[]pkix.Extension{{Id: id, Value: append(google, 0)}}, "", true},
		"an empty extension":  {[]pkix.Extension{{Id: id}}, "", true},
		"a text that is cut":  {[]pkix.Extension{{Id: id, Value: text[:len(text)-1]}}, "", true},
		"in a chain's CA":     {[]pkix.Extension{}, "", false},
		"no certificate, nil": {nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			ca := &x509.Certificate{Extensions: []pkix.Extension{{Id: id, Value: google}}}
			d := &Details{Chain: []*x509.Certificate{{Extensions: c.extensions}, ca}}
			if name == "no certificate, nil" {
				d.Chain = nil
			}
			err := d.readProviderID()
			if d.ProviderID() != c.want || errors.Is(err, checkStatedProviderID) != c.refused || (err != nil) != c.refused {
				t.Errorf("got %q, %v, want %q", d.ProviderID(), err, c.want)
			}
		})
	}
}

// TestMachinesOfEveryCustomer: trust on first use learns of each machine whether its issuer
// certifies the machines of every customer, on both roads.
func TestMachinesOfEveryCustomer(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	roots, leaf := []*x509.Certificate{root.Cert}, []*x509.Certificate{{}}
	ak, narrowed := tpmcert.ProfileGoogle(), tpmcert.ProfileGoogle()
	every, ours, vendor := tpmcert.EKProfileGoogle(), tpmcert.EKProfileGoogle(), tpmcert.EKProfileTCG()
	narrowed.Projects, ours.Projects, ours.Name = []string{"mine"}, []string{"mine"}, "ours"
	var config tpmcert.EKVerifierConfig
	for _, p := range []tpmcert.EKProfile{every, ours, vendor} {
		config.Issuers = append(config.Issuers, tpmcert.EKIssuer{Roots: roots, Profile: p})
	}
	eks, err := tpmcert.NewEKVerifier(config)
	testkit.NoError(t, err)
	for name, c := range map[string]struct {
		details Details
		want    bool
	}{
		"an AK of every customer":     {Details{profile: &ak, Chain: leaf}, true},
		"an AK of ours":               {Details{profile: &narrowed, Chain: leaf}, false},
		"an EK of every customer":     {Details{Profile: every.Name, Chain: leaf}, true},
		"an EK of ours":               {Details{Profile: ours.Name, Chain: leaf}, false},
		"an EK of a vendor's":         {Details{Profile: vendor.Name, Chain: leaf}, false},
		"an EK without a certificate": {Details{}, false},
	} {
		if got := c.details.everyCustomers(&Kind{eks: eks}); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
