package main

import (
	"context"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/refusal"
)

// cloudSettings say how to get a cloud's documents from its metadata server.
type cloudSettings struct {
	MetadataURL string   `json:"metadataURL"`
	Timeout     duration `json:"timeout"`
}

// nitroSettings say how to get documents from a NitroTPM.
type nitroSettings struct {
	Tool string `json:"tool"`
}

// kind returns the one kind of evidence that is configured.
func (e *evidenceSettings) kind() (authenticator.Kind, error) {
	var kinds []func() (authenticator.Kind, error)
	if e.TPM != nil {
		kinds = append(kinds, e.TPM.kind)
	}
	if e.GCE != nil {
		kinds = append(kinds, e.GCE.gce)
	}
	if e.Azure != nil {
		kinds = append(kinds, e.Azure.azure)
	}
	if e.Nitro != nil {
		kinds = append(kinds, e.Nitro.kind)
	}
	if len(kinds) != 1 {
		got := "more than one kind"
		if len(kinds) == 0 {
			got = ""
		}
		return nil, refusal.Config("evidence", got, "one of tpm, gce, azure and nitro, such as gce: {}")
	}
	return kinds[0]()
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

func (n *nitroSettings) kind() (authenticator.Kind, error) {
	prover, err := nitro.NewProver(nitro.SourceConfig{Ask: nitro.Tool(n.Tool)})
	return proverOf(nitro.Provider, prover, err)
}
