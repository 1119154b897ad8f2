package clouds

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/api/idtoken"
	"google.golang.org/api/option"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
)

const audience = "https://example.com/once/17"

var machine = oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: "example-project", InstanceID: 4711, InstanceName: "vm-1"}

// lab is a cloud, a token of it, and both verifiers.
type lab struct {
	cloud  *cloudtest.GCE
	token  string
	google *idtoken.Validator
	trust  gce.KindConfig
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{cloud: cloudtest.NewGCE(t)}
	set, err := jws.MarshalJWKS(l.cloud.Keys())
	if err != nil {
		t.Fatal(err)
	}
	// It asks Google for the keys, unless its client knows better.
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Cache-Control": {"max-age=3600"}}, Body: io.NopCloser(bytes.NewReader(set))}, nil
	})}
	if l.google, err = idtoken.NewValidator(context.Background(), option.WithHTTPClient(client)); err != nil {
		t.Fatal(err)
	}
	keys, err := jws.NewStaticKeySet(l.cloud.Keys()...)
	if err != nil {
		t.Fatal(err)
	}
	l.trust = gce.KindConfig{Keys: keys, Projects: []string{machine.ProjectID}}
	if l.token, err = l.cloud.Token(machine, audience); err != nil {
		t.Fatal(err)
	}
	return l
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestIDToken: the checks of a token by Google's own package, and the checks that it leaves to its user.
func TestIDToken(t *testing.T) {
	l := newLab(t)
	parsed, err := jws.Parse(l.token)
	if err != nil {
		t.Fatal(err)
	}
	replaced := func(old, new string) string {
		token, err := l.cloud.Sign(bytes.Replace(parsed.UnverifiedPayload(), []byte(old), []byte(new), 1))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for name, c := range map[string]struct {
		token, audience string
		google, ours    bool
	}{
		"as it is":            {l.token, audience, true, true},
		"another audience":    {l.token, audience + "8", false, false},
		"every audience":      {l.token, "", true, false},
		"another issuer":      {replaced("https://accounts.google.com", "https://accounts.example.com"), audience, true, false},
		"no machine":          {replaced(`"compute_engine"`, `"organization"`), audience, true, false},
		"another signature":   {l.token[:len(l.token)-10] + "AAAAAAAAAA", audience, false, false},
		"an unsigned payload": {l.token[:bytes.LastIndexByte([]byte(l.token), '.')+1], audience, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, googles := l.google.Validate(t.Context(), c.token, c.audience)
			_, ours := gce.VerifyToken(t.Context(), c.token, c.audience, l.trust, time.Now())
			if (googles == nil) != c.google || (ours == nil) != c.ours {
				t.Errorf("Google's: %v; ours: %v", googles, ours)
			}
		})
	}
}

// bare are the steps that no reader can omit: base64, JSON and the signature.
func (l *lab) bare() error {
	token := []byte(l.token)
	end := bytes.LastIndexByte(token, '.')
	head, body, _ := bytes.Cut(token[:end], []byte{'.'})
	for _, part := range [][]byte{head, body} {
		data, err := base64.RawURLEncoding.AppendDecode(nil, part)
		if err != nil {
			return err
		}
		var v struct {
			Alg, Kid, Typ, Aud, Iss, Sub, Azp string
			Iat, Exp                          int64
			Google                            struct {
				Engine struct {
					ID      string `json:"instance_id"`
					Name    string `json:"instance_name"`
					Project string `json:"project_id"`
					Number  uint64 `json:"project_number"`
					Zone    string
				} `json:"compute_engine"`
			}
		}
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
	}
	signature, err := base64.RawURLEncoding.AppendDecode(nil, token[end+1:])
	if err != nil {
		return err
	}
	key, ok := l.cloud.Keys()[0].Public().(*rsa.PublicKey)
	if !ok {
		return errors.New("no RSA key")
	}
	digest := sha256.Sum256(token[:end])
	return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], signature)
}

// BenchmarkGCE verifies one token: bare, with this SDK, and with Google's package.
func BenchmarkGCE(b *testing.B) {
	l := newLab(b)
	ctx := context.Background()
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"bare", l.bare},
		{"nodeattest", func() error {
			_, err := gce.VerifyToken(ctx, l.token, audience, l.trust, time.Now())
			return err
		}},
		{"idtoken", func() error {
			_, err := l.google.Validate(ctx, l.token, audience)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
