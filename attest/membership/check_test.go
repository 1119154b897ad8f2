package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/authorizer"
	"github.com/nodeattest/nodeattest/refusal"
)

type embedsFirstUse struct{ *FirstUse }

// What an operator could have left out or misconfigured is an error when the verifier is
// made.
func TestCheckAuthorizer(t *testing.T) {
	f := newFirstUse(t, Scope{}).FirstUse
	ofEKs := newFirstUse(t, Scope{Road: attest.RoadEK, IdentityClass: "P-256"}).FirstUse
	list := func(text string) *StaticList {
		l, err := ParseStaticList([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ak, ek, bothRoads := ofTPM("", attest.RoadAK), ofTPM("", attest.RoadEK), ofTPM("", attest.RoadAK, attest.RoadEK)
	many := ofTPM("an issuer that promises nothing", attest.RoadAK)
	clouds := []attest.OpenRoad{{Provider: "gce", Road: attest.RoadDocument}}
	func_ := attest.AuthorizerFunc(func(context.Context, *attest.Result) (*attest.Authorization, error) { return nil, nil })
	for _, c := range []struct {
		name  string
		a     attest.Authorizer
		roads []attest.OpenRoad
		want  string // part of the error that is not a check; "" for none, "scope" for CheckRegistryScope
	}{
		{"nil", nil, ek, "no Authorizer"},
		{"nil function", attest.AuthorizerFunc(nil), ek, "no Authorizer"},
		{"nil first use", (*FirstUse)(nil), ek, "no Authorizer"},
		{"zero first use", &FirstUse{}, ek, errNotMade.Error()},
		{"embeds nil", embedsFirstUse{}, ek, errNotMade.Error()},
		{"embeds zero", embedsFirstUse{&FirstUse{}}, ek, errNotMade.Error()},
		{"nil list", (*StaticList)(nil), ek, "no Authorizer"},
		{"zero list", &StaticList{}, ek, errNoList.Error()},
		{"nil first of both", Both(nil, func_), ek, "first of both"},
		{"nil second of both", Both(func_, (*FirstUse)(nil)), ek, "second of both"},
		{"zero deep in both", Both(func_, Both(func_, &FirstUse{})), ek, errNotMade.Error()},
		{"zero list in both", Both(&StaticList{}, func_), ek, errNoList.Error()},

		{"function", func_, ek, ""},
		{"empty list", list(""), ek, ""},
		{"list of EKs", list("ek:sha256:" + testDigest + " n\n"), ek, ""},
		{"list of EKs, other road", list("ek:sha256:" + testDigest + " n\n"), ak, "no member is of a road"},
		{"list of others", list("gce:p/1 n\n"), ak, ""},
		{"list of others, other road", list("gce:p/1 n\n"), ek, "no member is of a road"},
		{"list with one that can be found", list("gce:p/1 n\nek:sha256:" + testDigest + " m\n"), ek, ""},

		{"first use", f, ak, ""},
		{"first use, both roads", f, bothRoads, ""},
		{"first use, an issuer promises nothing", f, many, "scope"},
		{"first use, another kind on the road", f, []attest.OpenRoad{{Provider: "other", Road: attest.RoadAK}}, "scope"},
		{"list of a TPM's, only documents open", list("gce:p/1 n\n"), clouds, "no member is of a road"},
		{"list of documents", list("gce:p/1 n provider=gce\n"), clouds, ""},
		{"first use on a closed road", f, ek, "scope"},
		{"first use of EKs", ofEKs, ek, ""},
		{"first use of EKs, both roads", ofEKs, bothRoads, ""},
		{"first use of EKs, the other road's issuer promises nothing", ofEKs, append(many, ek...), ""},
		{"first use of EKs on a closed road", ofEKs, ak, "scope"},
		{"first use in both on a closed road", Both(func_, f), ek, "scope"},
		{"embedded first use on a closed road", embedsFirstUse{f}, ek, "scope"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := authorizer.Check(c.a, c.roads)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v", err)
			case c.want == "scope" && !errors.Is(err, CheckRegistryScope):
				t.Errorf("got %v, want %s", err, CheckRegistryScope)
			case c.want != "" && c.want != "scope" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Where no verifier has asked, what is not made admits nobody and does not panic.
func TestNotMadeAdmitsNobody(t *testing.T) {
	for name, a := range map[string]attest.Authorizer{
		"nil first use": (*FirstUse)(nil), "zero first use": &FirstUse{}, "embeds nil": embedsFirstUse{},
		"nil list": (*StaticList)(nil), "zero list": &StaticList{},
		"both of nil": Both(nil, nil), "both of a nil pointer": Both((*FirstUse)(nil), nil),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := asked(t, a, answerOf(t, "node-1", "gce:p/1")); got != nil || err == nil {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestNewFirstUseNilRegistry(t *testing.T) {
	c := FirstUseConfig{Registry: (*StoreRegistry)(nil), MaxLifetime: time.Hour, NodeExists: func(context.Context, string) (bool, error) { return false, nil }}
	if _, err := NewFirstUse(c); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a nil pointer as a registry: got %v", err)
	}
	for name, store := range map[string]Store{"no store": nil, "nil store": (*memoryStore)(nil)} {
		if _, err := NewRegistry(Scope{}, store, RegistryOptions{}); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// An identity counts on the road on which it is found, and on no other.
func TestStaticListLooksAtTheRoad(t *testing.T) {
	l, err := ParseStaticList([]byte("ek:sha256:" + testDigest + " node-1\ngce:p/1 node-2\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, node string
		machine    attest.Identity
		road       attest.Road
		ok         bool
	}{
		{"EK on its road", "node-1", "ek:sha256:" + testDigest, attest.RoadEK, true},
		{"EK on the other road", "node-1", "ek:sha256:" + testDigest, attest.RoadAK, false},
		{"instance on its road", "node-2", "gce:p/1", attest.RoadAK, true},
		{"instance on the other road", "node-2", "gce:p/1", attest.RoadEK, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := answerOf(t, c.node, c.machine)
			r.Road = c.road
			if _, err := asked(t, l, r); (err == nil) != c.ok || err != nil && !errors.Is(err, attest.CheckMembership) {
				t.Errorf("got %v, want admitted %t", err, c.ok)
			}
		})
	}
}

// ofTPM is the roads of a TPM's kind; why says why machines may have several identities on
// the first.
func ofTPM(why string, roads ...attest.Road) []attest.OpenRoad {
	var open []attest.OpenRoad
	for _, r := range roads {
		open = append(open, attest.OpenRoad{Provider: "tpm", Road: r})
	}
	open[0].ManyIdentities = why
	return open
}
