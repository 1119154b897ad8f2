package csr_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
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
	if diff := cmp.Diff(want, got); diff != "" {
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
	if diff := cmp.Diff(want, back); diff != "" {
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
