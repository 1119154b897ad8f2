package apiserver

import (
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// A recordedDecoding is the result of kube-apiserver's decoder for a payload: an error,
// or public and private claims.
type recordedDecoding struct {
	Payload []byte `json:"payload"`
	Error   string `json:"error"`
	Public  struct {
		Issuer    string   `json:"iss"`
		Subject   string   `json:"sub"`
		ID        string   `json:"jti"`
		Audiences []string `json:"aud"`
		Expiry    *int64   `json:"exp"`
		NotBefore *int64   `json:"nbf"`
		IssuedAt  *int64   `json:"iat"`
	} `json:"public"`
	Private struct {
		Kubernetes struct {
			Namespace      string      `json:"namespace"`
			ServiceAccount claims.Ref  `json:"serviceaccount"`
			Pod            *claims.Ref `json:"pod"`
			Secret         *claims.Ref `json:"secret"`
			Node           *claims.Ref `json:"node"`
			WarnAfter      *int64      `json:"warnafter"`
		} `json:"kubernetes.io"`
	} `json:"private"`
}

func recordedDecodings(t testing.TB) []recordedDecoding {
	var cases []recordedDecoding
	recording(t, "decoded.json", &cases)
	if len(cases) < 50 {
		t.Fatalf("%d decodings", len(cases))
	}
	return cases
}

func TestParseClaimsLikeKubernetes(t *testing.T) {
	for _, r := range recordedDecodings(t) {
		if r.Public.Expiry != nil && *r.Public.Expiry == -1<<63 && runtime.GOARCH != "amd64" {
			continue // a conversion that is not the same on every platform
		}
		c, _, err := parseClaims(r.Payload, Kubernetes137)
		if r.Error != "" {
			if c != nil || !errors.Is(err, claims.CheckEncoding) && !errors.Is(err, claims.CheckType) {
				t.Errorf("%s: got %+v, %v, want an error like %q", r.Payload, c, err, r.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", r.Payload, err)
			continue
		}
		r.compare(t, c)
		if l, err := parseLenient(r.Payload, Kubernetes137); err != nil {
			t.Errorf("%s: %v", r.Payload, err)
		} else {
			r.compare(t, l)
		}
	}
}

func (r *recordedDecoding) compare(t *testing.T, c *claims.Claims) {
	t.Helper()
	date := func(got claims.NumericDate, want *int64) bool {
		return got.Present == (want != nil) && (want == nil || *want == got.Unix)
	}
	ref := func(got, want *claims.Ref) bool {
		return (got == nil) == (want == nil) && (got == nil || *got == *want)
	}
	public, private, k := &r.Public, &r.Private.Kubernetes, &c.Kubernetes
	if c.Issuer != public.Issuer || c.Subject != public.Subject || c.ID != public.ID || !slices.Equal(c.Audiences, public.Audiences) ||
		!date(c.Expiry, public.Expiry) || !date(c.NotBefore, public.NotBefore) || !date(c.IssuedAt, public.IssuedAt) {
		t.Errorf("%s: got %+v, want %+v", r.Payload, c, public)
	}
	if k.Namespace != private.Namespace || k.ServiceAccount != private.ServiceAccount || !ref(k.Pod, private.Pod) ||
		!ref(k.Secret, private.Secret) || !ref(k.Node, private.Node) || !date(k.WarnAfter, private.WarnAfter) {
		t.Errorf("%s: got %+v, want %+v", r.Payload, k, private)
	}
}

func TestParseClaimsSize(t *testing.T) {
	payload := append([]byte(`{}`), make([]byte, claims.MaxClaimsSize)...)
	if _, _, err := parseClaims(payload, Kubernetes137); !errors.Is(err, claims.CheckSize) {
		t.Error(err)
	}
}

// The strict parser refuses these, and the lenient one accepts them.
func TestParseClaimsTakesMore(t *testing.T) {
	for payload, want := range map[string]refusal.Check{
		`{"exp":1.5}`:                  claims.CheckType,
		`{"nbf":null}`:                 claims.CheckType,
		`{"exp":-5}`:                   claims.Check("claims-time"),
		`{"Sub":"x"}`:                  claims.CheckEncoding,
		"{\"sub\":\"\xff\"}":           claims.CheckEncoding,
		`{"kubernetes.io":null}`:       claims.CheckType,
		`{"x":{"a":1,"a":2}}`:          claims.CheckEncoding,
		`{"x":[[[[[[[[]]]]]]]],"X":1}`: claims.CheckEncoding,
	} {
		t.Run(payload, func(t *testing.T) {
			if _, err := claims.Parse([]byte(payload)); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", payload, err, want)
			}
			if _, _, err := parseClaims([]byte(payload), Kubernetes137); err != nil {
				t.Errorf("%s: %v", payload, err)
			}
		})
	}
}

// The claims of a legacy token are no claims of a bound one: kube-apiserver does not look at them.
func TestParseClaimsLegacy(t *testing.T) {
	for _, name := range []string{"namespace", "secret.name", "service-account.name", "service-account.uid"} {
		for _, value := range []string{`"x"`, `5`} {
			payload := []byte(`{"iss":"i","kubernetes.io/serviceaccount/` + name + `":` + value + `}`)
			if c, strict, err := parseClaims(payload, Kubernetes137); err != nil || strict || c.Issuer != "i" {
				t.Errorf("%s: got %+v, %v, %v", payload, c, strict, err)
			}
		}
	}
}

// normal makes no audience one thing.
func normal(c *claims.Claims) claims.Claims {
	n := *c
	if len(n.Audiences) == 0 {
		n.Audiences = nil
	}
	return n
}

// FuzzParseClaims: whatever is taken, encoding/json takes as an object or null; what
// claims.Parse takes, which is less, is the same to this decoder.
func FuzzParseClaims(f *testing.F) {
	for _, r := range recordedDecodings(f) {
		f.Add(r.Payload)
	}
	var payloads []struct {
		Payload []byte `json:"payload"`
	}
	recording(f, "../../testdata/payloads.json", &payloads)
	for _, r := range payloads {
		f.Add(r.Payload)
	}
	f.Add([]byte(`{"iss":"kubernetes/serviceaccount","kubernetes.io/serviceaccount/namespace":"ns"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, _, err := parseClaims(payload, Kubernetes137)
		if strict, strictErr := claims.Parse(payload); strictErr == nil {
			if err != nil || !reflect.DeepEqual(c, strict) {
				t.Fatalf("lenient %+v, %v, strict %+v", c, err, strict)
			}
			if l, err := parseLenient(payload, Kubernetes137); err != nil || !reflect.DeepEqual(normal(l), normal(strict)) {
				t.Fatalf("lenient %+v, %v, strict %+v", l, err, strict)
			}
		} else if err == nil {
			_, _ = c.Marshal()
		}
		if err != nil {
			return
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(payload, &m); err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
		var iss string
		if json.Unmarshal(m["iss"], &iss) == nil && iss != c.Issuer {
			t.Fatalf("iss %q, want %q", c.Issuer, iss)
		}
	})
}
