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

// newCloud makes the provider, and a world in which honest machines get documents of
// its platform.
func newCloud(careless bool) (*cloudProvider, *attesttest.World, error) {
	public, platform, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	prove := func(_ context.Context, _ csr.Provider, a *attesttest.Applicant) (*csr.Bundle, error) {
		d := cloudDocument{Machine: a.Machine, Time: a.Object.Metadata.CreationTimestamp}
		if p, err := csr.ParsePKCS10(a.Request); err == nil {
			d.RequestHash = p.InfoHash[:]
		}
		d.Signature = ed25519.Sign(platform, d.signed())
		data, err := json.Marshal(d)
		return &csr.Bundle{Request: a.Request, Provider: "cloud/v1", Data: data}, err
	}
	w, err := attesttest.OpenWorld(attesttest.WorldOptions{Provider: "cloud", Prove: prove})
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

// TestRunCloud is how an author's own test looks.
func TestRunCloud(t *testing.T) {
	provider, world, err := newCloud(false)
	if err != nil {
		t.Fatal(err)
	}
	attesttest.Run(t, provider, world)
}
