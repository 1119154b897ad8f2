package jwstest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/jws/jwstest"
	"github.com/nodeattest/nodeattest/refusal"
)

// A verifier has a remote key set of a server, and a clock.
type verifier struct {
	keys  *jws.RemoteKeySet
	ahead atomic.Int64 // of the machine's clock
}

func newVerifier(t *testing.T, server *jwstest.Server) *verifier {
	t.Helper()
	v := new(verifier)
	config := server.RemoteConfig()
	config.Now = func() time.Time { return time.Now().Add(time.Duration(v.ahead.Load())) }
	var err error
	v.keys, err = jws.NewRemoteKeySet(config)
	testkit.NoError(t, err)
	return v
}

// later lets time pass until the keys are fetched anew, and no longer served.
func (v *verifier) later() { v.ahead.Add(int64(26 * time.Hour)) }

func (v *verifier) verify(t *testing.T, signer *jwstest.Signer) error {
	t.Helper()
	token, err := signer.Token(t.Context(), []byte("{}"))
	testkit.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = jws.VerifySignature(ctx, token, v.keys)
	return err
}

// Each fault stops a verifier in its own way, and is over when it is over.
func TestFaults(t *testing.T) {
	signer := jwstest.NewSigner(t, nil, jws.SignerOptions{})
	for name, test := range map[string]struct {
		fault jwstest.Fault
		want  []error
	}{
		"none":         {0, nil},
		"hang":         {jwstest.Hang, []error{refusal.ErrRetry, context.DeadlineExceeded}},
		"fail":         {jwstest.Fail, []error{refusal.ErrRetry, jws.Check("fetch")}},
		"stale":        {jwstest.Stale, nil}, // while nothing is rotated
		"oversized":    {jwstest.Oversized, []error{refusal.ErrRetry, jws.Check("fetch")}},
		"swapped keys": {jwstest.SwappedKeys, []error{jws.Check("jws-signature")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := jwstest.NewServer(t, signer.Key())
			testkit.NoError(t, server.SetFault(test.fault))
			v := newVerifier(t, server)
			err := v.verify(t, signer)
			if (err == nil) != (len(test.want) == 0) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			for _, want := range test.want {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			testkit.NoError(t, server.SetFault(0))
			testkit.NoError(t, newVerifier(t, server).verify(t, signer))
		})
	}
}

// A rotation reaches verifiers, but not through a cache that does not hear of it.
func TestRotation(t *testing.T) {
	first, second := jwstest.NewSigner(t, nil, jws.SignerOptions{}), jwstest.NewSigner(t, nil, jws.SignerOptions{Algorithm: jws.EdDSA})
	server := jwstest.NewServer(t, first.Key())
	v := newVerifier(t, server)
	testkit.NoError(t, v.verify(t, first))

	testkit.NoError(t, server.SetFault(jwstest.Stale))
	testkit.NoError(t, server.SetKeys(second.Key()))
	v.later()
	testkit.NoError(t, v.verify(t, first))
	if err := v.verify(t, second); !errors.Is(err, jws.CheckKeyID) {
		t.Errorf("the new key, behind a cache: %v", err)
	}

	testkit.NoError(t, server.SetFault(0))
	v.later()
	testkit.NoError(t, v.verify(t, second))
	if err := v.verify(t, first); !errors.Is(err, jws.CheckKeyID) {
		t.Errorf("the old key: %v", err)
	}

	// A key with the ID of another.
	impostor := jwstest.NewSigner(t, nil, jws.SignerOptions{KeyID: second.Key().KeyID(), Algorithm: jws.EdDSA})
	testkit.NoError(t, server.SetKeys(impostor.Key()))
	v.later()
	testkit.NoError(t, v.verify(t, impostor))
	if err := v.verify(t, second); !errors.Is(err, jws.Check("jws-signature")) {
		t.Errorf("a key whose ID is another's: %v", err)
	}
	if err := server.SetKeys(first.Key(), nil); err == nil {
		t.Error("a nil key is published")
	}
	testkit.NoError(t, v.verify(t, impostor))
	if err := server.SetFault(6); err == nil {
		t.Error("an unknown fault")
	}
}

// The discovery document and the key set, as any client sees them.
func TestServer(t *testing.T) {
	signer := jwstest.NewSigner(t, nil, jws.SignerOptions{Algorithm: jws.RS256, KeyID: "k"})
	server := jwstest.NewServer(t, signer.Key())
	get := func(method, url string) (int, []byte) {
		request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		testkit.NoError(t, err)
		response, err := server.Client().Do(request)
		testkit.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		testkit.NoError(t, err)
		return response.StatusCode, body
	}
	var document struct {
		Issuer, JWKSURI string
		Algorithms      []string `json:"id_token_signing_alg_values_supported"`
	}
	_, text := get("GET", server.Issuer()+"/.well-known/openid-configuration")
	testkit.NoError(t, json.Unmarshal(bytes.Replace(text, []byte("jwks_uri"), []byte("JWKSURI"), 1), &document))
	if document.Issuer != server.Issuer() || document.JWKSURI != server.JWKSURL() || len(document.Algorithms) != 1 || document.Algorithms[0] != "RS256" {
		t.Errorf("%s", text)
	}
	_, text = get("GET", server.JWKSURL())
	if keys, err := jws.ParseJWKS(text); err != nil || len(keys) != 1 || keys[0].KeyID() != "k" {
		t.Errorf("%s: %v", text, err)
	}
	for _, other := range [][2]string{{"POST", server.JWKSURL()}, {"GET", server.Issuer() + "/other"}, {"GET", server.Issuer()}} {
		if status, _ := get(other[0], other[1]); status != 404 && status != 405 {
			t.Errorf("%v: %d", other, status)
		}
	}
	if got := server.Requests(); len(got) != 5 || got[1].URL.Path != "/openid/v1/jwks" {
		t.Errorf("%d requests", len(got))
	}

	// An oversized set is wrong only in its size.
	testkit.NoError(t, server.SetFault(jwstest.Oversized))
	var set struct{ Keys []*json.RawMessage }
	if _, text = get("GET", server.JWKSURL()); len(text) != 2<<20 || json.Unmarshal(text, &set) != nil || len(set.Keys) != 1 {
		t.Errorf("%d bytes, %d keys", len(text), len(set.Keys))
	}
}

// Closing ends a request that hangs, more than once.
func TestClose(t *testing.T) {
	server, err := jwstest.OpenServer()
	testkit.NoError(t, err)
	testkit.NoError(t, server.SetFault(jwstest.Hang))
	answered := make(chan error)
	go func() {
		response, err := server.Client().Get(server.JWKSURL())
		if err == nil {
			err = response.Body.Close()
			t.Error("a response")
		}
		answered <- err
	}()
	for len(server.Requests()) == 0 {
		time.Sleep(time.Millisecond)
	}
	testkit.NoError(t, server.Close())
	if err := <-answered; err == nil {
		t.Error("no error")
	}
	testkit.NoError(t, server.Close())
	if server, err := jwstest.OpenServer(nil); err == nil || server != nil {
		t.Errorf("a nil key: %v, %v", server, err)
	}
}
