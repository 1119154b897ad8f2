package claims

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse([]byte(` {
		"sub":"system:serviceaccount:ns:sa", "aud":"api", "iss":"https:\/\/issuer", "exp":1700003600, "iat":0,
		"unknown":[null, 1.5e3, {"exp":"x"}], "jti":"",
		"kubernetes.io":{"serviceaccount":{"uid":"u", "name":"sa"}, "namespace":"ns", "node":{}, "warnafter":253402300799}
	} `))
	want := &Claims{
		Issuer: "https://issuer", Subject: "system:serviceaccount:ns:sa", Audiences: []string{"api"},
		Expiry: NumericDate{1700003600, true}, IssuedAt: NumericDate{0, true},
		Kubernetes: Private{
			Namespace: "ns", ServiceAccount: Ref{"sa", "u"}, Node: &Ref{}, WarnAfter: NumericDate{maxNumericDate, true},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestParseKeepsNoMemory(t *testing.T) {
	payload := []byte(`{"sub":"abc","aud":["def"]}`)
	c, err := Parse(payload)
	if err != nil {
		t.Fatal(err)
	}
	clear(payload)
	if c.Subject != "abc" || c.Audiences[0] != "def" {
		t.Errorf("changed with the payload: %+v", c)
	}
}

// The error of a claim has its name and the rule.
func TestParseNamesMember(t *testing.T) {
	for text, want := range map[string]string{
		`{"exp":1735689600.5}`:              `digits only at byte 7: "exp"`,
		`{"kubernetes.io":{"namespace":5}}`: `type at byte 30: "namespace"`,
		"\ufeff" + `{"exp":1735689600}`:     "byte order mark",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct {
		payload string
		want    Check
	}{
		{``, CheckEncoding},
		{`null`, CheckType},
		{`[]`, CheckType},
		{`{`, CheckEncoding},
		{`{} x`, CheckEncoding},
		{`{}{}`, CheckEncoding},
		{"\ufeff{}", CheckEncoding},
		{`{"a":1,}`, CheckEncoding},
		{"{\"sub\":\"\xff\"}", CheckEncoding},
		{`{"sub":"\ud800"}`, CheckEncoding},
		{`{"sub":"a","sub":"a"}`, CheckEncoding},
		{`{"sub":"a","Sub":"a"}`, CheckEncoding},
		{`{"x":{"a":1,"a":1}}`, CheckEncoding},
		{`{"Sub":"a"}`, CheckEncoding},
		{`{"EXP":1}`, CheckEncoding},
		{`{"Kubernetes.io":{}}`, CheckEncoding},
		{"{\"\u212aubernetes.io\":{}}", CheckEncoding}, // the Kelvin sign folds to k
		{`{"kubernetes.io":{"Pod":{}}}`, CheckEncoding},
		{`{"kubernetes.io":{"pod":{"Name":"p"}}}`, CheckEncoding},
		{`{"kubernetes.io":{"pod":{"uid":"a","uid":"a"}}}`, CheckEncoding},
		{`{"kubernetes.io/serviceaccount/Namespace":"a"}`, CheckEncoding},
		{`{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, CheckEncoding},
		{`{"sub":null}`, CheckType},
		{`{"sub":5}`, CheckType},
		{`{"iss":["a"]}`, CheckType},
		{`{"jti":5}`, CheckType},
		{`{"aud":null}`, CheckType},
		{`{"aud":5}`, CheckType},
		{`{"aud":[5]}`, CheckType},
		{`{"aud":["a",null]}`, CheckType},
		{`{"exp":"5"}`, CheckType},
		{`{"exp":null}`, CheckType},
		{`{"exp":1.0}`, CheckType},
		{`{"exp":1e3}`, CheckType},
		{`{"nbf":1e30}`, CheckType},
		{`{"iat":9223372036854775808}`, CheckType},
		{`{"iat":-1}`, checkTime},
		{`{"exp":253402300800}`, checkTime},
		{`{"kubernetes.io":{"warnafter":-1}}`, checkTime},
		{`{"kubernetes.io":[]}`, CheckType},
		{`{"kubernetes.io":null}`, CheckType},
		{`{"kubernetes.io":{"serviceaccount":null}}`, CheckType},
		{`{"kubernetes.io":{"pod":"p"}}`, CheckType},
		{`{"kubernetes.io":{"secret":{"name":5}}}`, CheckType},
		{`{"kubernetes.io":{"node":{"uid":null}}}`, CheckType},
		{`{"kubernetes.io":{"other":{}}}`, checkPrivate},
		{`{"kubernetes.io":{"serviceaccount":{"other":1}}}`, checkPrivate},
		{`{"kubernetes.io":{"mutatingwebhookconfiguration":{"namespace":"n"}}}`, checkPrivate},
		{`{"kubernetes.io":{"attestations":{"other":["a"]}}}`, checkPrivate},
		{`{"kubernetes.io":{"attestations":{"AdmissionReviewAPIGroups":["a"]}}}`, CheckEncoding},
		{`{"kubernetes.io":{"attestations":null}}`, CheckType},
		{`{"kubernetes.io":{"attestations":{"admissionReviewAPIGroups":"a"}}}`, CheckType},
		{`{"kubernetes.io":{"attestations":{"admissionReviewAPIGroups":[null]}}}`, CheckType},
		{`{"kubernetes.io":{"validatingwebhookconfiguration":null}}`, CheckType},
	} {
		t.Run(fmt.Sprint(tt.want), func(t *testing.T) {
			c, err := Parse([]byte(tt.payload))
			var e *Error
			if c != nil || !errors.As(err, &e) || e.Check != tt.want {
				t.Errorf("%s: got %+v, %v, want %v", tt.payload, c, err, tt.want)
			}
		})
	}
}

// legacyPayload was recorded from LegacyClaims of pkg/serviceaccount.
const legacyPayload = `{"iss":"kubernetes/serviceaccount","kubernetes.io/serviceaccount/namespace":"ns",` +
	`"kubernetes.io/serviceaccount/secret.name":"sec","kubernetes.io/serviceaccount/service-account.name":"sa",` +
	`"kubernetes.io/serviceaccount/service-account.uid":"sauid","sub":"system:serviceaccount:ns:sa"}`

// Each of the four claims of a legacy token is refused, whatever else there is.
func TestParseLegacy(t *testing.T) {
	payloads := []string{legacyPayload}
	for _, name := range []string{"namespace", "secret.name", "service-account.name", "service-account.uid"} {
		payloads = append(payloads, `{"kubernetes.io":{"namespace":"ns"},"kubernetes.io/serviceaccount/`+name+`":"x"}`)
	}
	for _, payload := range payloads {
		t.Run(payload, func(t *testing.T) {
			c, err := Parse([]byte(payload))
			if wantCheck(t, err, checkPrivate); c != nil {
				t.Errorf("got %+v", c)
			}
		})
	}
}

// FuzzParse: a parsed claim set has one encoding. That the API server's decoder makes the same
// of it is what apiserver's FuzzParseClaims tries.
func FuzzParse(f *testing.F) {
	for _, r := range recordedPayloads(f) {
		f.Add(r.Payload)
	}
	var decodings []struct {
		Payload []byte `json:"payload"`
	}
	recording(f, "../apiserver/testdata/decoded.json", &decodings)
	for _, r := range decodings {
		f.Add(r.Payload)
	}
	f.Add([]byte(legacyPayload))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := Parse(payload)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%T", err)
			}
			return
		}
		encoded, err := c.Marshal()
		if errors.Is(err, CheckSize) {
			return // escapes made it longer
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(encoded)
		if err != nil || !reflect.DeepEqual(normal(again), normal(c)) {
			t.Fatalf("%s: %+v, %v, first %+v", encoded, again, err, c)
		}
	})
}

// normal makes no audience one thing.
func normal(c *Claims) Claims {
	n := *c
	if len(n.Audiences) == 0 {
		n.Audiences = nil
	}
	return n
}
