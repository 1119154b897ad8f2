package settings

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// GCE says which identity tokens of Google Compute Engine are trusted.
type GCE struct {
	// Projects are the IDs of the projects whose machines may join; at least one.
	Projects []string `json:"projects"`
	// KeysURL is where Google's keys are fetched, over HTTPS; empty: gce.KeysURL. A mirror
	// elsewhere is trusted to have the same keys.
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
	// azure.HTTPFetcherOptions. Without it there are some in IntermediatesFile, or RootsFile has
	// the issuing CAs themselves.
	FetchIntermediates bool `json:"fetchIntermediates"`
	// FetchOverHTTPS fetches them over https only (azure.HTTPFetcherOptions).
	FetchOverHTTPS bool `json:"fetchOverHTTPS"`
	// Domains are the names of the clouds; empty: metadata.azure.com.
	Domains []string `json:"domains"`
}

// Nitro says which documents of AWS' NitroTPMs are trusted.
type Nitro struct {
	// RootsFile contains AWS' root in PEM.
	RootsFile string `json:"rootsFile"`
	// GoodPCRs are sets of values by index, in hexadecimal. A document must have one whole
	// set; empty: any boot chain.
	GoodPCRs []map[int]string `json:"goodPCRs"`
}

// EC2 says which instances of Amazon EC2 without a NitroTPM are trusted.
type EC2 struct {
	// CertificateFiles contain the certificate of identity documents in PEM, by region.
	CertificateFiles map[string]string `json:"certificateFiles"`
	// Roles are the ARNs of the roles of the instances that may join; at least one.
	Roles []string `json:"roles"`

	offline bool // STS is not asked
}

// keysMaxAge is how long Google's keys are used before the file is read again.
const keysMaxAge = time.Minute

func (g *GCE) kind() (attest.Kind, error) {
	switch {
	case len(g.Projects) == 0:
		return nil, refusal.Config("projects", "", "the IDs of the projects whose machines may join: Google signs tokens for the machines of every customer")
	case g.KeysURL != "" && g.KeysFile != "":
		return nil, refusal.Config("keysURL and keysFile", g.KeysURL+" and "+g.KeysFile, "one of them")
	case ofGoogle(g.KeysURL) && g.KeysURL != gce.KeysURL:
		return nil, refusal.Config("keysURL", g.KeysURL, gce.KeysURL+" or a mirror of it: a service account's own keys sign whatever its owner likes")
	}
	config := jws.RemoteConfig{Client: new(http.Client), JWKSURL: g.KeysURL}
	config.JWKSURL = cmp.Or(config.JWKSURL, gce.KeysURL)
	if g.KeysFile != "" {
		read := func(context.Context) ([]*jws.Key, time.Duration, error) {
			text, err := files.Read(g.KeysFile, configfile.MaxSize)
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
	kind, err := gce.NewKind(gce.KindConfig{Keys: keys, Projects: g.Projects})
	return &trusting{Kind: kind, fetch: func(ctx context.Context) error {
		if _, err := keys.Keys(ctx, ""); err != nil {
			return err
		}
		return keys.Status().Err
	}}, err
}

// ofGoogle reports whether a URL is on the hosts where Google also publishes the keys of
// everybody's service accounts.
func ofGoogle(at string) bool {
	u, err := url.Parse(at)
	return err == nil && strings.HasSuffix("."+strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), ".googleapis.com")
}

func (a *Azure) kind() (attest.Kind, error) {
	if len(a.Subscriptions) == 0 {
		return nil, refusal.Config("subscriptions", "", "the IDs of the subscriptions whose machines may join: Azure signs documents for the machines of every customer")
	}
	if a.FetchOverHTTPS && !a.FetchIntermediates {
		return nil, refusal.Config("fetchOverHTTPS", "without fetchIntermediates", "both, or neither")
	}
	config := azure.VerifierConfig{}
	if len(a.Domains) != 0 {
		config.Domains = a.Domains
	}
	trusted := new(trusting)
	if a.FetchIntermediates {
		fetcher := azure.NewHTTPFetcher(azure.HTTPFetcherOptions{HTTPS: a.FetchOverHTTPS})
		config.FetchIssuer, trusted.fetch = fetcher.FetchIssuer, fetcher.Check
	}
	var err error
	if config.Roots, config.Intermediates, err = (&Issuer{RootsFile: a.RootsFile, IntermediatesFile: a.IntermediatesFile}).certificates(); err != nil {
		return nil, err
	}
	issuing := func(c *x509.Certificate) bool { return !strings.EqualFold(c.Issuer.String(), c.Subject.String()) }
	if !a.FetchIntermediates && len(config.Intermediates) == 0 && !slices.ContainsFunc(config.Roots, issuing) {
		return nil, refusal.Config("intermediatesFile and fetchIntermediates", "", "one of them: documents come without the CAs between their signer and the roots")
	}
	verifier, err := azure.NewVerifier(config)
	if err != nil {
		return nil, err
	}
	trusted.roots = config.Roots
	trusted.Kind, err = azure.NewKind(azure.KindConfig{Verifier: verifier, Subscriptions: a.Subscriptions})
	return trusted, err
}

func (n *Nitro) kind() (attest.Kind, error) {
	roots, _, err := (&Issuer{RootsFile: n.RootsFile}).certificates()
	if err != nil {
		return nil, err
	}
	verifier, err := nitro.NewVerifier(nitro.VerifierConfig{Roots: roots})
	if err != nil {
		return nil, err
	}
	config := nitro.KindConfig{Verifier: verifier}
	if len(n.GoodPCRs) != 0 {
		if config.GoodPCRs, err = pcrValues(n.GoodPCRs); err != nil {
			return nil, err
		}
	}
	kind, err := nitro.NewKind(config)
	return &trusting{Kind: kind, roots: roots}, err
}

func (e *EC2) kind() (attest.Kind, error) {
	config := ec2.KindConfig{Certificates: awsid.Certificates{}, Roles: e.Roles}
	trusted := new(trusting)
	for region, file := range e.CertificateFiles {
		roots, _, err := (&Issuer{RootsFile: file}).certificates()
		if err == nil && len(roots) != 1 {
			err = refusal.Config("certificateFiles", fmt.Sprintf("%d certificates for region %s", len(roots), refusal.Text(region)), "its one of /rsa2048")
		}
		if err != nil {
			return nil, err
		}
		config.Certificates[region] = roots[0]
		trusted.roots = append(trusted.roots, roots[0])
	}
	if e.offline {
		config.Transport = offline{}
	}
	var err error
	trusted.Kind, err = ec2.NewKind(config)
	return trusted, err
}

// offline sends nothing.
type offline struct{}

var errOffline = errors.New("AWS STS is not asked about a recorded request, which is valid for 15 minutes")

// RoundTrip returns an error.
func (offline) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOffline }
