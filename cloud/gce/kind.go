package gce

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// Provider is the name of this kind of evidence in signer names and, followed by "/v1", in the
// block KUBELET AUTHENTICATOR ATTESTATION PROVIDER.
const Provider = "gce"

const (
	// identityKind is the kind of the machines' identities.
	identityKind = "gce"
	// audiencePrefix precedes the challenge's value in an audience.
	audiencePrefix = "nodeattest:"
	// valueSize is how many bytes of qualifying data an audience carries: all.
	valueSize = 32
)

// KindConfig configures the kind. Both fields are required.
type KindConfig struct {
	// Keys are Google's: those at [KeysURL], fetched (jws.RemoteKeySet) or pinned
	// (jws.StaticKeySet), and no others. Never add the keys of a service account.
	Keys jws.KeySet
	// Projects are the IDs of the projects whose machines may join: an attacker has a project
	// of their own, and Google's word about its machines. The slice is copied.
	Projects []string
}

// NewKind makes the control plane's side of Google Compute Engine's identity tokens. The
// join holds the inventory against a token: if the machine's provider ID there is one of a cloud, it
// must be the token's ([Details.ProviderID]). The error matches [refusal.CheckConfig] and names the field.
func NewKind(config KindConfig) (*document.Kind, error) {
	p, err := newPlatform(config)
	if err != nil {
		return nil, err
	}
	return document.NewKind(document.KindConfig{Provider: Provider, Identities: []attest.Grammar{Grammar()},
		ValueSize: valueSize, Platform: p, OwnMachines: true})
}

// Grammar is that of the machines' identities, "gce:<project ID>/<instance ID>".
func Grammar() attest.Grammar { return attest.Grammar{Kind: identityKind, Parse: parseIdentity} }

// parseIdentity reads "gce:<project ID>/<instance ID>".
func parseIdentity(id attest.Identity) (attest.Identity, error) {
	all := tpmcert.Grammars() // Google's AK certificates name the same machines
	return all[slices.IndexFunc(all, func(g attest.Grammar) bool { return g.Kind == identityKind })].Parse(id)
}

// platform reads and verifies tokens, a [document.Platform].
type platform struct {
	keys     jws.KeySet
	projects map[string]bool
}

func newPlatform(config KindConfig) (*platform, error) {
	switch {
	case config.Keys == nil:
		return nil, refusal.Config("Keys", "", "Google's")
	case len(config.Projects) == 0:
		return nil, refusal.Config("Projects", "", "the IDs of the projects whose machines may join")
	}
	p := &platform{config.Keys, map[string]bool{}}
	for _, project := range config.Projects {
		if !validProject(project) {
			return nil, refusal.Config("Projects", refusal.Quote(project), "IDs of projects, and not their numbers")
		}
		p.projects[project] = true
	}
	return p, nil
}

// Read reads a token and verifies nothing.
func (p *platform) Read(token []byte) (*document.Claims, error) {
	_, claims, err := read(token)
	return claims, err
}

// read reads a token whose audience carries a challenge.
func read(token []byte) (*jws.Token, *document.Claims, error) {
	t, d, err := parse(token)
	if err != nil {
		return nil, nil, err
	}
	text, ok := strings.CutPrefix(d.Audience, audiencePrefix)
	value, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(value) != valueSize || strings.ContainsAny(text, "\r\n") {
		return nil, nil, checkAudience.Refuse(d.Audience, audiencePrefix+"<"+strconv.Itoa(valueSize)+" bytes in base64url>")
	}
	return t, &document.Claims{Machine: d.Machine(), Value: value, Facts: d.facts(), Details: d}, nil
}

// Verify verifies a token at the time q.Now.
func (p *platform) Verify(ctx context.Context, token []byte, q *attest.Inquiry) (*document.Claims, error) {
	t, claims, err := read(token)
	if err != nil {
		return nil, err
	}
	d := claims.Details.(*Details)
	if err := p.check(d, q.Now); err != nil {
		return nil, err
	}
	if err := q.Budget.Signature(ctx); err != nil {
		return nil, err
	}
	if _, err := t.VerifySignature(ctx, p.keys); err != nil {
		return nil, err
	}
	return claims, nil // read from the signed bytes
}

// facts are contents of the token for human readers.
func (d *Details) facts() []attest.Fact {
	facts := []attest.Fact{
		{Standing: attest.Asserted, Name: "instance", Value: d.Instance.InstanceName + " in " + d.Instance.Zone},
		{Standing: attest.Asserted, Name: "project", Value: d.Instance.ProjectID + ", number " + strconv.FormatUint(d.Instance.ProjectNumber, 10)},
		{Standing: attest.Asserted, Name: "created", Value: stamp(d.Created)},
		{Standing: attest.Asserted, Name: "service account", Value: d.Subject},
	}
	if len(d.Licenses) > 0 {
		facts = append(facts, attest.Fact{Standing: attest.Asserted, Name: "licences", Value: strings.Join(d.Licenses, " ")})
	}
	return facts
}
