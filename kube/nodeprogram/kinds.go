package nodeprogram

import (
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
	"github.com/nodeattest/nodeattest/kube/internal/nilpointer"
	"github.com/nodeattest/nodeattest/refusal"
)

// boxed are the kinds in the box.
func boxed() []Kind {
	return []Kind{
		{tpm.Provider, section((*tpmSettings).kind)},
		{gce.Provider, section((*cloudSettings).gce)},
		{azure.Provider, section((*cloudSettings).azure)},
		{nitro.Provider, section((*nitroSettings).kind)},
		{ec2.Provider, section((*cloudSettings).ec2)},
	}
}

// section makes a kind of a section of its own type.
func section[T any](open func(*T) (authenticator.Kind, error)) func(decode func(into any) error) (authenticator.Kind, error) {
	return func(decode func(into any) error) (authenticator.Kind, error) {
		s := new(T)
		if err := decode(s); err != nil {
			return nil, err
		}
		return open(s)
	}
}

// kind returns the one kind of evidence that is configured.
func (s *settings) kind(others []Kind) (authenticator.Kind, error) {
	var found *Kind
	var names []string
	all := append(boxed(), others...)
	for i := range all {
		k := &all[i]
		if k.Name == "" || k.Open == nil || slices.Contains(names, k.Name) {
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
		return nil, refusal.Config("evidence", refusal.Text(strings.Join(got, " and ")), "one of "+strings.Join(names, ", ")+", such as gce: {}")
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
	case nilpointer.Is(kind) || kind.Provider() != found.Name:
		return nil, refusal.Config("Kind.Open of "+found.Name, "another kind, or none", "a kind of that name")
	}
	return kind, nil
}

// cloudSettings say how to get a cloud's documents from its metadata server.
type cloudSettings struct {
	MetadataURL string   `json:"metadataURL"`
	Timeout     duration `json:"timeout"`
}

// nitroSettings say how to get documents from a NitroTPM.
type nitroSettings struct {
	Tool string `json:"tool"`
}

// proverOf makes a kind from a prover that holds nothing open between uses.
func proverOf(provider string, prover attest.Prover, err error) (authenticator.Kind, error) {
	if err != nil {
		return nil, err
	}
	return authenticator.KindOf(provider, func(context.Context) (attest.Prover, error) { return prover, nil }), nil
}

func (c *cloudSettings) gce() (authenticator.Kind, error) {
	prover, err := gce.NewProver(gce.SourceOptions{URL: c.MetadataURL, Timeout: time.Duration(c.Timeout)})
	return proverOf(gce.Provider, prover, err)
}

func (c *cloudSettings) azure() (authenticator.Kind, error) {
	prover, err := azure.NewProver(azure.SourceOptions{URL: c.MetadataURL, Timeout: time.Duration(c.Timeout)})
	return proverOf(azure.Provider, prover, err)
}

func (c *cloudSettings) ec2() (authenticator.Kind, error) {
	prover, err := ec2.NewProver(ec2.SourceOptions{URL: c.MetadataURL, Timeout: time.Duration(c.Timeout)})
	return proverOf(ec2.Provider, prover, err)
}

func (n *nitroSettings) kind() (authenticator.Kind, error) {
	prover, err := nitro.NewProver(nitro.SourceConfig{Ask: nitro.Tool(n.Tool)})
	return proverOf(nitro.Provider, prover, err)
}
