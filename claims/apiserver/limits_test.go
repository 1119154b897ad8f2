package apiserver

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestIssuerAsksForWhatItNeeds: a request that is refused by itself is refused before a getter is
// asked, as in kube-apiserver, and a pod without a node has none that is asked for.
func TestIssuerAsksForWhatItNeeds(t *testing.T) {
	short := int64(1)
	pod := &BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}
	for name, tt := range map[string]struct {
		request TokenRequest
		change  func(o *worldObjects)
		asked   []string
	}{
		"no name":            {TokenRequest{Namespace: "ns", BoundObject: pod}, nil, nil},
		"no namespace":       {TokenRequest{Name: "app", BoundObject: pod}, nil, nil},
		"another name":       {TokenRequest{Namespace: "ns", Name: "app", MetadataName: "x", BoundObject: pod}, nil, nil},
		"another account":    {TokenRequest{Namespace: "ns", Name: "app", UID: "x", BoundObject: pod}, nil, []string{"serviceaccounts"}},
		"a short lifetime":   {TokenRequest{Namespace: "ns", Name: "app", ExpirationSeconds: &short, BoundObject: pod}, nil, []string{"serviceaccounts"}},
		"a pod of others":    {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, func(o *worldObjects) { o.pod.ServiceAccountName = "x" }, []string{"serviceaccounts", "pods"}},
		"a pod nowhere":      {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, func(o *worldObjects) { o.pod.NodeName = "" }, []string{"serviceaccounts", "pods"}},
		"a pod on its node":  {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, nil, []string{"serviceaccounts", "pods", "nodes"}},
		"a kind of no token": {TokenRequest{Namespace: "ns", Name: "app", BoundObject: &BoundObjectReference{Kind: "Job"}}, nil, []string{"serviceaccounts"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tt.change != nil {
				tt.change(w.objects)
			}
			issuer := newIssuer(t, IssuerConfig{Issuer: worldIssuer, APIAudiences: []string{worldIssuer}, Signer: w.signer, Objects: w.objects, Now: w.clock})
			_, _ = issuer.Issue(t.Context(), &tt.request)
			if !slices.Equal(w.objects.asked, tt.asked) {
				t.Errorf("asked for %q, want %q", w.objects.asked, tt.asked)
			}
		})
	}
}

func TestIssuerLimits(t *testing.T) {
	const least, most = 600 * time.Second, 1 << 32 * time.Second
	for name, tt := range map[string]struct {
		lifetime time.Duration
		good     bool
	}{"the least": {least, true}, "less": {least - 1, false}, "the most": {most, true}, "more": {most + 1, false}, "negative": {-1, false}} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []IssuerConfig{{MaxLifetime: tt.lifetime}, {MaxExtendedLifetime: tt.lifetime}} {
				c.Issuer, c.APIAudiences, c.Signer, c.Objects = "https://h", []string{"api"}, newECDSA(t), &claims.MemoryObjects{}
				if _, err := NewIssuer(c); (err == nil) != tt.good || !tt.good && !errors.Is(err, refusal.CheckConfig) {
					t.Errorf("%+v: %v", c, err)
				}
			}
		})
	}
}

// TestValidatorTwoIssuers: kube-apiserver looks at the last "iss" in any case first, and
// at the one that is spelled so when it has verified the signature. A token that shows each
// of them another issuer is refused by the second look.
func TestValidatorTwoIssuers(t *testing.T) {
	w := newWorld(t)
	two := strings.Replace(string(w.payload(t)), `"iss":"`+worldIssuer+`"`, `"iss":"https://other.example","ISS":"`+worldIssuer+`"`, 1)
	_, err := w.kubernetes(t).Validate(t.Context(), w.sign(t, []byte(two)))
	wantReason(t, err, claims.CheckIssuer)
}

func wantReason(t testing.TB, err error, want refusal.Check) {
	t.Helper()
	e, ok := errors.AsType[*ReviewError](err)
	if !ok || e.Reason == nil || e.Reason.Check != want {
		t.Errorf("got %v, want the check %s", err, string(want))
	}
}
