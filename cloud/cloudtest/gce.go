package cloudtest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
)

// GCE is a fake Google Compute Engine for tests: it signs identity tokens of machines. It is
// safe for concurrent use.
type GCE struct {
	// Now is the clock of the tokens; nil means time.Now.
	Now func() time.Time

	signer *jws.CryptoSigner
}

// NewGCE makes a cloud with a key of its own.
func NewGCE(t testing.TB) *GCE {
	t.Helper()
	cloud, err := OpenGCE()
	return opened(t, cloud, err)
}

// opened returns a cloud that was opened for a test.
func opened[T any](t testing.TB, cloud T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatalf("cloudtest: %v", err)
	}
	return cloud
}

// OpenGCE is [NewGCE] for use outside tests.
func OpenGCE() (*GCE, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(key.N.Bytes())
	signer, err := jws.NewSigner(key, jws.SignerOptions{KeyID: hex.EncodeToString(id[:20]), Type: jws.TypeJWT})
	return &GCE{signer: signer}, err
}

// Keys are the keys for verifying tokens: one RSA-2048 key, whose ID has 40 hexadecimal
// digits. [jws.MarshalJWKS] turns them into what Google serves.
func (g *GCE) Keys() []*jws.Key { return []*jws.Key{g.signer.Key()} }

// gceClaims are the claims of a token with format=full, in Google's order.
type gceClaims struct {
	Audience string     `json:"aud"`
	Party    string     `json:"azp"`
	Email    string     `json:"email"`
	Verified bool       `json:"email_verified"`
	Expires  int64      `json:"exp"`
	Google   *gceGoogle `json:"google,omitempty"`
	IssuedAt int64      `json:"iat"`
	Issuer   string     `json:"iss"`
	Subject  string     `json:"sub"`
}

type gceGoogle struct {
	Engine gceEngine `json:"compute_engine"`
}

type gceEngine struct {
	Created       int64  `json:"instance_creation_timestamp"`
	InstanceID    string `json:"instance_id"`
	InstanceName  string `json:"instance_name"`
	ProjectID     string `json:"project_id"`
	ProjectNumber uint64 `json:"project_number"`
	Zone          string `json:"zone"`
}

// Token is the identity token of a machine for an audience, as the metadata server returns it
// with format=full. An attacker on that machine gets the same. It is good for an hour.
func (g *GCE) Token(m oid.GCEInstance, audience string) (string, error) {
	return g.token(m, audience, true)
}

func (g *GCE) token(m oid.GCEInstance, audience string, full bool) (string, error) {
	now := clock(g.Now)
	c := gceClaims{Audience: audience, Party: "104718209461873290581", Verified: true, IssuedAt: now.Unix(), Expires: now.Add(time.Hour).Unix(),
		Issuer: "https://accounts.google.com", Subject: "104718209461873290581",
		Email: strconv.FormatUint(m.ProjectNumber, 10) + "-compute@developer.gserviceaccount.com"}
	if full {
		c.Google = &gceGoogle{gceEngine{Created: now.Add(-24 * time.Hour).Unix(), InstanceID: strconv.FormatUint(m.InstanceID, 10), InstanceName: m.InstanceName,
			ProjectID: m.ProjectID, ProjectNumber: m.ProjectNumber, Zone: m.Zone}}
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	return g.Sign(payload)
}

// Sign signs any payload with Google's key, which no customer can make it do.
func (g *GCE) Sign(payload []byte) (string, error) {
	s, err := g.signer.Sign(context.Background(), payload)
	if err != nil {
		return "", err
	}
	return s.Token(payload), nil
}

func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// Serve starts the metadata server of a machine. It serves the machine's identity tokens,
// instance/id, instance/name, instance/zone, project/project-id and
// project/numeric-project-id.
func (g *GCE) Serve(m oid.GCEInstance) *Server {
	const root = "/computeMetadata/v1/"
	mux := http.NewServeMux()
	number := strconv.FormatUint(m.ProjectNumber, 10)
	for path, text := range map[string]string{
		"instance/id": strconv.FormatUint(m.InstanceID, 10), "instance/name": m.InstanceName,
		"instance/zone":      "projects/" + number + "/zones/" + m.Zone,
		"project/project-id": m.ProjectID, "project/numeric-project-id": number,
	} {
		mux.HandleFunc("GET "+root+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	mux.HandleFunc("GET "+root+"instance/service-accounts/default/identity", func(w http.ResponseWriter, r *http.Request) {
		audience := r.URL.Query().Get("audience")
		if audience == "" {
			http.Error(w, "non-empty audience parameter required", http.StatusBadRequest)
			return
		}
		token, err := g.token(m, audience, r.URL.Query().Get("format") == "full")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(token))
	})
	return serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			http.Error(w, "missing Metadata-Flavor:Google header", http.StatusForbidden)
			return
		}
		w.Header().Set("Metadata-Flavor", "Google")
		w.Header().Set("Content-Type", "text/html")
		mux.ServeHTTP(w, r)
	}))
}
