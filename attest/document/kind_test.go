package document_test

import (
	"errors"

	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// Documents that must be refused: forged, stale, or of another machine.
func TestBadDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*join)
		want     attest.Check
		verified bool // the platform's signature was looked at
	}{
		"as it is":           {func(*join) {}, "", true},
		"of another machine": {func(j *join) { j.source.name = "m2" }, attest.CheckMachineClaim, false},
		"a forged signature": {func(j *join) {
			j.source.platform = attesttest.NewPlatform(t)
			j.source.platform.Now = j.platform.Now
		}, refusal.Check("platform-document"), true},
		"no document of the platform's": {func(j *join) { j.source.document = func([]byte) []byte { return []byte("{}x") } }, refusal.Check("platform-document"), false},
		"a document too old": {func(j *join) {
			j.source.platform.Now = func() time.Time { return now.Add(-time.Hour) }
		}, refusal.Check("platform-document"), true},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			c.change(j)
			v := j.verifier(t)
			r, err := v.Verify(t.Context(), j.answer(t, v))
			expect(t, r, err, c.want)
			if got := j.platform.verified == 1; got != c.verified {
				t.Errorf("verified: %t", got)
			}
			if c.want != "" && len(j.asked) != 0 {
				t.Error("membership was asked about")
			}
		})
	}
}

// A platform that reads one thing and verifies another, or nothing.
func TestBadPlatforms(t *testing.T) {
	says := func(change func(*document.Claims)) func(*document.Claims) (*document.Claims, error) {
		return func(c *document.Claims) (*document.Claims, error) { change(c); return c, nil }
	}
	nothing := func(*document.Claims) (*document.Claims, error) { return nil, nil }
	refuses := func(*document.Claims) (*document.Claims, error) {
		return nil, &attest.Error{Check: "platform-document"}
	}
	machine := func(id attest.Identity) func(*document.Claims) (*document.Claims, error) {
		return says(func(c *document.Claims) { c.Machine = id })
	}
	value := says(func(c *document.Claims) { c.Value = make([]byte, len(c.Value)) })
	prefix := says(func(c *document.Claims) { c.Value = c.Value[:16] })
	for name, c := range map[string]struct {
		read, verify func(*document.Claims) (*document.Claims, error)
		want         attest.Check
	}{
		"reads nothing":                     {nothing, nil, attest.CheckKind},
		"verifies nothing":                  {nil, nothing, attest.CheckKind},
		"reads no":                          {refuses, nil, refusal.Check("platform-document")},
		"verifies no":                       {nil, refuses, refusal.Check("platform-document")},
		"reads another machine":             {machine("platform:m2"), nil, attest.CheckMachineClaim},
		"verifies another machine":          {nil, machine("platform:m2"), attest.CheckMachineClaim},
		"verifies no machine":               {nil, machine(""), attest.CheckIdentity},
		"verifies a malformed identity":     {nil, machine("m1"), attest.CheckIdentity},
		"verifies another kind of identity": {nil, machine("ek:m1"), attest.CheckKind},
		"reads another value":               {value, nil, attest.CheckQualifyingData},
		"verifies another value":            {nil, value, attest.CheckQualifyingData},
		"reads a prefix":                    {prefix, nil, attest.CheckQualifyingData},
		"verifies a prefix":                 {nil, prefix, attest.CheckQualifyingData},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			j.platform.read, j.platform.verify = c.read, c.verify
			v := j.verifier(t)
			r, err := v.Verify(t.Context(), j.answer(t, v))
			expect(t, r, err, c.want)
			if got := j.platform.verified == 1; got != (c.read == nil) {
				t.Errorf("verified: %t", got)
			}
		})
	}
	t.Run("says too much", func(t *testing.T) {
		j := newJoin(t)
		j.platform.verify = says(func(c *document.Claims) {
			c.Facts = []attest.Fact{{Standing: attest.Proven, Name: "region", Value: "eu"}, {Standing: attest.Vouched, Name: "x", Value: "y"}}
			c.Details = "details"
		})
		v := j.verifier(t)
		r := testkit.Must(v.Verify(t.Context(), j.answer(t, v)))
		if f := r.Facts(); f[1].Standing != attest.Asserted || f[2].Standing != "" || r.Details != "details" {
			t.Errorf("%v, details %v", f, r.Details)
		}
	})
}

// An answer is good for one cluster, request, requester, lifetime and key ring.
func TestAnswersElsewhere(t *testing.T) {
	other := func(t *testing.T, of *join, change func(*join)) *attest.Verifier {
		j := newJoin(t)
		j.kind, j.config.KeyRing = of.kind, of.config.KeyRing
		change(j)
		return j.verifier(t)
	}
	otherSigner := testkit.Must(csr.PurposeClient.SignerName("platform-b"))
	for name, c := range map[string]struct {
		plane   func(*join)
		request func(t *testing.T, j *join, r *csr.Request)
		want    attest.Check
	}{
		"where it belongs":  {func(*join) {}, nil, ""},
		"another cluster":   {func(j *join) { j.config.Policy.ClusterIDs = []string{"cluster-2"} }, nil, attest.CheckBindingCluster},
		"another requester": {func(*join) {}, func(_ *testing.T, _ *join, r *csr.Request) { r.User.Username = csr.BootstrapUserPrefix + "mallor" }, attest.CheckBindingRequester},
		"another lifetime":  {func(*join) {}, func(_ *testing.T, _ *join, r *csr.Request) { r.Spec.ExpirationSeconds = nil }, attest.CheckBindingExpiration},
		"another request":   {func(*join) {}, graft("node-1"), attest.CheckBindingRequest},
		"another node":      {func(*join) {}, graft("node-2"), attest.CheckBindingRequest},
		"another ring":      {func(j *join) { j.config.KeyRing = newJoinRing(t) }, nil, refusal.Check("ring-key")},
		"another kind": {func(j *join) { j.kind.Provider, j.config.Policy.SignerNames = "platform-b", []string{otherSigner} },
			func(_ *testing.T, _ *join, r *csr.Request) { r.Spec.SignerName = otherSigner }, csr.CheckAttestationProvider},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(t)
			answer := j.answer(t, j.verifier(t))
			if c.request != nil {
				c.request(t, j, answer)
			}
			v := other(t, j, c.plane)
			r, err := v.Verify(t.Context(), answer)
			expect(t, r, err, c.want)
		})
	}
}

// A key that must live in a TPM is never shown by a document: the hello is refused.
func TestRequiredResidence(t *testing.T) {
	j := newJoin(t)
	j.config.RequireTPMResident = true
	_, err := j.challenge(t, j.verifier(t))
	expect(t, nil, err, refusal.Check("key-not-resident"))

	j = newJoin(t)
	answer := j.answer(t, j.verifier(t))
	j.config.RequireTPMResident = true
	r, err := j.verifier(t).Verify(t.Context(), answer)
	expect(t, r, err, refusal.Check("key-not-resident"))
}

// A machine that is not a member is challenged, since a hello only claims an identity, and refused at
// the answer.
func TestMembership(t *testing.T) {
	j := newJoin(t)
	j.refuse = true
	v := j.verifier(t)
	answer := j.answer(t, v)
	if len(j.asked) != 0 {
		t.Errorf("membership was asked about at %v", j.asked)
	}
	r, err := v.Verify(t.Context(), answer)
	expect(t, r, err, attest.CheckMembership)
}

// A node whose hello was refused or for another cluster gets no challenge.
func TestHellosElsewhere(t *testing.T) {
	j := newJoin(t)
	j.subject.ClusterID = "cluster-2"
	_, err := j.challenge(t, j.verifier(t))
	expect(t, nil, err, attest.CheckBindingCluster)
	j = newJoin(t)
	j.source.identity = "ek:m1" // of no kind that its documents name machines by
	_, err = j.challenge(t, j.verifier(t))
	expect(t, nil, err, attest.CheckIdentity) // a stranger's claim, so refused for good
}

func TestNewKind(t *testing.T) {
	without := newJoin(t).kind
	without.Platform = nil
	if k, err := document.NewKind(without); !errors.Is(err, refusal.CheckConfig) || k != nil {
		t.Errorf("no platform: got %v, %v", k, err)
	}
	for name, c := range map[string]struct {
		change func(*document.KindConfig)
		good   bool
	}{
		"as it is":           {func(*document.KindConfig) {}, true},
		"no provider":        {func(c *document.KindConfig) { c.Provider = "" }, false},
		"a provider, dotted": {func(c *document.KindConfig) { c.Provider = "a.b" }, false},
		"insecure":           {func(c *document.KindConfig) { c.Provider = "insecure" }, false},
		"no identities":      {func(c *document.KindConfig) { c.Identities = nil }, false},
		"versions":           {func(c *document.KindConfig) { c.Versions = []int{1, 2} }, true},
		"no versions at all": {func(c *document.KindConfig) { c.Versions = []int{} }, false},
		"version 0":          {func(c *document.KindConfig) { c.Versions = []int{0} }, false},
		"no size":            {func(c *document.KindConfig) { c.ValueSize = 0 }, false},
		"15 bytes":           {func(c *document.KindConfig) { c.ValueSize = 15 }, false},
		"16 bytes":           {func(c *document.KindConfig) { c.ValueSize = 16 }, true},
		"33 bytes":           {func(c *document.KindConfig) { c.ValueSize = 33 }, false},
	} {
		t.Run("verifier, "+name, func(t *testing.T) {
			j := newJoin(t)
			c.change(&j.kind)
			k := testkit.Must(document.NewKind(j.kind))
			j.config.Kinds = []attest.Kind{k}
			if v, err := attest.NewVerifier(j.config); (err == nil) != c.good || (v != nil) != c.good || !c.good && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
}
