package membership

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

type embedsFirstUse struct{ *FirstUse }

// A missing or wrong configuration is an error when the verifier is made.
func TestCheckAuthorizer(t *testing.T) {
	f := newFirstUse(t, Scope{}).FirstUse
	ofEKs := newFirstUse(t, Scope{Road: attest.RoadEK, IdentityClass: "P-256"}).FirstUse
	registry := testkit.Must(NewMemoryRegistry(Scope{Cluster: "cluster-2"}, RegistryOptions{}))
	c := f.c
	c.Registry = registry
	another := testkit.Must(NewFirstUse(c))
	list := func(text string) *StaticList {
		l := testkit.Must(ParseStaticList([]byte(text)))
		return l
	}
	ak, ek, bothRoads := ofTPM("", attest.RoadAK), ofTPM("", attest.RoadEK), ofTPM("", attest.RoadAK, attest.RoadEK)
	many := ofTPM("an issuer that promises nothing", attest.RoadAK)
	clouds := []attest.OpenRoad{{Provider: "gce", Road: attest.RoadDocument, Identities: []attest.Grammar{{Kind: "gce"}}}}
	func_ := attest.AuthorizerFunc(func(context.Context, *attest.Result) (*attest.Authorization, error) { return nil, nil })
	inventory := func(context.Context, csr.Question) (*csr.Machine, error) { return nil, csr.ErrNoMachine }
	for _, c := range []struct {
		name  string
		a     attest.Authorizer
		roads []attest.OpenRoad
		want  string // part of the error that is not a check; "" for none, "scope" for CheckRegistryScope
	}{
		{"nil", nil, ek, "no Authorizer"},
		{"nil first use", (*FirstUse)(nil), ek, errNotMade.Error()},
		{"zero first use", &FirstUse{}, ek, errNotMade.Error()},
		{"embeds nil", embedsFirstUse{}, ek, errNotMade.Error()},
		{"embeds zero", embedsFirstUse{&FirstUse{}}, ek, errNotMade.Error()},
		{"nil list", (*StaticList)(nil), ek, errNoList.Error()},
		{"zero list", &StaticList{}, ek, errNoList.Error()},
		{"nil first of both", Both(nil, func_), ek, "first of both"},
		{"nil second of both", Both(func_, (*FirstUse)(nil)), ek, "second of both"},
		{"zero deep in both", Both(func_, Both(func_, &FirstUse{})), ek, errNotMade.Error()},
		{"zero list in both", Both(&StaticList{}, func_), ek, errNoList.Error()},

		{"function", func_, ek, ""},
		{"empty list", list(""), ek, ""},
		{"list of EKs", list("ek:sha256:" + testDigest + " n\n"), ek, ""},
		{"list of EKs, other road", list("ek:sha256:" + testDigest + " n\n"), ak, "member 1, node n: got evidence of tpm, which is not open for ek:"},
		{"list of others", list("gce:p/1 n\n"), ak, ""},
		{"list of others, other road", list("gce:p/1 n\n"), ek, "member 1, node n: got evidence of tpm, which is not open for gce:p/1"},
		{"list with one that cannot be found", list("ek:sha256:" + testDigest + " m\ngce:p/1 n\n"), ek, "member 2, node n: "},
		{"list with all that can be found", list("ek:sha256:" + testDigest + " m\ngce:p/1 n\n"), bothRoads, ""},

		{"first use", f, ak, ""},
		{"first use, both roads", f, bothRoads, ""},
		{"first use, an issuer promises nothing", f, many, "scope"},
		{"first use, another kind on the road", f, []attest.OpenRoad{{Provider: "other", Road: attest.RoadAK}}, "scope"},
		{"list of a TPM's, only documents open", list("gce:p/1 n\n"), clouds, "got evidence of tpm, which is not open"},
		{"list of documents", list("gce:p/1 n provider=gce\n"), clouds, ""},
		{"first use on a closed road", f, ek, "scope"},
		{"first use of EKs", ofEKs, ek, ""},
		{"first use of EKs, both roads", ofEKs, bothRoads, ""},
		{"first use of EKs, the other road's issuer promises nothing", ofEKs, append(many, ek...), ""},
		{"first use of EKs on a closed road", ofEKs, ak, "scope"},
		{"first use in both on a closed road", Both(func_, f), ek, "scope"},
		{"embedded first use on a closed road", embedsFirstUse{f}, ek, "scope"},
		{"first use of another cluster", another, ak, "scope"},
		{"first use of another cluster, in both", Both(func_, another), ak, "scope"},

		{"list with an inventory", With(inventory, list("gce:p/1 n\n")), ak, ""},
		{"list with an inventory, other road", With(inventory, list("gce:p/1 n\n")), ek, "not open"},
		{"no inventory", With(nil, func_), ak, "no inventory"},
		{"nil after an inventory", With(inventory, nil), ak, "no Authorizer"},
		{"zero first use after an inventory", With(inventory, &FirstUse{}), ak, errNotMade.Error()},
		{"Members that are nil", Members(nil), ak, "no Authorizer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := attest.CheckAuthorizer(c.a, attest.Opening{ClusterIDs: []string{"another name", testCluster}, Roads: c.roads})
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

// Without CheckAuthorizer, an authorizer that no constructor made admits no machine and does not panic.
func TestNotMadeAdmitsNobody(t *testing.T) {
	for name, a := range map[string]attest.Authorizer{
		"nil first use": (*FirstUse)(nil), "zero first use": &FirstUse{}, "embeds nil": embedsFirstUse{},
		"nil list": (*StaticList)(nil), "zero list": &StaticList{},
		"both of a nil pointer": Both((*FirstUse)(nil), nil), "an inventory with a nil pointer": With(nil, (*FirstUse)(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := asked(t, a, answerOf(t, "node-1", "gce:p/1")); got != nil || err == nil {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// ofTPM is the roads of a TPM's kind; why says why machines may have several identities on
// the first.
func ofTPM(why string, roads ...attest.Road) []attest.OpenRoad {
	var open []attest.OpenRoad
	for _, r := range roads {
		open = append(open, attest.OpenRoad{Provider: "tpm", Road: r, Identities: []attest.Grammar{{Kind: "gce"}}})
		if r == attest.RoadEK {
			open[len(open)-1].Identities = []attest.Grammar{{Kind: "ek"}}
		}
	}
	open[0].ManyIdentities = why
	return open
}
