package settings

import (
	"context"
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Documents describes one kind of evidence with documents, in the fields of controlplane.Plugin.
type Documents struct {
	Name       string
	Identities []attest.Grammar
	Versions   []int
	Open       func(decode func(into any) error) (attest.Kind, error)
}

// boxed are the built-in kinds with documents.
func boxed() []Documents {
	return []Documents{
		{gce.Provider, []attest.Grammar{gce.Grammar()}, nil, section((*GCE).kind)},
		{azure.Provider, []attest.Grammar{azure.Grammar()}, []int{2}, section((*Azure).kind)},
		{nitro.Provider, []attest.Grammar{nitro.Grammar()}, nil, section((*Nitro).kind)},
		{ec2.Provider, []attest.Grammar{nitro.Grammar()}, nil, section((*EC2).kind)}, // its machines have the same names
	}
}

// section returns an Open for a section of type T.
func section[T any](open func(*T) (attest.Kind, error)) func(decode func(into any) error) (attest.Kind, error) {
	return func(decode func(into any) error) (attest.Kind, error) {
		s := new(T)
		if err := decode(s); err != nil {
			return nil, err
		}
		return open(s)
	}
}

// know sets the kinds with documents: the built-in ones and others.
func (s *Settings) know(others []Documents) error {
	s.known = append(boxed(), others...)
	taken := []string{tpm.Provider, "apiVersion", "kind", "cluster", "signers", "inventory", "membership", "controller", "signer"}
	for _, k := range s.known {
		_, err := csr.SignerChallenge(k.Name)
		switch {
		case err != nil:
			return refusal.Config("Plugin.Name", refusal.Quote(k.Name), "1 to 63 bytes of a-z, 0-9 and inner hyphens")
		case slices.Contains(taken, k.Name):
			return refusal.Config("Plugin.Name", refusal.Quote(k.Name), "the name of no other kind or section")
		case len(k.Identities) == 0:
			return refusal.Config("Plugin.Identities of "+k.Name, "", "at least one")
		case k.Open == nil:
			return refusal.Config("Plugin.Open of "+k.Name, "", "a function")
		}
		taken = append(taken, k.Name)
	}
	return nil
}

// Opened returns the kinds of evidence that are configured, by their names.
func (s *Settings) Opened() []string {
	var names []string
	if s.TPM.opened() {
		names = append(names, tpm.Provider)
	}
	for _, k := range s.known {
		if _, opened := s.sections[k.Name]; opened {
			names = append(names, k.Name)
		}
	}
	return names
}

// checkEvidence checks the sections of the kinds of evidence, as far as that needs no other file.
func (s *Settings) checkEvidence() error {
	switch {
	case len(s.Opened()) == 0:
		return refusal.Config("tpm, gce, azure, nitro and ec2", "no issuer, no EK and no documents", "at least one kind of evidence: ekIssuers, allowedEKs or akIssuers in tpm, or gce, azure, nitro or ec2")
	case len(s.TPM.GoodPCRs) != 0 && !s.TPM.opened():
		return refusal.Config("tpm.goodPCRs", "without TPMs", "some of tpm.ekIssuers, allowedEKs and akIssuers")
	case !slices.Contains([]string{"", secureBootRequire, secureBootObserve}, s.TPM.SecureBoot):
		return refusal.Config("tpm.secureBoot", refusal.Quote(s.TPM.SecureBoot), "require or observe; without the field no event log is read")
	case s.TPM.SecureBoot != "" && !s.TPM.opened():
		return refusal.Config("tpm.secureBoot", "without TPMs", "some of tpm.ekIssuers, allowedEKs and akIssuers")
	case len(s.sections) != 0 && s.TPM.RequireResident:
		return refusal.Config("tpm.requireResident", "true with documents", "requireResident or documents: no document shows where a key is, so none would be accepted")
	}
	return nil
}

// Kinds reads the sections of the kinds of evidence that are trusted, and makes the kinds.
func (s *Settings) Kinds() ([]attest.Kind, error) {
	var kinds []attest.Kind
	s.trusting = map[string]*trusting{}
	add := func(name string, kind attest.Kind, err error) error {
		if err != nil {
			return fmt.Errorf("settings: %s: %w", name, err)
		}
		kinds = append(kinds, kind)
		return nil
	}
	if s.TPM.opened() {
		kind, err := s.TPM.kind()
		if err := add(tpm.Provider, kind, err); err != nil {
			return nil, err
		}
	}
	for _, k := range s.known {
		section, opened := s.sections[k.Name]
		if !opened {
			continue
		}
		kind, err := k.Open(func(into any) error {
			if e, ok := into.(*EC2); ok {
				e.offline = s.now != nil // at another time STS answers something else
			}
			return section.Decode(into)
		})
		if err == nil {
			err = k.check(kind)
		}
		if t, ok := kind.(*trusting); ok && err == nil {
			s.trusting[k.Name] = t
			err = t.check(s.clock())
		}
		if err := add(k.Name, kind, err); err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// check compares the kind that Open returned with the fields of k.
func (k *Documents) check(kind attest.Kind) error {
	if kind == nil {
		return refusal.Config("Plugin.Open", "nothing", "a kind of evidence")
	}
	d := kind.Describe()
	if d.Provider != k.Name {
		return refusal.Config("Plugin.Open", "a kind with provider "+refusal.Quote(d.Provider), k.Name)
	}
	versions := k.Versions
	if versions == nil {
		versions = []int{1}
	}
	if slices.ContainsFunc(d.Versions, func(v int) bool { return !slices.Contains(versions, v) }) {
		return refusal.Config("Plugin.Versions", fmt.Sprint(versions, ", and a kind with ", d.Versions), "all that it reads")
	}
	for _, road := range d.Roads {
		switch other := slices.IndexFunc(road.Identities, func(g attest.Grammar) bool { return k.grammar(g.Kind) == nil }); {
		case road.Road != attest.RoadDocument:
			return refusal.Config("Plugin.Open", "a kind with road "+road.Road.String(), "only the road of documents")
		case other >= 0:
			return refusal.Config("Plugin.Identities", refusal.Quotes(k.identities())+" without "+road.Identities[other].Kind, "all that its road has")
		}
	}
	return nil
}

// find finds a kind with documents.
func (s *Settings) find(name string) *Documents {
	if n := slices.IndexFunc(s.known, func(k Documents) bool { return k.Name == name }); n >= 0 {
		return &s.known[n]
	}
	return nil
}

// grammar returns the grammar of a kind of identity, or nil for one that the kind never shows.
func (k *Documents) grammar(kind string) *attest.Grammar {
	if n := slices.IndexFunc(k.Identities, func(g attest.Grammar) bool { return g.Kind == kind }); n >= 0 {
		return &k.Identities[n]
	}
	return nil
}

func (k *Documents) identities() []string {
	names := make([]string, len(k.Identities))
	for n, g := range k.Identities {
		names[n] = g.Kind
	}
	return names
}

// parseIdentity holds an identity to the grammar of the kind of evidence that shows it, and
// refuses one that this kind never shows. A TPM on a machine of Google's may be known by that
// machine's identity.
func (s *Settings) parseIdentity(text, name string) (attest.Identity, error) {
	id, err := attest.ParseIdentity(text)
	if err != nil {
		return "", err
	}
	k := s.find(name)
	if k == nil {
		k = &Documents{Identities: append(tpmcert.Grammars(), attest.Grammar{Kind: "ek"})}
	}
	grammar := k.grammar(id.Kind())
	switch {
	case grammar == nil:
		return "", refusal.Config("identity", string(id)+" with kind "+name, "one of "+refusal.Quotes(k.identities()))
	case grammar.Parse == nil:
		return id, nil
	}
	return grammar.Parse(id)
}

// ParseIdentity reads the identity of a machine that is known by a kind of evidence, as an
// inventory has it.
func ParseIdentity(text, kind string, others ...Documents) (attest.Identity, error) {
	s := new(Settings)
	if err := s.know(others); err != nil {
		return "", err
	}
	return s.parseIdentity(text, kind)
}

// Readers returns all kinds of evidence that a program knows, for showing the contents of messages:
// they read, but trust no issuer and verify nothing.
func Readers(others ...Documents) ([]attest.Kind, error) {
	s := new(Settings)
	if err := s.know(others); err != nil {
		return nil, err
	}
	kinds := []attest.Kind{new(tpm.Kind)}
	for _, k := range s.known {
		kind, err := document.NewKind(document.KindConfig{Provider: k.Name, Identities: k.Identities, Versions: k.Versions, ValueSize: minValueSize, Platform: untrusting{}})
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

const minValueSize = 16 // has no meaning if nothing is verified

// untrusting is a platform that refuses all documents.
type untrusting struct{}

var errUntrusting = refusal.Config("documents", "no trusted signer", "a controller's configuration")

func (untrusting) Read([]byte) (*document.Claims, error) { return nil, errUntrusting }

func (untrusting) Verify(context.Context, []byte, *attest.Inquiry) (*document.Claims, error) {
	return nil, errUntrusting
}
