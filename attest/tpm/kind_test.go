package tpm

import (
	"crypto/x509"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// A kind that lacks something is refused when it is made.
func TestKindConfig(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	ek := ekVerifierOf(t, trusting(tpmcert.EKProfileTCG(), root))
	one := tpmcert.Issuer{Roots: []*x509.Certificate{root.Cert}, Profile: tpmcert.ProfileTCG()}
	named, other := one, one
	named.Profile.Identity, other.Profile.Identity = []tpmcert.IdentitySource{tpmcert.OtherNameIdentity{}}, []tpmcert.IdentitySource{tpmcert.OtherNameIdentity{}}
	other.Roots = []*x509.Certificate{tpmlab.Sign(t, nil, "another root", nil).Cert}
	for name, c := range map[string]struct {
		config KindConfig
		roads  []attest.Road // nil for a refusal
	}{
		"no road":                     {KindConfig{}, nil},
		"road AK alone":               {KindConfig{AKIssuers: []tpmcert.Issuer{one}}, []attest.Road{attest.RoadAK}},
		"road EK alone":               {KindConfig{EKs: ek}, []attest.Road{attest.RoadEK}},
		"both roads":                  {KindConfig{AKIssuers: []tpmcert.Issuer{one}, EKs: ek}, []attest.Road{attest.RoadAK, attest.RoadEK}},
		"a zero issuer":               {KindConfig{AKIssuers: []tpmcert.Issuer{{}}}, nil},
		"a zero issuer after another": {KindConfig{AKIssuers: []tpmcert.Issuer{one, {}}}, nil},
		"OtherNames of two roots":     {KindConfig{AKIssuers: []tpmcert.Issuer{named, other}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := NewKind(c.config)
			if c.roads == nil {
				if !errors.Is(err, refusal.CheckConfig) || k != nil {
					t.Errorf("got %v, want %v", err, refusal.CheckConfig)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			d := k.Describe()
			if len(d.Roads) != len(c.roads) {
				t.Fatalf("got %+v", d.Roads)
			}
			for n := range c.roads {
				if d.Roads[n].Road != c.roads[n] {
					t.Errorf("got %v, want %v", d.Roads[n].Road, c.roads[n])
				}
			}
		})
	}
}

// Where a profile names machines by their AKs, the kind says so unless the issuer promises
// one AK a machine.
func TestKindSaysWhereIdentitiesAreMany(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	promising, pointer := tpmcert.ProfileTCG(), tpmcert.ProfileAzure()
	promising.OneAKPerMachine = true
	pointer.Identity = []tpmcert.IdentitySource{&tpmcert.AKIdentity{}}
	for name, c := range map[string]struct {
		profiles []tpmcert.Profile
		many     bool
	}{
		"Google's":                        {[]tpmcert.Profile{tpmcert.ProfileGoogle()}, false},
		"one that promises":               {[]tpmcert.Profile{tpmcert.ProfileGoogle(), promising}, false},
		"one that does not":               {[]tpmcert.Profile{tpmcert.ProfileGoogle(), tpmcert.ProfileAzure()}, true},
		"one that does not, by a pointer": {[]tpmcert.Profile{pointer}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var config KindConfig
			for _, p := range c.profiles {
				config.AKIssuers = append(config.AKIssuers, tpmcert.Issuer{Roots: []*x509.Certificate{root.Cert}, Profile: p})
			}
			k, err := NewKind(config)
			if err != nil {
				t.Fatal(err)
			}
			if why := k.Describe().Roads[0].ManyIdentities; (why != "") != c.many {
				t.Errorf("got %q", why)
			}
		})
	}
}
