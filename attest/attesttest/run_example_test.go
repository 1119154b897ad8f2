package attesttest_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// cloudDocument is the evidence of a cloud whose platform vouches for a machine: which one
// it is, for which request, and when.
type cloudDocument struct {
	Machine     string
	RequestHash []byte
	Time        time.Time
	Signature   []byte `json:",omitempty"`
}

func (d cloudDocument) signed() []byte {
	d.Signature = nil
	b, _ := json.Marshal(d)
	return b
}

// cloudProvider is a csr.Provider. Its policy, members and clock are the caller's.
type cloudProvider struct {
	policy   *csr.Policy
	member   func(nodeName, machine string) error
	now      func() time.Time
	platform ed25519.PublicKey
	careless bool // forgets that a document is for one request
}

func (p *cloudProvider) verify(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	checked, err := p.policy.Check(ctx, r)
	if err != nil {
		return nil, err
	}
	refuse := func(got, want string) (*csr.Attested, error) {
		return nil, &csr.Error{Check: "cloud-document", Got: got, Want: want}
	}
	bundle := checked.Bundle()
	if bundle.Provider != "cloud/v1" {
		return refuse(bundle.Provider, "cloud/v1")
	}
	var d cloudDocument
	if err := json.Unmarshal(bundle.Data, &d); err != nil {
		return refuse("no document", "JSON")
	}
	if canonical, err := json.Marshal(d); err != nil || !bytes.Equal(canonical, bundle.Data) {
		return refuse("another encoding", "canonical JSON")
	}
	if !ed25519.Verify(p.platform, d.signed(), d.Signature) {
		return refuse("a bad signature", "the platform's")
	}
	hash := checked.PKCS10().InfoHash
	if !p.careless && !bytes.Equal(d.RequestHash, hash[:]) {
		return refuse("a document for another request", "one for this request")
	}
	if age := p.now().Sub(d.Time); age < 0 || age > 15*time.Minute {
		return refuse("a document of "+d.Time.String(), "one of the last 15 minutes")
	}
	if err := p.member(checked.NodeName(), d.Machine); err != nil {
		return nil, &csr.Error{Check: "cloud-membership", Got: d.Machine, Want: "the machine of " + checked.NodeName(), Err: err}
	}
	m := checked.Machine()
	grant := csr.Grant{ProviderID: m.ProviderID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}
	return checked.Vouch("cloud:"+d.Machine, grant, nil), nil
}

func (p *cloudProvider) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r)
}

func (p *cloudProvider) VerifyServingAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r)
}

func (p *cloudProvider) MachineName(_ context.Context, a *csr.Attested) (string, error) {
	return a.InventoryName()
}

// cloudPlatform signs documents about machines.
type cloudPlatform struct{ key ed25519.PrivateKey }

// evidence returns a document for a request, as an honest machine gets it at a time.
func (p cloudPlatform) evidence(a *attesttest.Applicant, at time.Time) (*csr.Bundle, error) {
	request, err := csr.ParsePKCS10(a.Request)
	if err != nil {
		return nil, err
	}
	d := cloudDocument{Machine: a.Machine, RequestHash: request.InfoHash[:], Time: at}
	d.Signature = ed25519.Sign(p.key, d.signed())
	data, err := json.Marshal(d)
	return &csr.Bundle{Request: a.Request, Provider: "cloud/v1", Data: data}, err
}

// newCloud makes the provider, and a world in which honest machines get documents of
// its platform.
func newCloud(careless bool, attacks ...func(cloudPlatform) attesttest.Attack) (*cloudProvider, *attesttest.World, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	platform := cloudPlatform{key}
	options := attesttest.WorldOptions{Provider: "cloud", Prove: func(_ context.Context, _ csr.Provider, a *attesttest.Applicant) (*csr.Bundle, error) {
		return platform.evidence(a, a.Object.Metadata.CreationTimestamp)
	}}
	for _, attack := range attacks {
		options.Attacks = append(options.Attacks, attack(platform))
	}
	w, err := attesttest.OpenWorld(options)
	if err != nil {
		return nil, nil, err
	}
	return &cloudProvider{policy: w.Config.Policy, member: w.Member, now: w.Now, platform: public, careless: careless}, w, nil
}

// In a test of one's own this is attesttest.Run(t, provider, world).
func Example_provider() {
	for _, careless := range []bool{true, false} {
		provider, world, err := newCloud(careless)
		if err != nil {
			log.Fatal(err)
		}
		outcomes := attesttest.Try(context.Background(), provider, world)
		fmt.Printf("careless %t: %q\n", careless, attesttest.GotIn(outcomes))
	}
	// Output:
	// careless true: ["evidence-of-another-key" "evidence-of-a-client-for-serving"]
	// careless false: []
}

// An attack of one's own, on a fact that only the author knows: the platform's clock is an hour ahead.
// Want names the check that is to refuse it, so a refusal by another check, or an attack that never gets
// as far as the provider, is reported.
func ExampleAttack() {
	clockAhead := func(want refusal.Check) func(cloudPlatform) attesttest.Attack {
		return func(p cloudPlatform) attesttest.Attack {
			return attesttest.Attack{Name: "document-of-a-clock-ahead", Class: "statement", Want: []refusal.Check{want},
				Description: "The platform's clock is an hour ahead.",
				Prove: func(_ context.Context, _ csr.Provider, a *attesttest.Applicant) (*csr.Bundle, error) {
					return p.evidence(a, a.Object.Metadata.CreationTimestamp.Add(time.Hour))
				}}
		}
	}
	for _, want := range []refusal.Check{"cloud-document", "cloud-membership"} {
		provider, world, err := newCloud(false, clockAhead(want))
		if err != nil {
			log.Fatal(err)
		}
		outcomes := attesttest.Try(context.Background(), provider, world)
		last := outcomes[len(outcomes)-1]
		fmt.Printf("%s: issued %t, fault %q\n", last.Name, last.Issued, last.Fault)
	}
	// Output:
	// document-of-a-clock-ahead: issued false, fault ""
	// document-of-a-clock-ahead: issued false, fault "the attack was refused by check cloud-document, want [\"cloud-membership\"]"
}

// TestRunCloud is how an author's own test looks.
func TestRunCloud(t *testing.T) {
	provider, world, err := newCloud(false)
	if err != nil {
		t.Fatal(err)
	}
	attesttest.Run(t, provider, world)
}
