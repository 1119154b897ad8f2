package gce_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
)

var cases vectors.Cases

// unsignedPart is the name of a published vector.
const unsignedPart = "an unsigned part beside"

// environment is what all vectors have in common: with this trust, at this time, and for
// this audience a token is verified.
type environment struct {
	Time     time.Time       `json:"time"`
	Audience string          `json:"audience"`
	Projects []string        `json:"projects"`
	Keys     json.RawMessage `json:"keys"` // a JWK set
}

func TestMain(m *testing.M) {
	os.Exit(cases.Main(m, filepath.Join("..", "..", "vectors", "cloud", "gce"), func() (any, error) {
		cloud, err := openGoogle()
		if err != nil {
			return nil, err
		}
		other, err := openES256()
		if err != nil {
			return nil, err
		}
		keys, err := jws.MarshalJWKS(append(cloud.Keys(), other.Key()))
		return environment{now, audience, []string{"other-project", project}, keys}, err
	}))
}

// openES256 is another key that the control plane trusts, of another algorithm.
var openES256 = sync.OnceValues(func() (*jws.CryptoSigner, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return jws.NewSigner(key, jws.SignerOptions{KeyID: "es", Type: jws.TypeJWT})
})

// keep makes a vector of a token.
func keep(t *testing.T, name, token string, want attest.Check) {
	t.Helper()
	v := vectors.Vector{Name: name, Expect: string(want), Document: []byte(token)}
	if want == "" {
		v.Machine = "gce:example-project/4711000000000000001"
	}
	cases.Add(v)
}

// loadVectors reads the vectors that are kept.
func loadVectors(t *testing.T) (list []vectors.Vector, e environment, keys []*jws.Key) {
	t.Helper()
	list = testkit.Must(vectors.Load(testkit.VectorFolder(t, "cloud", "gce"), &e))
	keys = testkit.Must(jws.ParseJWKS(e.Keys))
	return list, e, keys
}

// TestVectors replays the vectors that are kept.
func TestVectors(t *testing.T) {
	list, e, keys := loadVectors(t)
	c := gce.KindConfig{Keys: keySet(t, keys...), Projects: e.Projects}
	for _, v := range list {
		t.Run(v.Name, func(t *testing.T) {
			d, err := gce.VerifyToken(t.Context(), string(v.Document), e.Audience, c, e.Time)
			expect(t, d, err, attest.Check(v.Expect))
			if err == nil && string(d.Machine()) != v.Machine {
				t.Errorf("got %s, want %s", d.Machine(), v.Machine)
			}
		})
	}
}
