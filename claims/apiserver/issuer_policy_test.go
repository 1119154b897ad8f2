package apiserver

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
)

// recordedObject is any of the objects that the recorded requests are about.
type recordedObject struct {
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	UID            string `json:"uid"`
	ServiceAccount string `json:"service_account"`
	Node           string `json:"node"`
}

func (o *recordedObject) object() claims.Object {
	return claims.Object{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ServiceAccountName: o.ServiceAccount, NodeName: o.Node}
}

// A recordedRequest is a TokenRequest and what kube-apiserver answers.
type recordedRequest struct {
	What   string `json:"what"`
	Policy struct {
		APIAudiences []string `json:"api_audiences"`
		Max          int64    `json:"max_seconds"`
		Extend       bool     `json:"extend"`
		MaxExtended  int64    `json:"max_extended_seconds"`
	} `json:"policy"`
	Request struct {
		Namespace         string   `json:"namespace"`
		Name              string   `json:"name"`
		MetadataName      string   `json:"metadata_name"`
		MetadataNamespace string   `json:"metadata_namespace"`
		UID               string   `json:"uid"`
		Audiences         []string `json:"audiences"`
		ExpirationSeconds *int64   `json:"expiration_seconds"`
		Bound             *struct {
			Kind       string `json:"kind"`
			APIVersion string `json:"api_version"`
			Name       string `json:"name"`
			UID        string `json:"uid"`
		} `json:"bound"`
	} `json:"request"`
	Error *struct {
		Reason  StatusReason `json:"reason"`
		Code    int          `json:"code"`
		Message string       `json:"message"`
		Group   string       `json:"group"`
		Kind    string       `json:"kind"`
		Name    string       `json:"name"`
		Field   string       `json:"field"`
	} `json:"error"`
	Warnings  []string `json:"warnings"`
	Lifetime  int64    `json:"lifetime"`
	WarnAfter int64    `json:"warn_after"`
	Spec      int64    `json:"spec_seconds"`
	Status    int64    `json:"status_seconds"`
	Subject   string   `json:"sub"`
	Audiences []string `json:"aud"`
	Private   struct {
		Namespace      string      `json:"namespace"`
		ServiceAccount claims.Ref  `json:"serviceaccount"`
		Pod            *claims.Ref `json:"pod"`
		Secret         *claims.Ref `json:"secret"`
		Node           *claims.Ref `json:"node"`
	} `json:"private"`
}

// limit sets the limits of the recorded kube-apiserver.
func (r *recordedRequest) limit(c *IssuerConfig) {
	c.APIAudiences, c.ExtendLifetime = r.Policy.APIAudiences, r.Policy.Extend
	c.MaxLifetime, c.MaxExtendedLifetime = time.Duration(r.Policy.Max)*time.Second, time.Duration(r.Policy.MaxExtended)*time.Second
}

func (r *recordedRequest) request() *TokenRequest {
	in := &r.Request
	t := &TokenRequest{
		Namespace: in.Namespace, Name: in.Name, MetadataName: in.MetadataName, MetadataNamespace: in.MetadataNamespace,
		UID: in.UID, Audiences: in.Audiences, ExpirationSeconds: in.ExpirationSeconds,
	}
	if b := in.Bound; b != nil {
		t.BoundObject = &BoundObjectReference{Kind: b.Kind, APIVersion: b.APIVersion, Name: b.Name, UID: b.UID}
	}
	return t
}

const testIssuer = "https://issuer.example"

// recordedRequests returns the cases and the objects that they are about.
func recordedRequests(t testing.TB) ([]recordedRequest, *claims.MemoryObjects) {
	var file struct {
		Objects map[string][]recordedObject `json:"objects"`
		Cases   []recordedRequest           `json:"cases"`
	}
	recording(t, "token_requests.json", &file)
	if len(file.Cases) < 40 {
		t.Fatalf("%d requests", len(file.Cases))
	}
	m := &claims.MemoryObjects{}
	for resource, objects := range file.Objects {
		for _, o := range objects {
			m.Put(resource, o.object())
		}
	}
	return file.Cases, m
}

// check compares an answer with the recorded one.
func (r *recordedRequest) check(t *testing.T, g *Issued, err error, now time.Time) {
	t.Helper()
	if r.Error != nil {
		var e *StatusError
		if !errors.As(err, &e) || !errors.Is(err, r.Error.Reason) {
			t.Fatalf("got %v, want %v", err, r.Error)
		}
		got := StatusError{e.Reason, e.Code, e.Message, e.Group, e.Kind, e.Name, e.Field, nil}
		want := StatusError{r.Error.Reason, r.Error.Code, r.Error.Message, r.Error.Group, r.Error.Kind, r.Error.Name, r.Error.Field, nil}
		if got != want || err.Error() != r.Error.Message {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	c := g.Claims
	if g.ExpirationSeconds != r.Spec || !g.Expiration.Equal(now.Add(time.Duration(r.Status)*time.Second)) || !slices.Equal(g.Warnings, r.Warnings) {
		t.Errorf("got %d s, %v, %q, want %d s, in %d s, %q", g.ExpirationSeconds, g.Expiration, g.Warnings, r.Spec, r.Status, r.Warnings)
	}
	if !slices.Equal(c.Audiences, r.Audiences) || c.Subject != r.Subject || c.Issuer != testIssuer ||
		c.IssuedAt != claims.NewNumericDate(now) || c.NotBefore != c.IssuedAt || c.Expiry.Unix-c.IssuedAt.Unix != r.Lifetime {
		t.Errorf("got %+v, want %+v", c, r)
	}
	want := claims.Private{
		Namespace: r.Private.Namespace, ServiceAccount: r.Private.ServiceAccount,
		Pod: r.Private.Pod, Secret: r.Private.Secret, Node: r.Private.Node,
	}
	if r.WarnAfter != 0 {
		want.WarnAfter = claims.NumericDate{Unix: c.IssuedAt.Unix + r.WarnAfter, Present: true}
	}
	if !reflect.DeepEqual(c.Kubernetes, want) {
		t.Errorf("got %+v, want %+v", c.Kubernetes, want)
	}
	if got := g.AuditAnnotations; len(got) != 1 || got["authentication.kubernetes.io/issued-credential-id"] != "JTI="+c.ID || c.ID == "" {
		t.Errorf("annotations %v", got)
	}
}

func TestGrantSharesNothing(t *testing.T) {
	p := IssuerConfig{Issuer: testIssuer, APIAudiences: []string{"api"}}
	b := Bound{ServiceAccount: &claims.Object{Namespace: "ns", Name: "sa", UID: "u"}}
	g, err := p.grant(&TokenRequest{Namespace: "ns", Name: "sa"}, b, 3600, "", time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	g.Claims.Audiences[0] = "other"
	if p.APIAudiences[0] != "api" {
		t.Error("the policy's audiences changed")
	}
	if g.AuditAnnotations != nil {
		t.Errorf("without an ID: %v", g.AuditAnnotations)
	}
}

// FuzzGrant: whatever is asked, the answer is a StatusError, or claims within the bounds.
func FuzzGrant(f *testing.F) {
	cases, objects := recordedRequests(f)
	for _, r := range cases {
		b := &BoundObjectReference{}
		if in := r.request(); in.BoundObject != nil {
			b = in.BoundObject
		}
		var seconds int64
		if r.Request.ExpirationSeconds != nil {
			seconds = *r.Request.ExpirationSeconds
		}
		f.Add(r.Request.Namespace, r.Request.Name, strings.Join(r.Request.Audiences, ","), seconds, b.Kind, b.APIVersion, b.Name, b.UID)
	}
	p := IssuerConfig{Issuer: testIssuer, APIAudiences: []string{"api"}, MaxLifetime: 2 * time.Hour, ExtendLifetime: true}
	issuer := newIssuer(f, issuerConfig(f, objects))
	f.Fuzz(func(t *testing.T, namespace, name, audiences string, seconds int64, kind, version, object, uid string) {
		r := &TokenRequest{
			Namespace: namespace, Name: name, Audiences: strings.Split(audiences, ","), ExpirationSeconds: &seconds,
			BoundObject: &BoundObjectReference{Kind: kind, APIVersion: version, Name: object, UID: uid},
		}
		b, asked, err := issuer.lookUp(t.Context(), r)
		if err != nil {
			if e := new(StatusError); !errors.As(err, &e) || e.Code < 400 || e.Code > 422 {
				t.Fatalf("%v", err)
			}
			return
		}
		g, err := p.grant(r, b, asked, "id", time.Unix(1700000000, 0))
		if err != nil {
			t.Fatal(err)
		}
		if g.ExpirationSeconds < minExpirationSeconds || g.ExpirationSeconds > 7200 || g.Claims.Subject != fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name) {
			t.Fatalf("%+v", g)
		}
		if k := g.Claims.Kubernetes; k.Pod == nil && k.Secret == nil && k.Node == nil {
			t.Fatal("bound to nothing")
		}
	})
}
