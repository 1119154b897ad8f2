package csr

import (
	"strings"
	"testing"
)

func TestProviderVersion(t *testing.T) {
	for provider, want := range map[string]struct {
		name    string
		version int
	}{
		"tpm/v1":                                {"tpm", 1},
		"insecure/v2":                           {"insecure", 2},
		"aws-nitro/v9":                          {"aws-nitro", 9},
		"0/v10":                                 {"0", 10},
		strings.Repeat("a", 63) + "/v999999999": {strings.Repeat("a", 63), 999999999},
	} {
		t.Run(provider, func(t *testing.T) {
			name, version, err := (&Bundle{Provider: provider}).ProviderVersion()
			if err != nil || name != want.name || version != want.version {
				t.Errorf("(&Bundle{Provider: %q}).ProviderVersion() = %q, %d, %v", provider, name, version, err)
			}
		})
	}
}

func TestProviderNameIsStrict(t *testing.T) {
	request := block(BlockRequest, clientRequest(t, keyP256()))
	data := block(BlockData, []byte("evidence"))
	for _, provider := range []string{
		"tpm", "tpm/", "tpm/v", "tpm/v0", "tpm/v01", "tpm/v1.0", "tpm/v-1", "tpm/v+1", "tpm/v1 ", "tpm/v1\n", "tpm/v1\x00",
		" tpm/v1", "tpm /v1", "tpm//v1", "tpm/V1", "TPM/v1", "Tpm/v1", "tpm_2/v1", "tpm.2/v1", "-tpm/v1", "tpm-/v1", "/v1",
		"tpm/v1/v1", "tpm/v1000000000", strings.Repeat("a", 64) + "/v1", "t\u03c1m/v1", "tpm/v\u0661", "tpm/v1;insecure/v1",
		strings.Repeat("a", 500_000),
	} {
		_, _, err := (&Bundle{Provider: provider}).ProviderVersion()
		wantRule(t, "ProviderVersion", err, checkProvider)
		_, err = Parse(join(request, block(BlockProvider, []byte(provider)), data))
		wantRule(t, "Parse", err, checkProvider)
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
	}
	_, _, err := (&Bundle{Provider: ""}).ProviderVersion()
	wantRule(t, "nothing", err, checkProvider)
}
