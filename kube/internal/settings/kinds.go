package settings

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// GCE says which identity tokens of Google Compute Engine are trusted.
type GCE struct {
	// Projects are the IDs of the projects whose machines may join; at least one.
	Projects []string `json:"projects"`
	// KeysURL is where Google's keys are fetched, over HTTPS; empty: gce.KeysURL.
	KeysURL string `json:"keysURL"`
	// KeysFile contains the keys as a JWK set, for when the URL cannot be reached; it is read
	// again every minute.
	KeysFile string `json:"keysFile"`
}

// Azure says which attested documents of Azure are trusted.
type Azure struct {
	// Subscriptions are the IDs of the subscriptions whose machines may join; at least one.
	Subscriptions []string `json:"subscriptions"`
	// RootsFile contains the trust anchors in PEM, IntermediatesFile the CAs between them and
	// the signers; documents come without those.
	RootsFile         string `json:"rootsFile"`
	IntermediatesFile string `json:"intermediatesFile"`
	// FetchIntermediates fetches missing intermediates, only from the hosts of
	// azure.HTTPFetcherOptions.
	FetchIntermediates bool `json:"fetchIntermediates"`
	// Domains are the names of the clouds; empty: metadata.azure.com.
	Domains []string `json:"domains"`
}

// Nitro says which documents of AWS' NitroTPMs are trusted.
type Nitro struct {
	// RootsFile contains AWS' root in PEM.
	RootsFile string `json:"rootsFile"`
	// GoodPCRs are sets of values by index, in hexadecimal. A document must have one whole
	// set; empty: it does not matter what was booted.
	GoodPCRs []map[int]string `json:"goodPCRs"`
}

// Opened returns the kinds of evidence that are configured, by the names of their providers.
func (s *Settings) Opened() []string {
	var names []string
	for _, k := range s.kinds() {
		names = append(names, k.provider)
	}
	return names
}

// opener makes one kind of evidence.
type opener struct {
	provider string
	open     func() (attest.Kind, error)
}

func (s *Settings) kinds() []opener {
	var all []opener
	if s.TPM.opened() {
		all = append(all, opener{tpm.Provider, s.TPM.kind})
	}
	if s.GCE != nil {
		all = append(all, opener{gce.Provider, s.GCE.kind})
	}
	if s.Azure != nil {
		all = append(all, opener{azure.Provider, s.Azure.kind})
	}
	if s.Nitro != nil {
		all = append(all, opener{nitro.Provider, s.Nitro.kind})
	}
	return all
}

// checkEvidence checks what is trusted, as far as that needs no other file.
func (s *Settings) checkEvidence() error {
	documents := s.GCE != nil || s.Azure != nil || s.Nitro != nil
	switch {
	case !s.TPM.opened() && !documents:
		return refusal.Config("tpm, gce, azure and nitro", "no issuer, no EK and no documents", "one kind of evidence: in tpm some of ekIssuers, allowedEKs and akIssuers, or gce, azure or nitro")
	case documents && s.TPM.RequireResident:
		return refusal.Config("tpm.requireResident", "true with documents of a cloud", "one of them: no document shows where a key is, so none would be accepted")
	case s.GCE != nil && len(s.GCE.Projects) == 0:
		return refusal.Config("gce.projects", "", "the IDs of the projects whose machines may join: Google signs tokens about everybody's")
	case s.GCE != nil && s.GCE.KeysURL != "" && s.GCE.KeysFile != "":
		return refusal.Config("gce.keysURL and keysFile", s.GCE.KeysURL+" and "+s.GCE.KeysFile, "one of them")
	case s.Azure != nil && len(s.Azure.Subscriptions) == 0:
		return refusal.Config("azure.subscriptions", "", "the IDs of the subscriptions whose machines may join: Azure signs documents about everybody's")
	case s.Azure != nil && s.Azure.RootsFile == "":
		return refusal.Config("azure.rootsFile", "", "a path")
	case s.Nitro != nil && s.Nitro.RootsFile == "":
		return refusal.Config("nitro.rootsFile", "", "a path")
	}
	return nil
}

// Kinds makes the kinds of evidence that are trusted.
func (s *Settings) Kinds() ([]attest.Kind, error) {
	var kinds []attest.Kind
	for _, o := range s.kinds() {
		kind, err := o.open()
		if err != nil {
			return nil, fmt.Errorf("settings: %s: %w", o.provider, err)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// keysMaxAge is how long Google's keys are used before the file is read again.
const keysMaxAge = time.Minute

func (g *GCE) kind() (attest.Kind, error) {
	config := jws.RemoteConfig{Client: new(http.Client), JWKSURL: g.KeysURL}
	orElse(&config.JWKSURL, gce.KeysURL)
	if g.KeysFile != "" {
		read := func(context.Context) ([]*jws.Key, time.Duration, error) {
			text, err := files.Read(g.KeysFile, MaxSize)
			if err != nil {
				return nil, 0, err
			}
			keys, err := jws.ParseJWKS(text)
			return keys, keysMaxAge, err
		}
		if _, _, err := read(context.Background()); err != nil {
			return nil, fmt.Errorf("keysFile: %w", err)
		}
		config = jws.RemoteConfig{Fetch: read}
	}
	keys, err := jws.NewRemoteKeySet(config)
	if err != nil {
		return nil, err
	}
	return gce.NewKind(gce.KindConfig{Keys: keys, Projects: g.Projects})
}

func (a *Azure) kind() (attest.Kind, error) {
	config := azure.VerifierConfig{}
	if len(a.Domains) != 0 {
		config.Domains = a.Domains
	}
	if a.FetchIntermediates {
		config.FetchIssuer = azure.NewHTTPFetcher(azure.HTTPFetcherOptions{}).FetchIssuer
	}
	var err error
	if config.Roots, config.Intermediates, err = (&Issuer{RootsFile: a.RootsFile, IntermediatesFile: a.IntermediatesFile}).certificates(); err != nil {
		return nil, err
	}
	verifier, err := azure.NewVerifier(config)
	if err != nil {
		return nil, err
	}
	return azure.NewKind(azure.KindConfig{Verifier: verifier, Subscriptions: a.Subscriptions})
}

func (n *Nitro) kind() (attest.Kind, error) {
	roots, err := readCertificates(n.RootsFile)
	if err != nil {
		return nil, err
	}
	verifier, err := nitro.NewVerifier(nitro.VerifierConfig{Roots: roots})
	if err != nil {
		return nil, err
	}
	config := nitro.KindConfig{Verifier: verifier}
	for i, set := range n.GoodPCRs {
		good := make(map[int][]byte, len(set))
		for index, text := range set {
			if good[index], err = hex.DecodeString(text); err != nil {
				return nil, refusal.Config(fmt.Sprintf("goodPCRs[%d]", i), refusal.Quote(text), "hexadecimal digits")
			}
		}
		config.GoodPCRs = append(config.GoodPCRs, good)
	}
	return nitro.NewKind(config)
}

// identityKinds are the kinds of machine identity of each kind of evidence with documents. All
// others are for TPMs.
func identityKinds() map[string]string {
	return map[string]string{gce.Provider: gce.IdentityKind, azure.Provider: azure.IdentityKind, nitro.Provider: nitro.IdentityKind}
}

// checkIdentity refuses an identity that a kind of evidence never shows.
func checkIdentity(id attest.Identity, provider string) error {
	want, documents := identityKinds()[provider]
	switch {
	case documents && id.Kind() != want:
		return refusal.Config("identity", string(id)+" with evidence "+provider, "one of kind "+want)
	case !documents && (id.Kind() == azure.IdentityKind || id.Kind() == nitro.IdentityKind):
		return refusal.Config("evidence", provider+" with identity "+string(id), "the kind that shows such an identity, azure or nitro")
	}
	return nil
}

// Readers returns all kinds of evidence, for showing what messages say: they read, but trust
// nobody and verify nothing.
func Readers() ([]attest.Kind, error) {
	kinds := []attest.Kind{new(tpm.Kind)}
	for _, provider := range []string{gce.Provider, azure.Provider, nitro.Provider} {
		kind, err := document.NewKind(document.KindConfig{Provider: provider, Identities: []string{identityKinds()[provider]}, ValueSize: minValueSize, Platform: untrusting{}})
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

var errUntrusting = refusal.Config("documents", "nobody who is trusted to sign them", "a controller's configuration")

func (untrusting) Read([]byte) (*document.Claims, error) { return nil, errUntrusting }

func (untrusting) Verify(context.Context, []byte, time.Time, *attest.Budget) (*document.Claims, error) {
	return nil, errUntrusting
}
