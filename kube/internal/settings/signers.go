package settings

import (
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxRecoveryLifetime bounds recovery certificates: a stolen TLS session of one has its user's rights
// until the certificate ends.
const maxRecoveryLifetime = 90 * 24 * time.Hour

// minRequested is the shortest lifetime that the API server lets a request state.
const minRequested = 10 * time.Minute

// kubernetesOwn reports whether a signer is one of Kubernetes' own.
func kubernetesOwn(signerName string) bool { return csr.ProviderOf(signerName) == "" }

// minLifetime is the least MaxLifetime: node-attestation-signer shortens the stated lifetime.
func (g *Signers) minLifetime() time.Duration {
	if slices.ContainsFunc(g.Names, kubernetesOwn) {
		return minRequested
	}
	return csr.MinLifetime
}

// maxBuiltInDuration is the longest BuiltInDuration with which a kubelet always gets a serving
// certificate: one that ends within MaxLifetime of the beginning of its client certificate
// (csr.Checked.Inherit), which is renewed after four fifths of its lifetime at the latest.
func (g *Signers) maxBuiltInDuration() time.Duration {
	ours := func(name string) bool {
		purpose, err := csr.PurposeOf(name)
		return err == nil && purpose == csr.PurposeClient && !kubernetesOwn(name)
	}
	if slices.ContainsFunc(g.Names, ours) {
		return g.MaxLifetime.Duration / 5
	}
	return g.MaxLifetime.Duration / 2
}

// check checks the signers' names and the lifetimes.
func (g *Signers) check() error {
	least, longest, recovery, builtIn := g.minLifetime(), g.MaxLifetime.Duration, g.MaxRecoveryLifetime.Duration, g.BuiltInDuration.Duration
	switch {
	case slices.Contains(g.Names, csr.SignerKubeletServing):
		return refusal.Config("signers.names", csr.SignerKubeletServing, "builtInDuration, for kubelets' own serving requests")
	case longest < least:
		return refusal.Config("signers.maxLifetime", longest.String(), least.String()+" or more")
	case recovery < longest || recovery > maxRecoveryLifetime:
		return refusal.Config("signers.maxRecoveryLifetime", recovery.String(),
			"maxLifetime, "+longest.String()+", to "+maxRecoveryLifetime.String()+": a TLS session of a recovery certificate works without its key for as long")
	case builtIn != 0 && (builtIn < minRequested || builtIn > g.maxBuiltInDuration()):
		return refusal.Config("signers.builtInDuration", builtIn.String(), "0, or "+minRequested.String()+" to "+g.maxBuiltInDuration().String()+
			", half of maxLifetime, or a fifth if node-attestation-signer makes client certificates: a serving certificate ends within maxLifetime of the beginning of the client certificate")
	}
	return nil
}
