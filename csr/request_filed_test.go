package csr_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// clientJSON is a body in which a client states the server's half as well.
const clientJSON = `{"request": "aGVsbG8=", "signerName": "s", "expirationSeconds": 600, "usages": ["a"],
	"username": "system:node:node-1", "uid": "u", "groups": ["system:nodes"],
	"extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=00ff"]},
	"metadata": {"creationTimestamp": "2026-11-20T10:00:00Z"}, "status": {"conditions": [{"type": "Approved"}]}}`

// TestFiled: the client's fields come from the client alone, and the server's from the server.
func TestFiled(t *testing.T) {
	var spec csr.Spec
	if err := json.Unmarshal([]byte(clientJSON), &spec); err != nil {
		t.Fatal(err)
	}
	seconds := int32(600)
	want := csr.Spec{Request: []byte("hello"), SignerName: "s", ExpirationSeconds: &seconds, Usages: []string{"a"}}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("what a client can say: -want +got\n%s", diff)
	}
	if n := reflect.TypeFor[csr.Spec]().NumField(); n != 4 {
		t.Errorf("Spec has %d fields: each new one is the client's to write", n)
	}
	by := csr.User{Username: "alice", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	at := time.Date(2026, 11, 20, 10, 0, 0, 999999999, time.UTC)
	const uid = "filed:8bbab9f941e7129c5cbdd15c32a5dff1be66bfa04a4ea3b18bd97ae34a0a5910"
	if diff := cmp.Diff(&csr.Request{Spec: want, User: by, Metadata: csr.Metadata{UID: uid, CreationTimestamp: at.Truncate(time.Second)}}, csr.Filed(&spec, by, at), cmpopts.IgnoreUnexported(csr.Request{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := csr.Filed(&spec, csr.User{}, at); !reflect.DeepEqual(got.User, csr.User{}) || got.CredentialID() != "" {
		t.Errorf("the user is %+v, who was not authenticated", got.User)
	}
}

// TestFiledApprovesNoOther: an approval of a request that was filed with a server of one's own is
// for that request, and not for another one with the same PKCS#10 request.
func TestFiledApprovesNoOther(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	filed := func(change func(s *csr.Spec, u *csr.User, at *time.Time)) *csr.Request {
		spec, by, at, seconds := f.request.Spec, f.request.User, issueTime, *f.request.Spec.ExpirationSeconds
		spec.ExpirationSeconds = &seconds
		change(&spec, &by, &at)
		return csr.Filed(&spec, by, at)
	}
	checked, err := f.policy.Check(t.Context(), filed(func(*csr.Spec, *csr.User, *time.Time) {}).Parsed())
	if err != nil {
		t.Fatal(err)
	}
	d := goodVerified(checked).Decision()
	for name, c := range map[string]struct {
		change func(s *csr.Spec, u *csr.User, at *time.Time)
		want   csr.Verdict
	}{
		"this":                      {func(*csr.Spec, *csr.User, *time.Time) {}, csr.VerdictApprove},
		"this, by a local clock":    {func(_ *csr.Spec, _ *csr.User, at *time.Time) { *at = at.In(time.FixedZone("", 3600)) }, csr.VerdictApprove},
		"by another user":           {func(_ *csr.Spec, u *csr.User, _ *time.Time) { u.Username += "4" }, csr.VerdictRetry},
		"with another credential":   {func(_ *csr.Spec, u *csr.User, _ *time.Time) { u.Extra = nil }, csr.VerdictRetry},
		"a second later":            {func(_ *csr.Spec, _ *csr.User, at *time.Time) { *at = at.Add(time.Second) }, csr.VerdictRetry},
		"for a second more":         {func(s *csr.Spec, _ *csr.User, _ *time.Time) { *s.ExpirationSeconds++ }, csr.VerdictRetry},
		"for another signer":        {func(s *csr.Spec, _ *csr.User, _ *time.Time) { s.SignerName = csr.SignerClientInsecure }, csr.VerdictRetry},
		"in the year 10000, unlike": {func(_ *csr.Spec, _ *csr.User, at *time.Time) { *at = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, csr.VerdictRetry},
	} {
		t.Run(name, func(t *testing.T) {
			if got := d.For(filed(c.change)); got.Verdict != c.want {
				t.Errorf("got %+v, want %v", got, c.want)
			}
		})
	}
}

// TestFiledSharesNothing changes all that was given, and then all that was returned.
func TestFiledSharesNothing(t *testing.T) {
	given := func() (*csr.Spec, csr.User) {
		seconds := int32(600)
		return &csr.Spec{Request: []byte("hello"), SignerName: "s", ExpirationSeconds: &seconds, Usages: []string{"a"}},
			csr.User{Username: "alice", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	}
	change := func(s *csr.Spec, u *csr.User) {
		s.Request[0], s.SignerName, *s.ExpirationSeconds, s.Usages[0] = 'x', "x", 1, "x"
		u.Groups[0], u.Extra["k"][0] = "x", "x"
		u.Extra["l"] = nil
	}
	spec, by := given()
	filed := csr.Filed(spec, by, issueTime)
	change(spec, &by)
	wantSpec, wantUser := given()
	want := csr.Filed(wantSpec, wantUser, issueTime)
	if diff := cmp.Diff(want, filed, cmpopts.IgnoreUnexported(csr.Request{})); diff != "" {
		t.Errorf("what was given is shared: -want +got\n%s", diff)
	}
	spec, by = given()
	filed = csr.Filed(spec, by, issueTime)
	change(&filed.Spec, &filed.User)
	if diff := cmp.Diff(wantSpec, spec); diff != "" {
		t.Errorf("what was returned is shared: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(wantUser, by); diff != "" {
		t.Errorf("what was returned is shared: -want +got\n%s", diff)
	}
}

func TestFiledTime(t *testing.T) {
	whole := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct{ at, want time.Time }{
		{whole, whole}, {whole.Add(1), whole}, {whole.Add(time.Second - 1), whole}, {whole.Add(time.Second), whole.Add(time.Second)},
		{whole.In(time.FixedZone("", 3600)), whole}, {time.Time{}, time.Time{}},
	} {
		if got := csr.Filed(nil, csr.User{}, c.at).Metadata.CreationTimestamp; !got.Equal(c.want) {
			t.Errorf("filed at %v: got %v, want %v", c.at, got, c.want)
		}
	}
}

// TestFiledNothing: no spec is a request that asks for nothing, and is refused.
func TestFiledNothing(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	r := csr.Filed(nil, f.request.User, issueTime)
	if diff := cmp.Diff(csr.Spec{}, r.Spec); diff != "" {
		t.Error(diff)
	}
	if _, err := f.policy.Check(context.Background(), r.Parsed()); !errors.Is(err, csr.CheckSignerName) || errors.Is(err, refusal.ErrRetry) || csr.Decide(err).Verdict != csr.VerdictDeny {
		t.Errorf("got %v", err)
	}
	f.encode(t)
	if _, err := f.policy.Check(context.Background(), csr.Filed(&f.request.Spec, f.request.User, issueTime).Parsed()); err != nil {
		t.Errorf("the good spec: %v", err)
	}
}

// TestRequestIsNotReadAsJSON: a program that decodes a client's body into a Request learns
// that at once.
func TestRequestIsNotReadAsJSON(t *testing.T) {
	type wrapped struct{ csr.Request }
	for name, into := range map[string]any{
		"a request":     new(csr.Request),
		"a pointer":     new(*csr.Request),
		"a wrapper":     new(wrapped),
		"a struct's":    new(struct{ Request csr.Request }),
		"one of a list": new([]csr.Request),
		"one of a map":  new(map[string]csr.Request),
	} {
		t.Run(name, func(t *testing.T) {
			text := requestJSON
			switch name {
			case "a struct's", "one of a map":
				text = `{"request": ` + text + `}`
			case "one of a list":
				text = `[` + text + `]`
			}
			if err := json.Unmarshal([]byte(text), into); err == nil || !strings.Contains(err.Error(), "Filed") {
				t.Errorf("got %+v, %v", into, err)
			}
		})
	}
	if err := json.NewDecoder(strings.NewReader(`{}`)).Decode(new(csr.Request)); err == nil {
		t.Error("an empty object is read")
	}
}

// TestRequestJSON: the object is written as it always was, with the user in its spec.
func TestRequestJSON(t *testing.T) {
	const full = `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest",` +
		`"metadata":{"name":"csr-x7k2p","generateName":"csr-","uid":"8b8f1d5e-3c4b-4b57-9a1e-1f2e3d4c5b6a","resourceVersion":"1234",` +
		`"creationTimestamp":"2026-11-20T10:00:00Z","labels":{"c":"d"},"annotations":{"a":"b"}},` +
		`"spec":{"request":"aGVsbG8=","signerName":"cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm","expirationSeconds":3600,` +
		`"usages":["digital signature","client auth"],"username":"system:node:node-1","uid":"u","groups":["system:nodes","system:authenticated"],` +
		`"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=00ff"]}},` +
		`"status":{"conditions":[{"type":"Approved","status":"True","reason":"r","message":"m",` +
		`"lastUpdateTime":"2026-11-20T10:00:02Z","lastTransitionTime":"2026-11-20T10:00:01Z"}],"certificate":"d29ybGQ="}}`
	const empty = `{"metadata":{},"spec":{"request":null,"signerName":""},"status":{}}`
	for text, want := range map[string]string{requestJSON: full, full: full, "{}": empty, empty: empty} {
		r, err := csr.ParseServerObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]any{"pointer": r, "value": *r} {
			if got, err := json.Marshal(v); err != nil || string(got) != want {
				t.Errorf("%s: got  %s, %v\nwant %s", name, got, err, want)
			}
		}
	}
}
