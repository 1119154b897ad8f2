package csr_test

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// An object as kube-apiserver 1.36 prints it, shortened.
const requestJSON = `{
  "apiVersion": "certificates.k8s.io/v1",
  "kind": "CertificateSigningRequest",
  "metadata": {
    "annotations": {"a": "b"},
    "creationTimestamp": "2026-11-20T10:00:00Z",
    "generateName": "csr-",
    "labels": {"c": "d"},
    "managedFields": [{"manager": "kubelet"}],
    "name": "csr-x7k2p",
    "resourceVersion": "1234",
    "uid": "8b8f1d5e-3c4b-4b57-9a1e-1f2e3d4c5b6a"
  },
  "spec": {
    "expirationSeconds": 3600,
    "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=00ff"]},
    "groups": ["system:nodes", "system:authenticated"],
    "request": "aGVsbG8=",
    "signerName": "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
    "uid": "u",
    "usages": ["digital signature", "client auth"],
    "username": "system:node:node-1"
  },
  "status": {
    "certificate": "d29ybGQ=",
    "conditions": [{
      "lastTransitionTime": "2026-11-20T10:00:01Z",
      "lastUpdateTime": "2026-11-20T10:00:02Z",
      "message": "m", "reason": "r", "status": "True", "type": "Approved"
    }]
  }
}`

func TestParseServerObject(t *testing.T) {
	got, err := csr.ParseServerObject([]byte(requestJSON))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	expiration := int32(3600)
	want := &csr.Request{
		APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest",
		Metadata: csr.Metadata{
			Name: "csr-x7k2p", GenerateName: "csr-", UID: "8b8f1d5e-3c4b-4b57-9a1e-1f2e3d4c5b6a", ResourceVersion: "1234",
			CreationTimestamp: at, Labels: map[string]string{"c": "d"}, Annotations: map[string]string{"a": "b"},
		},
		Spec: csr.Spec{
			Request: []byte("hello"), SignerName: csr.SignerClientTPM, ExpirationSeconds: &expiration,
			Usages: []string{"digital signature", "client auth"},
		},
		User: csr.User{
			Username: "system:node:node-1", UID: "u", Groups: []string{"system:nodes", "system:authenticated"},
			Extra: map[string][]string{csr.ExtraCredentialID: {"X509SHA256=00ff"}},
		},
		Status: csr.Status{Certificate: []byte("world"), Conditions: []csr.Condition{{
			Type: "Approved", Status: "True", Reason: "r", Message: "m",
			LastTransitionTime: at.Add(time.Second), LastUpdateTime: at.Add(2 * time.Second),
		}}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(csr.Request{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if !got.HasCondition(csr.ConditionApproved) || got.HasCondition(csr.ConditionDenied) {
		t.Error("conditions")
	}
	if id := got.CredentialID(); id != "X509SHA256=00ff" {
		t.Errorf("credential ID %q", id)
	}
	again, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	back, err := csr.ParseServerObject(again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, back, cmpopts.IgnoreUnexported(csr.Request{})); diff != "" {
		t.Errorf("written and read again: -want +got\n%s", diff)
	}
}

// An object that has not been stored yet, as client-go writes it.
func TestParseServerObjectOfANewObject(t *testing.T) {
	got, err := csr.ParseServerObject([]byte(`{"metadata":{"creationTimestamp":null},"spec":{"request":null,"signerName":"s"},"status":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Metadata.CreationTimestamp.IsZero() || got.Spec.ExpirationSeconds != nil || got.CredentialID() != "" {
		t.Errorf("got %+v", got)
	}
	out, err := json.Marshal(got)
	if err != nil || strings.Contains(string(out), "0001-01-01") {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestParseServerObjectRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":               "",
		"two objects":           "{}{}",
		"a list":                `{"apiVersion":"v1","kind":"List","items":[]}`,
		"beta":                  strings.Replace(requestJSON, "certificates.k8s.io/v1", "certificates.k8s.io/v1beta1", 1),
		"another kind":          strings.Replace(requestJSON, "CertificateSigningRequest", "ClusterTrustBundle", 1),
		"request in the clear":  strings.Replace(requestJSON, "aGVsbG8=", "-----BEGIN", 1),
		"expiration over int32": strings.Replace(requestJSON, "3600", "4294967296", 1),
		"expiration as text":    strings.Replace(requestJSON, "3600", `"3600"`, 1),
		"bad time":              strings.Replace(requestJSON, "2026-11-20T10:00:00Z", "yesterday", 1),
		"too long":              strings.Repeat(" ", csr.MaxRequestJSONSize) + "{}",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := csr.ParseServerObject([]byte(text)); err == nil {
				t.Errorf("accepted as %+v", got)
			}
		})
	}
}

// TestSpec files the result of a bundle's Spec, under each kind of signer: a policy passes it.
func TestSpec(t *testing.T) {
	for name, c := range map[string]struct {
		signer     string
		class      csr.RequesterClass
		key        crypto.Signer
		expiration int32
		usages     []string
	}{
		"client":   {csr.SignerClientTPM, csr.RequesterBootstrap, p256Key(), 0, []string{"digital signature", "client auth"}},
		"serving":  {csr.SignerServingTPM, csr.RequesterNode, p256Key(), 600, []string{"digital signature", "server auth"}},
		"recovery": {csr.SignerRecoveryTPM, csr.RequesterNode, p384Key(), 1 << 30, []string{"digital signature", "client auth"}},
		"RSA":      {csr.SignerClientTPM, csr.RequesterNode, rsa2048(), 3600, []string{"digital signature", "key encipherment", "client auth"}},
		"built-in": {csr.SignerKubeAPIServerClientKubelet, csr.RequesterBootstrap, p256Key(), 3600, []string{"digital signature", "client auth"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(c.signer, c.class)
			f.builder.key = c.key
			bundle := &csr.Bundle{Request: f.builder.der(t), Provider: "tpm/v1", Data: []byte{1}}
			spec, err := bundle.Spec(c.signer, c.expiration)
			if err != nil {
				t.Fatal(err)
			}
			if spec.SignerName != c.signer || !slices.Equal(spec.Usages, c.usages) ||
				(spec.ExpirationSeconds == nil) != (c.expiration == 0) || c.expiration != 0 && *spec.ExpirationSeconds != c.expiration {
				t.Errorf("got %+v", spec)
			}
			hello, err := bundle.HelloSpec(c.signer, c.expiration)
			if err != nil {
				t.Fatal(err)
			}
			if hello.SignerName != csr.SignerChallengeTPM || !slices.Equal(hello.Usages, c.usages) || !slices.Equal(hello.Request, spec.Request) {
				t.Errorf("hello: got %+v", hello)
			}
			for _, filed := range []*csr.Spec{spec, hello} {
				request := csr.Filed(filed, f.request.User, issueTime)
				if _, err := f.policy.CheckUnsigned(t.Context(), request.Parsed(), c.signer); err != nil {
					t.Errorf("filed under %s: %v", filed.SignerName, err)
				}
			}
		})
	}
}

func TestSpecRefuses(t *testing.T) {
	der := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).builder.der(t)
	good := csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte{1}}
	for name, c := range map[string]struct {
		bundle     *csr.Bundle
		signer     string
		expiration int32
		spec       csr.Check // "" where Spec refuses nothing
		hello      csr.Check
	}{
		"good":               {&good, csr.SignerClientTPM, 600, "", ""},
		"no bundle":          {nil, csr.SignerClientTPM, 600, csr.CheckBlock, csr.CheckSignerName},
		"no request":         {&csr.Bundle{Provider: "tpm/v1", Data: []byte{1}}, csr.SignerClientTPM, 600, csr.CheckRequestDER, csr.CheckRequestDER},
		"no evidence":        {&csr.Bundle{Request: der}, csr.SignerClientTPM, 600, "", csr.CheckSignerName},
		"insecure":           {&csr.Bundle{Request: der, Provider: "insecure/v1", Data: []byte{1}}, csr.SignerClientInsecure, 600, "", csr.CheckSignerName},
		"a challenge signer": {&good, csr.SignerChallengeTPM, 600, csr.CheckSignerName, csr.CheckSignerName},
		"no signer":          {&good, "", 600, csr.CheckSignerName, csr.CheckSignerName},
		"under ten minutes":  {&good, csr.SignerClientTPM, 599, refusal.CheckConfig, refusal.CheckConfig},
		"negative":           {&good, csr.SignerClientTPM, -1, refusal.CheckConfig, refusal.CheckConfig},
		"a foreign request":  {&csr.Bundle{Request: []byte{0x30, 8, 0x30, 0, 0x30, 0, 3, 2, 0, 1}}, csr.SignerClientTPM, 600, csr.CheckRequestDER, csr.CheckSignerName},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.bundle.Spec(c.signer, c.expiration)
			if (err == nil) != (c.spec == "") || err != nil && !errors.Is(err, c.spec) {
				t.Errorf("Spec: got %v, want %q", err, c.spec)
			}
			_, err = c.bundle.HelloSpec(c.signer, c.expiration)
			if (err == nil) != (c.hello == "") || err != nil && !errors.Is(err, c.hello) {
				t.Errorf("HelloSpec: got %v, want %q", err, c.hello)
			}
		})
	}
}

// tripwire overwrites the text of a request when it is asked for the nth time whether it
// is done: a later reader of the text reads nothing.
type tripwire struct {
	context.Context
	request *csr.Request
	n       int
}

func (w *tripwire) Err() error {
	if w.n--; w.n == 0 {
		clear(w.request.Spec.Request)
	}
	return w.Context.Err()
}

// TestVerifyReadsOnce: on the way through a provider the text of a request is read
// exactly once.
func TestVerifyReadsOnce(t *testing.T) {
	for _, signer := range []string{csr.SignerClientTPM, csr.SignerServingTPM} {
		t.Run(signer, func(t *testing.T) {
			f := goodFixture(signer, csr.RequesterNode)
			f.encode(t)
			text := f.request.Spec.Request
			var parsed *csr.Parsed
			provider := &fakeProvider{policy: f.policy, seen: func(p *csr.Parsed) { parsed = p }}
			// The first question comes before the text is read, and the second never.
			for n := 1; n <= 2; n++ {
				f.request.Spec.Request = bytes.Clone(text)
				attested, err := csr.Verify(&tripwire{t.Context(), f.request, n}, provider, f.request)
				if n == 1 {
					if err == nil {
						t.Error("a text that is overwritten before it is read is accepted")
					}
					continue
				}
				if err != nil {
					t.Fatalf("the text is read again: %v", err)
				}
				bundle, err := parsed.Bundle()
				if err != nil || bundle != attested.Checked().Bundle() {
					t.Errorf("the policy has a bundle of its own: %v", err)
				}
				request, err := parsed.PKCS10()
				if err != nil || &request.Raw[0] != &attested.Checked().PKCS10().Raw[0] {
					t.Errorf("the policy has a PKCS#10 request of its own: %v", err)
				}
			}
		})
	}
}

func TestParsed(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	t.Run("nothing", func(t *testing.T) {
		for name, p := range map[string]*csr.Parsed{"nil": nil, "zero": new(csr.Parsed), "no request": (*csr.Request)(nil).Parsed()} {
			t.Run(name, func(t *testing.T) {
				if p.Request() != nil {
					t.Errorf("%s: a request", name)
				}
				if b, err := p.Bundle(); b != nil || !errors.Is(err, csr.CheckNotChecked) {
					t.Errorf("%s: bundle %v, %v", name, b, err)
				}
				if r, err := p.PKCS10(); r != nil || !errors.Is(err, csr.CheckNotChecked) {
					t.Errorf("%s: request %v, %v", name, r, err)
				}
				if _, err := f.policy.Check(t.Context(), p); !errors.Is(err, csr.CheckNotChecked) {
					t.Errorf("%s: policy: %v", name, err)
				}
				if err := new(csr.Attested).Check(p); !errors.Is(err, csr.CheckNotChecked) {
					t.Errorf("%s: result: %v", name, err)
				}
			})
		}
	})
	t.Run("kept", func(t *testing.T) {
		kept := *f.request
		kept.KeepParsed()
		bundle := func(r *csr.Request) *csr.Bundle {
			b, _ := r.Parsed().Bundle()
			return b
		}
		first := bundle(&kept)
		if first == nil || bundle(&kept) != first {
			t.Error("a kept request is parsed twice")
		}
		other := kept
		other.Spec.Request = append([]byte("\n"), kept.Spec.Request...)
		if bundle(&other) != nil {
			t.Error("a changed copy has the content of the original")
		}
		kept.Spec.Request = bytes.Clone(kept.Spec.Request)
		kept.Spec.Request[0]++
		if bundle(&kept) != nil {
			t.Error("a byte changed in place goes unnoticed")
		}
	})
	t.Run("errors stay", func(t *testing.T) {
		bad := &csr.Request{Spec: csr.Spec{Request: []byte("x")}}
		p := bad.Parsed()
		for range 2 {
			if b, err := p.Bundle(); b != nil || !errors.Is(err, csr.CheckBlock) {
				t.Errorf("bundle %v, %v", b, err)
			}
			if r, err := p.PKCS10(); r != nil || !errors.Is(err, csr.CheckBlock) {
				t.Errorf("request %v, %v", r, err)
			}
			bad.Spec.Request = f.request.Spec.Request
		}
	})
	t.Run("many goroutines", func(t *testing.T) {
		p := f.request.Parsed()
		first, err := p.PKCS10()
		if err != nil {
			t.Fatal(err)
		}
		fresh := f.request.Parsed()
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				if r, err := fresh.PKCS10(); err != nil || !bytes.Equal(r.Raw, first.Raw) {
					t.Errorf("got %v", err)
				}
			})
		}
		wait.Wait()
	})
}
