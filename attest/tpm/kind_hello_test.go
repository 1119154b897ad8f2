package tpm_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// helloParts is a hello taken apart, to be changed and put together again.
type helloParts struct {
	request *csr.Request
	bundle  *csr.Bundle
	att     *message.Bundle
	hello   *message.Hello
	now     time.Time
}

func (p *helloParts) together(t testing.TB) *csr.Request {
	t.Helper()
	var err error
	if len(p.att.Statements) > 0 && p.hello != nil {
		if p.att.Statements[0].Stmt, err = p.hello.Marshal(); err != nil {
			t.Fatal(err)
		}
	}
	if p.bundle.Data != nil {
		if p.bundle.Data, err = p.att.Marshal(); err != nil {
			t.Fatal(err)
		}
	}
	if p.request.Spec.Request, err = p.bundle.Marshal(); err != nil {
		t.Fatal(err)
	}
	return p.request
}

// Every part of a hello is refused with its own check when it is changed.
func TestChangedHello(t *testing.T) {
	s := newStage(t, plainNode)
	created := s.plane.Now().Truncate(time.Second)
	for name, c := range map[string]struct {
		change func(*helloParts)
		want   error
		retry  bool
	}{
		"good":                  {func(*helloParts) {}, nil, false},
		"another signer name":   {func(p *helloParts) { p.request.Spec.SignerName = csr.SignerClientTPM }, refusal.Check("hello-signer"), true},
		"as old as may be":      {func(p *helloParts) { p.now = created.Add(message.MaxHelloAge) }, nil, false},
		"a nanosecond older":    {func(p *helloParts) { p.now = created.Add(message.MaxHelloAge + 1) }, attest.CheckHelloExpired, false},
		"at once":               {func(p *helloParts) { p.now = created }, nil, false},
		"of the future":         {func(p *helloParts) { p.now = created.Add(-1) }, refusal.Check("request-in-the-future"), true},
		"another cluster":       {func(p *helloParts) { p.hello.ClusterID = "other" }, attest.CheckBindingCluster, false},
		"a closed road":         {func(p *helloParts) { p.hello.Road = message.RoadEK }, attest.CheckBindingRoad, false},
		"another provider":      {func(p *helloParts) { p.bundle.Provider = "tpm/v2" }, csr.CheckProviderVersion, false},
		"no evidence":           {func(p *helloParts) { p.bundle.Provider, p.bundle.Data = "", nil }, csr.CheckAttestationProvider, false},
		"two hellos":            {func(p *helloParts) { p.att.Statements = slices.Repeat(p.att.Statements, 2) }, attest.CheckStatements, false},
		"no certificate":        {func(p *helloParts) { p.att.Certificates = nil }, refusal.Check("certificate-missing"), false},
		"another's certificate": {func(p *helloParts) { p.att.Certificates = p.att.Certificates[1:] }, statement.CheckAKMismatch, false},
		"another kind of statement": {func(p *helloParts) {
			p.att.Statements[0].Type = oid.NodeAttestQuote
		}, attest.CheckStatements, false},
		"a malformed hello": {func(p *helloParts) {
			p.hello, p.att.Statements[0].Stmt = nil, []byte{5, 0}
		}, refusal.Check("message-encoding"), false},
		"no AK":           {func(p *helloParts) { p.hello.AKPublic = []byte{0} }, refusal.Check("public-encoding"), false},
		"a key for an AK": {func(p *helloParts) { p.hello.AKPublic = takeApart(t, s.good).certify.Public }, statement.CheckAKMismatch, false},
		"a signer of nothing": {func(p *helloParts) {
			p.hello.TargetSigner = "example.com/other"
		}, csr.CheckSignerName, false},
		"a changed signature of the request": {func(p *helloParts) {
			p.bundle.Request = slices.Clone(p.bundle.Request)
			p.bundle.Request[len(p.bundle.Request)-1] ^= 1
		}, csr.CheckSignature, false},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := s.node.Hello(t.Context(), created)
			testkit.NoError(t, err)
			p := &helloParts{request: request, now: created.Add(time.Second)}
			if p.bundle, err = csr.Parse(request.Spec.Request); err != nil {
				t.Fatal(err)
			}
			if p.att, err = message.ParseBundle(p.bundle.Data); err != nil {
				t.Fatal(err)
			}
			if p.hello, err = message.ParseHello(p.att.Statements[0].Stmt); err != nil {
				t.Fatal(err)
			}
			c.change(p)
			config := s.plane.Config
			config.Now = func() time.Time { return p.now }
			der, err := newVerifier(t, &config).Challenge(t.Context(), p.together(t))
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) || (der == nil) != (c.want != nil) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if errors.Is(err, refusal.ErrRetry) != c.retry {
				t.Errorf("got %v, want it to be tried again: %t", err, c.retry)
			}
		})
	}
}
