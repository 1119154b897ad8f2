package csr_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestAuthorizedAttestors(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	fake := &fakeProvider{policy: f.policy}
	providers, err := csr.NewProviders(csr.ProvidersConfig{AuthorizedAttestors: []string{"contoso-cloud"},
		Providers: withDefaults(csr.Registration{Name: "tpm", Provider: fake}, csr.Registration{Name: "contoso-cloud", Provider: fake})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := providers.Verify(context.Background(), f.request); !errors.Is(err, csr.CheckAttestorNotAuthorized) || len(fake.asked) > 0 {
		t.Errorf("got %v; asked %v", err, fake.asked)
	}
}

func TestNewProvidersRefuses(t *testing.T) {
	f := goodFixture(csr.SignerClientInsecure, csr.RequesterBootstrap)
	f.policy.SignerNames = []string{csr.SignerClientInsecure}
	insecure, err := csr.NewInsecureProvider(f.policy)
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeProvider{}
	for name, c := range map[string]struct {
		registrations []csr.Registration
		want          string // a part of the error
	}{
		"none":                             {nil, "at least one"},
		"insecure beside tpm":              {[]csr.Registration{{Name: "insecure", Provider: insecure}, {Name: "tpm", Provider: fake}}, "insecure beside others"},
		"insecure as tpm":                  {[]csr.Registration{{Name: "tpm", Provider: insecure, Versions: []int{}}}, "that is not its own"},
		"another provider as insecure":     {[]csr.Registration{{Name: "insecure", Provider: fake, Versions: []int{1}}}, "that is not its own"},
		"twice":                            {[]csr.Registration{{Name: "tpm", Provider: fake}, {Name: "tpm", Provider: fake}}, "twice"},
		"no name":                          {[]csr.Registration{{Provider: fake}}, "the name of a provider"},
		"a bad name":                       {[]csr.Registration{{Name: "TPM", Provider: fake}}, "the name of a provider"},
		"no provider":                      {[]csr.Registration{{Name: "tpm"}}, "without a Provider"},
		"no versions":                      {[]csr.Registration{{Name: "tpm", Provider: fake, Versions: []int{}}}, "with Versions []"},
		"insecure with versions":           {[]csr.Registration{{Name: "insecure", Provider: insecure, Versions: []int{1}}}, "with Versions [1]"},
		"insecure with a minimum":          {[]csr.Registration{{Name: "insecure", Provider: insecure, MinimumVersion: 2}}, "MinimumVersion"},
		"minimum over all versions":        {[]csr.Registration{{Name: "tpm", Provider: fake, Versions: []int{1}, MinimumVersion: 2}}, "MinimumVersion"},
		"minimum below all versions":       {[]csr.Registration{{Name: "tpm", Provider: fake, Versions: []int{1}, MinimumVersion: -1}}, "MinimumVersion"},
		"version over the largest":         {[]csr.Registration{{Name: "tpm", Provider: fake, Versions: []int{1000000000}}}, "999999999"},
		"version 0":                        {[]csr.Registration{{Name: "tpm", Provider: fake, Versions: []int{0, 1}}}, "999999999"},
		"no signer names":                  {[]csr.Registration{{Name: "tpm", Provider: fake, SignerNames: []string{}}}, "SignerNames"},
		"signer names of another provider": {[]csr.Registration{{Name: "tpm", Provider: fake, SignerNames: signersOf("aws")[:2]}}, "SignerNames"},
		"the names of its hellos":          {[]csr.Registration{{Name: "tpm", Provider: fake, SignerNames: []string{csr.SignerChallengeTPM}}}, "SignerNames"},
		"signer of nobody's evidence":      {[]csr.Registration{{Name: "tpm", Provider: fake, SignerNames: []string{csr.SignerKubeletServing}}}, "SignerNames"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := csr.NewProviders(csr.ProvidersConfig{Providers: withDefaults(c.registrations...), AuthorizedAttestors: []string{"tpm"}})
			if !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	for name, r := range map[string]csr.Registration{
		"largest version":        {Name: "tpm", Provider: fake, Versions: []int{999999999}, MinimumVersion: 999999999},
		"minimum between":        {Name: "tpm", Provider: fake, Versions: []int{1, 3}, MinimumVersion: 2},
		"insecure":               {Name: "insecure", Provider: insecure},
		"insecure, minimum 1":    {Name: "insecure", Provider: insecure, MinimumVersion: 1},
		"the built-in signer":    {Name: "tpm", Provider: fake, SignerNames: []string{csr.SignerKubeAPIServerClientKubelet}},
		"the same version twice": {Name: "tpm", Provider: fake, Versions: []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := csr.NewProviders(csr.ProvidersConfig{Providers: withDefaults(r), AuthorizedAttestors: []string{r.Name}}); err != nil {
				t.Error(err)
			}
		})
	}
	good := withDefaults(csr.Registration{Name: "tpm", Provider: fake}, csr.Registration{Name: "rack", Provider: fake},
		csr.Registration{Name: "aws", Provider: fake, SignerNames: signersOf("aws")[:2]})
	alone := withDefaults(csr.Registration{Name: "insecure", Provider: insecure})
	open := func(names ...string) csr.ProvidersConfig {
		return csr.ProvidersConfig{Providers: good, AuthorizedAttestors: []string{"tpm"}, BuiltInClient: names}
	}
	for name, c := range map[string]csr.ProvidersConfig{
		"nothing":                          {},
		"no authorised attestor":           {Providers: good},
		"a bad attestor":                   {Providers: good, AuthorizedAttestors: []string{"contosoCloud!"}},
		"an attestor without a provider":   {Providers: good, AuthorizedAttestors: []string{"tpm", "contoso-cloud"}},
		"insecure for the built-in signer": {Providers: alone, AuthorizedAttestors: []string{"insecure"}, BuiltInClient: []string{"insecure"}},
		"open for nobody":                  open("azure"),
		"open for one twice":               open("tpm", "rack", "tpm"),
		"open against its policy":          open("tpm", "aws"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := csr.NewProviders(c); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			} else if strings.Contains(err.Error(), "%!") {
				t.Error(err)
			}
		})
	}
	for _, names := range [][]string{nil, {"tpm"}, {"rack"}, {"tpm", "rack"}, {"rack", "tpm"}} {
		if _, err := csr.NewProviders(open(names...)); err != nil {
			t.Errorf("open for %q: %v", names, err)
		}
	}
}
