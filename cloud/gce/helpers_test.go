package gce_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
)

// now is the time of most tests.
var now = time.Unix(1_800_000_000, 0).UTC()

// project is the one whose machines may join.
const project = "example-project"

func instance(n uint64) oid.GCEInstance {
	return oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: project,
		InstanceID: 4711000000000000000 + n, InstanceName: "vm-" + string(rune('0'+n))}
}

var openGoogle = sync.OnceValues(cloudtest.OpenGCE) // it takes a key, which takes time

// google is a cloud whose clock stands at now, the same for all tests.
func google(t testing.TB) *cloudtest.GCE {
	t.Helper()
	shared := testkit.Must(openGoogle())
	cloud := *shared
	cloud.Now = func() time.Time { return now }
	return &cloud
}

func keySet(t testing.TB, keys ...*jws.Key) *jws.StaticKeySet {
	t.Helper()
	return testkit.Must(jws.NewStaticKeySet(keys...))
}

// trust is a configuration that trusts a cloud.
func trust(t testing.TB, cloud *cloudtest.GCE) gce.KindConfig {
	t.Helper()
	return gce.KindConfig{Keys: keySet(t, cloud.Keys()...), Projects: []string{"other-project", project}}
}

// payload has a token's claims, to be changed.
func payload(t testing.TB, token string) map[string]any {
	t.Helper()
	parsed := testkit.Must(jws.Parse(token))
	var claims map[string]any
	if err := json.Unmarshal(parsed.UnverifiedPayload(), &claims); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"exp", "iat"} { // as float64 they would be written with an exponent
		claims[name] = int64(claims[name].(float64))
	}
	engine := claims["google"].(map[string]any)["compute_engine"].(map[string]any)
	for _, name := range []string{"instance_creation_timestamp", "project_number"} {
		engine[name] = int64(engine[name].(float64))
	}
	return claims
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	return testkit.Must(json.Marshal(v))
}

func audienceOf(value []byte) string {
	return "nodeattest:" + base64.RawURLEncoding.EncodeToString(value)
}

var httpClient = &http.Client{Timeout: 10 * time.Second}
