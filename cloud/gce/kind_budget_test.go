package gce

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
)

// oneInstance is a cloud, a platform that admits its project, and a good token of an instance.
func oneInstance(t *testing.T) (*cloudtest.GCE, *platform, string) {
	t.Helper()
	cloud := cloudtest.NewGCE(t)
	keys, err := jws.NewStaticKeySet(cloud.Keys()...)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlatform(KindConfig{Keys: keys, Projects: []string{"example-project"}})
	if err != nil {
		t.Fatal(err)
	}
	token, err := cloud.Token(oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: "example-project",
		InstanceID: 4711, InstanceName: "vm-1"}, audiencePrefix+base64.RawURLEncoding.EncodeToString(make([]byte, valueSize)))
	if err != nil {
		t.Fatal(err)
	}
	return cloud, p, token
}

// A verification counts its signature before it checks it, and after all that costs nothing.
func TestBudget(t *testing.T) {
	_, p, token := oneInstance(t)
	for name, c := range map[string]struct {
		token      string
		at         time.Time
		signatures int // that may be checked
		want       attest.Check
		counted    int
	}{
		"as it is":     {token, time.Now(), 1, "", 1},
		"none left":    {token, time.Now(), 0, attest.CheckBudget, 0},
		"no token":     {"x", time.Now(), 1, jws.Check("form"), 0},
		"of yesterday": {token, time.Now().Add(24 * time.Hour), 1, checkExpired, 0},
	} {
		t.Run(name, func(t *testing.T) {
			budget := attest.NewBudget(c.signatures)
			claims, err := p.Verify(context.Background(), []byte(c.token), &attest.Inquiry{Now: c.at, Budget: budget})
			if (claims == nil) != (c.want != "") || c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) || budget.Signatures() != c.counted {
				t.Errorf("%+v, %v, want %q; %d signatures", claims, err, c.want, budget.Signatures())
			}
		})
	}
}
