package claims

import (
	"net/http"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// A service whose audience is the API server's takes tokens that are good there, so it has to
// say that it means to.
func TestValidatorAudienceOfTheAPIServer(t *testing.T) {
	w := newWorld(t)
	w.claims.Audiences = []string{worldIssuer}
	config := w.strictConfig()
	config.Audiences = []string{worldAudience, worldIssuer}
	_, err := NewValidator(config)
	wantCheck(t, err, refusal.CheckConfig)

	config.InsecureAPIServerAudience = true
	r, err := w.strictWith(t, config).Validate(t.Context(), w.token(t))
	if err != nil || !slices.Equal(r.Audiences, []string{worldIssuer}) {
		t.Errorf("got %v, %v", r, err)
	}
	config.Audiences, config.InsecureAPIServerAudience = []string{worldAudience, worldIssuer + "/"}, false
	w.strictWith(t, config) // another name is for the service to know
}

// Keys that are fetched for one issuer verify the tokens of no other.
func TestValidatorKeysOfAnotherIssuer(t *testing.T) {
	w := newWorld(t)
	of := func(config jws.RemoteConfig) jws.KeySet {
		config.Client = http.DefaultClient
		keys, err := jws.NewRemoteKeySet(config)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	own, other := of(jws.RemoteConfig{Issuer: worldIssuer}), of(jws.RemoteConfig{Issuer: worldIssuer + "/"})
	for name, tt := range map[string]struct {
		keys jws.KeySet
		want error
	}{
		"own":               {own, nil},
		"another":           {other, refusal.CheckConfig},
		"without an issuer": {of(jws.RemoteConfig{JWKSURL: "https://other.example/jwks"}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := w.strictConfig()
			config.Issuers = map[string]jws.KeySet{worldIssuer: tt.keys}
			_, err := NewValidator(config)
			if tt.want == nil && err != nil {
				t.Error(err)
			}
			if tt.want != nil {
				wantCheck(t, err, refusal.CheckConfig)
			}
		})
	}
}
