package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/refusal"
)

// builtIn returns the kinds of evidence that the program supports without others.
func builtIn() []Evidence {
	return []Evidence{
		{tpm.Provider, section((*tpmSettings).evidence)},
		{gce.Provider, section((*cloudSettings).gce)},
		{azure.Provider, section((*cloudSettings).azure)},
		{nitro.Provider, section((*nitroSettings).evidence)},
		{ec2.Provider, section((*cloudSettings).ec2)},
		{noEvidence, section(func(*struct{}) (authenticator.Evidence, error) { return nil, nil })},
	}
}

// section decodes a section of the file into a T, and opens it.
func section[T any](open func(*T) (authenticator.Evidence, error)) func(decode func(into any) error) (authenticator.Evidence, error) {
	return func(decode func(into any) error) (authenticator.Evidence, error) {
		s := new(T)
		if err := decode(s); err != nil {
			return nil, err
		}
		return open(s)
	}
}

// noEvidence is the section of a machine without evidence.
const noEvidence = "none"

// evidence returns the configured evidence, or nil for noEvidence.
func (s *settings) evidence(others []Evidence) (authenticator.Evidence, error) {
	open, names := map[string]func(decode func(any) error) (authenticator.Evidence, error){}, []string{}
	for _, k := range append(builtIn(), others...) {
		if k.Name == "" || k.Open == nil || open[k.Name] != nil {
			return nil, refusal.Config("Evidence", refusal.Quote(k.Name), "a unique name, and Open")
		}
		open[k.Name], names = k.Open, append(names, k.Name)
	}
	sections := slices.Sorted(maps.Keys(s.Evidence))
	if len(sections) != 1 || open[sections[0]] == nil {
		return nil, refusal.Config("evidence", refusal.Text(strings.Join(sections, " and ")), "one of "+strings.Join(names, ", ")+", such as gce: {}")
	}
	name := sections[0]
	evidence, err := open[name](func(into any) error {
		if err := s.Evidence[name].Decode(into); err != nil {
			return unreadable("an invalid section evidence."+name, err)
		}
		return nil
	})
	switch {
	case err != nil || name == noEvidence:
		return nil, err
	case evidence == nil || evidence.Provider() != name:
		return nil, refusal.Config("Evidence.Open of "+name, "nil, or evidence of another provider", "evidence of that provider")
	}
	return evidence, nil
}

// cloudSettings are the settings of a cloud's metadata server.
type cloudSettings struct {
	MetadataURL string   `json:"metadataURL"`
	Timeout     duration `json:"timeout"`
}

// nitroSettings are the settings of a NitroTPM, and of the metadata server that has the provider ID.
type nitroSettings struct {
	Tool          string `json:"tool"`
	cloudSettings `json:",inline"`
}

// cloudEvidence makes evidence of a prover that holds nothing open between uses, with the metadata
// server as the source of the machine's provider ID.
func cloudEvidence(prover attest.Prover, source identified, err error) (authenticator.Evidence, error) {
	if err != nil {
		return nil, err
	}
	open := func(context.Context) (attest.Prover, error) { return prover, nil }
	return &identifiedEvidence{authenticator.EvidenceOf(prover.Provider(), open), source}, nil
}

func (c *cloudSettings) gce() (authenticator.Evidence, error) {
	options := gce.SourceOptions{URL: c.MetadataURL, Timeout: time.Duration(c.Timeout)}
	prover, err := gce.NewProver(options)
	source, failed := gce.NewSource(options)
	return cloudEvidence(prover, source, cmp.Or(err, failed))
}

func (c *cloudSettings) azure() (authenticator.Evidence, error) {
	options := azure.SourceOptions{URL: c.MetadataURL, Timeout: time.Duration(c.Timeout)}
	prover, err := azure.NewProver(options)
	source, failed := azure.NewSource(options)
	return cloudEvidence(prover, source, cmp.Or(err, failed))
}

func (c *cloudSettings) ec2Options() ec2.SourceOptions {
	return ec2.SourceOptions{URL: c.MetadataURL, Timeout: time.Duration(c.Timeout)}
}

func (c *cloudSettings) ec2() (authenticator.Evidence, error) {
	prover, err := ec2.NewProver(c.ec2Options())
	source, failed := ec2.NewSource(c.ec2Options())
	return cloudEvidence(prover, source, cmp.Or(err, failed))
}

func (n *nitroSettings) evidence() (authenticator.Evidence, error) {
	prover, err := nitro.NewProver(nitro.SourceConfig{Ask: nitro.Tool(n.Tool)})
	source, failed := ec2.NewSource(n.ec2Options())
	return cloudEvidence(prover, source, cmp.Or(err, failed))
}
