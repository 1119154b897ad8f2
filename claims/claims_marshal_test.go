package claims

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// recording reads a file of testdata.
func recording(t testing.TB, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// A recordedPayload is a claim set and the bytes that kube-apiserver makes of it. The
// strings are []byte, since some are no UTF-8.
type recordedPayload struct {
	What   string `json:"what"`
	Claims struct {
		Issuer         []byte    `json:"iss"`
		Subject        []byte    `json:"sub"`
		ID             []byte    `json:"jti"`
		Audiences      [][]byte  `json:"aud"`
		Expiry         *int64    `json:"exp"`
		NotBefore      *int64    `json:"nbf"`
		IssuedAt       *int64    `json:"iat"`
		Namespace      []byte    `json:"namespace"`
		ServiceAccount [][]byte  `json:"serviceaccount"`
		Pod            *[][]byte `json:"pod"`
		Secret         *[][]byte `json:"secret"`
		Node           *[][]byte `json:"node"`
		WarnAfter      *int64    `json:"warnafter"`
	} `json:"claims"`
	Payload []byte `json:"payload"`
}

func (r *recordedPayload) claims() *Claims {
	date := func(p *int64) NumericDate {
		if p == nil {
			return NumericDate{}
		}
		return NumericDate{Unix: *p, Present: true}
	}
	ref := func(p *[][]byte) *Ref {
		if p == nil {
			return nil
		}
		return &Ref{Name: string((*p)[0]), UID: string((*p)[1])}
	}
	in := &r.Claims
	c := &Claims{
		Issuer: string(in.Issuer), Subject: string(in.Subject), ID: string(in.ID),
		Expiry: date(in.Expiry), NotBefore: date(in.NotBefore), IssuedAt: date(in.IssuedAt),
		Kubernetes: Private{
			Namespace:      string(in.Namespace),
			ServiceAccount: *ref(&in.ServiceAccount),
			Pod:            ref(in.Pod), Secret: ref(in.Secret), Node: ref(in.Node),
			WarnAfter: date(in.WarnAfter),
		},
	}
	for _, a := range in.Audiences {
		c.Audiences = append(c.Audiences, string(a))
	}
	return c
}

func recordedPayloads(t testing.TB) []recordedPayload {
	var cases []recordedPayload
	recording(t, "payloads.json", &cases)
	if len(cases) < 10 {
		t.Fatalf("%d payloads", len(cases))
	}
	return cases
}

func TestMarshalLikeKubernetes(t *testing.T) {
	for _, r := range recordedPayloads(t) {
		t.Run(r.What, func(t *testing.T) {
			want := r.claims()
			got, err := want.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, r.Payload) {
				t.Fatalf("got  %s\nwant %s", got, r.Payload)
			}
			back, err := Parse(got)
			if err != nil {
				t.Fatal(err)
			}
			if utf8.ValidString(want.ID) && !reflect.DeepEqual(back, want) {
				t.Errorf("parsed %+v\nwant   %+v", back, want)
			}
			again, err := back.Marshal()
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("again %s, %v", again, err)
			}
		})
	}
}

// The claims that kube-apiserver never writes, but go-jose can.
func TestMarshalTimes(t *testing.T) {
	c := &Claims{
		IssuedAt:  NumericDate{Present: true},
		NotBefore: NumericDate{Unix: -1, Present: true},
		Expiry:    NumericDate{Unix: 9223372036854775807, Present: true},
	}
	got, err := c.Marshal()
	const want = `{"exp":9223372036854775807,"iat":0,"kubernetes.io":{"serviceaccount":{}},"nbf":-1}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestMarshalSize(t *testing.T) {
	fits := MaxClaimsSize - len(`{"aud":[""],"kubernetes.io":{"serviceaccount":{}}}`)
	c := &Claims{Audiences: []string{strings.Repeat("a", fits)}}
	payload, err := c.Marshal()
	if err != nil || len(payload) != MaxClaimsSize {
		t.Fatalf("%d bytes, %v", len(payload), err)
	}
	if _, err := Parse(payload); err != nil {
		t.Error(err)
	}
	c.Audiences[0] += "a"
	if _, err := c.Marshal(); !errors.Is(err, CheckSize) {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := Parse(append(payload, ' ')); !errors.Is(err, CheckSize) {
		t.Errorf("one byte more: %v", err)
	}
}

func TestMarshalAllocations(t *testing.T) {
	c := recordedPayloads(t)[1].claims()
	// 14, and four more with the race detector.
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Marshal() }); n > 18 {
		t.Errorf("%v allocations, want at most 18", n)
	}
}

func TestParseAllocations(t *testing.T) {
	r := recordedPayloads(t)[1]
	// The claims, three references, the slice of audiences, and one for each string.
	if n := testing.AllocsPerRun(100, func() { _, _ = Parse(r.Payload) }); n > 24 {
		t.Errorf("%v allocations, want at most 24", n)
	}
}

func BenchmarkMarshal(b *testing.B) {
	c := recordedPayloads(b)[1].claims()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = c.Marshal()
	}
}

func BenchmarkParse(b *testing.B) {
	r := recordedPayloads(b)[1]
	b.ReportAllocs()
	for b.Loop() {
		_, _ = Parse(r.Payload)
	}
}
