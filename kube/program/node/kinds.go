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

// boxed are the kinds in the box.
func boxed() []Evidence {
	return []Evidence{
		{tpm.Provider, section((*tpmSettings).evidence)},
		{gce.Provider, section((*cloudSettings).gce)},
		{azure.Provider, section((*cloudSettings).azure)},
		{nitro.Provider, section((*nitroSettings).evidence)},
		{ec2.Provider, section((*cloudSettings).ec2)},
	}
}

// section makes a kind of a section of its own type.
func section[T any](open func(*T) (authenticator.Evidence, error)) func(decode func(into any) error) (authenticator.Evidence, error) {
	return func(decode func(into any) error) (authenticator.Evidence, error) {
		s := new(T)
		if err := decode(s); err != nil {
			return nil, err
		}
		return open(s)
	}
}

// noEvidence is the section of a machine that cannot attest.
const noEvidence = "none"

// kind returns the one kind of evidence that is configured, or nil for noEvidence.
func (s *settings) kind(others []Evidence) (authenticator.Evidence, error) {
	if section, ok := s.Evidence[noEvidence]; ok && len(s.Evidence) == 1 {
		if err := section.Decode(new(struct{})); err != nil {
			return nil, unreadable("a section evidence."+noEvidence+" that cannot be read", err)
		}
		return nil, nil
	}
	var found *Evidence
	var names []string
	all := append(boxed(), others...)
	for i := range all {
		k := &all[i]
		if k.Name == "" || k.Name == noEvidence || k.Open == nil || slices.Contains(names, k.Name) {
			return nil, refusal.Config("Kind", refusal.Quote(k.Name), "a name that no other has, and Open")
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
	kind, err := found.Open(func(into any) error {
		if err := s.Evidence[found.Name].Decode(into); err != nil {
			return unreadable("a section evidence."+found.Name+" that cannot be read", err)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case kind == nil || kind.Provider() != found.Name:
		return nil, refusal.Config("Kind.Open of "+found.Name, "another kind, or none", "a kind of that name")
	}
	return kind, nil
}

// cloudSettings say how to get a cloud's documents from its metadata server.
type cloudSettings struct {
	MetadataURL string   `json:"metadataURL"`
	Timeout     duration `json:"timeout"`
}

// nitroSettings say how to get documents from a NitroTPM, and a provider ID from the instance's
// metadata server.
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
