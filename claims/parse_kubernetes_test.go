package claims

import (
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"testing"
)

// A recordedDecoding is what the decoder of kube-apiserver makes of a payload: an error,
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
			Namespace      string `json:"namespace"`
			ServiceAccount Ref    `json:"serviceaccount"`
			Pod            *Ref   `json:"pod"`
			Secret         *Ref   `json:"secret"`
			Node           *Ref   `json:"node"`
			WarnAfter      *int64 `json:"warnafter"`
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

func TestParseKubernetesLikeKubernetes(t *testing.T) {
	for _, r := range recordedDecodings(t) {
		if r.Public.Expiry != nil && *r.Public.Expiry == -1<<63 && runtime.GOARCH != "amd64" {
			continue // a conversion that is not the same on every platform
		}
		c, err := ParseKubernetes(r.Payload)
		if r.Error != "" {
			if c != nil || !errors.Is(err, CheckEncoding) && !errors.Is(err, CheckType) {
				t.Errorf("%s: got %+v, %v, want an error like %q", r.Payload, c, err, r.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", r.Payload, err)
			continue
		}
		r.compare(t, c)
		if l, err := parseLenient(r.Payload); err != nil {
			t.Errorf("%s: %v", r.Payload, err)
		} else {
			r.compare(t, l)
		}
	}
}

func (r *recordedDecoding) compare(t *testing.T, c *Claims) {
	t.Helper()
	date := func(got NumericDate, want *int64) bool {
		return got.Present == (want != nil) && (want == nil || *want == got.Unix)
	}
	ref := func(got, want *Ref) bool {
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

func TestParseKubernetesSize(t *testing.T) {
	payload := append([]byte(`{}`), make([]byte, MaxClaimsSize)...)
	if _, err := ParseKubernetes(payload); !errors.Is(err, CheckSize) {
		t.Error(err)
	}
}

// What the strict parser refuses and the lenient one takes is what it is there for.
func TestParseKubernetesTakesMore(t *testing.T) {
	for payload, want := range map[string]Check{
		`{"exp":1.5}`:                  CheckType,
		`{"nbf":null}`:                 CheckType,
		`{"exp":-5}`:                   CheckTime,
		`{"Sub":"x"}`:                  CheckEncoding,
		"{\"sub\":\"\xff\"}":           CheckEncoding,
		`{"kubernetes.io":null}`:       CheckType,
		`{"x":{"a":1,"a":2}}`:          CheckEncoding,
		`{"x":[[[[[[[[]]]]]]]],"X":1}`: CheckEncoding,
	} {
		if _, err := Parse([]byte(payload)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", payload, err, want)
		}
		if _, err := ParseKubernetes([]byte(payload)); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

// FuzzParseKubernetes: whatever is taken, encoding/json takes as an object or null.
func FuzzParseKubernetes(f *testing.F) {
	for _, r := range recordedDecodings(f) {
		f.Add(r.Payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := ParseKubernetes(payload)
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
