package azure

import (
	"context"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/refusal"
)

// Provider is the name of this kind of evidence in signer names and, followed by "/v2", in the
// block KUBELET AUTHENTICATOR ATTESTATION PROVIDER.
const Provider = "azure"

// formatVersion is the version of the data format. The nonces of version 1 had no label.
const formatVersion = 2

const (
	// checkSubscription: the machine belongs to a subscription that is not in the configuration.
	checkSubscription refusal.Check = "azure-subscription"
)

// KindConfig configures the kind. Both fields are required.
type KindConfig struct {
	// Verifier verifies the documents.
	Verifier *Verifier
	// Subscriptions are the IDs of the subscriptions whose machines may join, UUIDs in either
	// case: an attacker has a subscription of their own, and Azure's word about its machines.
	// The slice is copied.
	Subscriptions []string
}

// NewKind makes the control plane's side of the kind of evidence. The join holds the
// inventory against the machine's identity: if the machine's provider ID there is one of a cloud, it
// must be Azure's, of the document's subscription; documents do not have the rest of it. The error
// matches [refusal.CheckConfig] and names the field.
func NewKind(config KindConfig) (*document.Kind, error) {
	if config.Verifier == nil {
		return nil, refusal.Config("Verifier", "", "one")
	}
	if len(config.Subscriptions) == 0 {
		return nil, refusal.Config("Subscriptions", "", "the IDs of the subscriptions whose machines may join")
	}
	p := &platform{verifier: config.Verifier}
	for _, s := range config.Subscriptions {
		if !validUUID(strings.ToLower(s)) {
			return nil, refusal.Config("Subscriptions", refusal.Quote(s), "UUIDs")
		}
		p.subscriptions = append(p.subscriptions, strings.ToLower(s))
	}
	return document.NewKind(document.KindConfig{Provider: Provider, Versions: []int{formatVersion}, Identities: []attest.Grammar{Grammar()}, ValueSize: valueSize, Platform: p, OwnMachines: true})
}

// platform is the [document.Platform] of Azure.
type platform struct {
	verifier      *Verifier
	subscriptions []string // in lower case
}

// Read reads a document and verifies nothing.
func (p *platform) Read(data []byte) (*document.Claims, error) {
	return p.claims(parseInsecure(data))
}

// Verify verifies a document.
func (p *platform) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	return p.claims(p.verifier.verify(ctx, data, q.Now, q.Budget))
}

// claims returns the claims of a document that was read without an error.
func (p *platform) claims(d *Document, err error) (*document.Claims, error) {
	if err != nil {
		return nil, err
	}
	machine, err := d.Identity()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(p.subscriptions, d.SubscriptionID) {
		return nil, checkSubscription.Refuse(d.SubscriptionID, "a subscription of the configuration")
	}
	value, err := d.value()
	if err != nil {
		return nil, err
	}
	return &document.Claims{Machine: machine, Value: value, Facts: d.facts(), Details: d}, nil
}

// facts are further contents of the document, for human readers.
func (d *Document) facts() []attest.Fact {
	return []attest.Fact{
		{Standing: attest.Asserted, Name: "subscription", Value: d.SubscriptionID},
		{Standing: attest.Asserted, Name: "document", Value: "by " + d.Name + " at " + stamp(d.CreatedOn)},
	}
}
