package node

import (
	"cmp"
	"context"
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
	if section, ok := s.Evidence[noEvidence]; ok && len(s.Evidence) == 1 {
		if err := section.Decode(new(struct{})); err != nil {
			return nil, unreadable("an invalid section evidence."+noEvidence, err)
		}
		return nil, nil
	}
	var found *Evidence
	var names []string
	all := append(builtIn(), others...)
	for i := range all {
		k := &all[i]
		if k.Name == "" || k.Name == noEvidence || k.Open == nil || slices.Contains(names, k.Name) {
			return nil, refusal.Config("Evidence", refusal.Quote(k.Name), "a unique name, and Open")
		}
		names = append(names, k.Name)
		if _, ok := s.Evidence[k.Name]; ok {
			found = k
		}
	}
	if len(s.Evidence) != 1 || found == nil {
		got := make([]string, 0, len(s.Evidence))
		for name := range s.Evidence {
			got = append(got, name)
		}
		slices.Sort(got)
		return nil, refusal.Config("evidence", refusal.Text(strings.Join(got, " and ")), "one of "+strings.Join(names, ", ")+", such as gce: {}, or "+noEvidence+": {}")
	}
	evidence, err := found.Open(func(into any) error {
		if err := s.Evidence[found.Name].Decode(into); err != nil {
			return unreadable("an invalid section evidence."+found.Name, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case evidence == nil || evidence.Provider() != found.Name:
		return nil, refusal.Config("Evidence.Open of "+found.Name, "nil, or evidence of another provider", "evidence of that provider")
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
	return &identifiedEvidence{authenticator.EvidenceOf(prover.Provider(), func(context.Context) (attest.Prover, error) { return prover, nil }), source}, nil
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
