package kubectl

import (
	"bytes"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/program/controlplane"
	"github.com/nodeattest/nodeattest/oid"
)

// strange is a kind that is not built in: documents of a platform, without trusted issuers.
func strange() controlplane.Plugin {
	return controlplane.Plugin{Name: "strange", Identities: []attest.Grammar{{Kind: "strange"}}, Open: func(decode func(into any) error) (attest.Kind, error) {
		if err := decode(new(struct{})); err != nil {
			return nil, err
		}
		return document.NewKind(document.KindConfig{Provider: "strange", Identities: []attest.Grammar{{Kind: "strange"}}, ValueSize: 32, Platform: distrust{}})
	}}
}

type distrust struct{ document.Platform }

// strangeHello is the evidence of a hello of such a kind.
func strangeHello(t *testing.T, signer string, machine attest.Identity) []byte {
	t.Helper()
	hello, err := (&document.Hello{ClusterID: "vectors", TargetSigner: signer, Machine: string(machine)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	type statement struct{ Type, Stmt asn1.RawValue }
	data, err := asn1.Marshal(struct{ Statements []statement }{[]statement{{
		asn1.RawValue{Tag: asn1.TagOID, Bytes: []byte(oid.NodeAttestDocumentHello)}, asn1.RawValue{FullBytes: hello}}}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const config = `apiVersion: config.nodeattest.github.io/v1alpha1
kind: NodeAttestation
cluster: {ids: [vectors]}
signers: {names: [cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm]}
tpm: {akIssuers: [{rootsFile: root.pem, profile: tcg}]}
inventory: {file: inventory.yaml}
membership: {mode: Inventory, road: ak}
`

const inventory = `machines:
- nodeName: node-1
  uid: uid-1
  identity: othername:2.999.1:DAltYWNoaW5lLTE
  providerID: sim://vectors/node-1
`

const records = `{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "nodeattest.github.io/v1alpha1", "kind": "AttestedNode", "metadata": {"name": "node-1", "uid": "1", "resourceVersion": "7"},
   "spec": {"scope": "ak", "machine": "othername:2.999.1:DAltYWNoaW5lLTE", "machineUID": "uid-1", "providerID": "sim://vectors/node-1", "state": "Bound"}}
]}
`

// fixtures are the core's worked example as the files of an operator.
func fixtures(t *testing.T) map[string][]byte {
	t.Helper()
	// TestScripts changes the folder.
	dir, err := filepath.Abs("../../../attest/testdata/messages")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var e struct {
		SignerName, ChallengeSigner, Requester string
		Groups, Usages                         []string
		ExpirationSeconds                      int32
		HelloCreated, AnswerCreated            time.Time
		RingKey                                struct {
			ID, Secret string
			ActiveAt   time.Time
		}
	}
	if err := json.Unmarshal(file("example.json"), &e); err != nil {
		t.Fatal(err)
	}
	indented := func(v any) []byte {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	object := func(name, signer string, text []byte, created time.Time, conditions ...csr.Condition) []byte {
		return indented(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
			"metadata": map[string]any{"name": name, "uid": "1", "creationTimestamp": created},
			"spec":     map[string]any{"request": text, "signerName": signer, "username": e.Requester, "groups": e.Groups, "usages": e.Usages, "expirationSeconds": e.ExpirationSeconds},
			"status":   map[string]any{"conditions": conditions}})
	}
	// changed is a message whose bundle was changed.
	changed := func(text []byte, change func(*csr.Bundle)) []byte {
		b, err := csr.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		change(b)
		if text, err = b.Marshal(); err != nil {
			t.Fatal(err)
		}
		return text
	}
	hello, answer := file("hello.pem"), file("answer.pem")
	secret, err := hex.DecodeString(e.RingKey.Secret)
	if err != nil {
		t.Fatal(err)
	}
	key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(secret, uint64(e.RingKey.ActiveAt.Unix())), 0)
	other := bytes.Clone(key)
	other[0] ^= 1
	ring := func(key []byte) []byte {
		return indented(map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string][]byte{e.RingKey.ID: key}})
	}
	approved := csr.Condition{Type: csr.ConditionApproved, Status: "True", Reason: csr.ReasonApproved}
	challenged := csr.Condition{Type: csr.ConditionDenied, Status: "True", Reason: "AttestationChallenge", Message: string(file("challenge.txt"))}
	flipped := changed(answer, func(b *csr.Bundle) { b.Data[bytes.Index(b.Data, file("signature.bin"))+40] ^= 1 })
	good := object("answer", e.SignerName, answer, e.AnswerCreated, approved)
	return map[string][]byte{
		"config.yaml": []byte(config), "inventory.yaml": []byte(inventory), "records.json": []byte(records), "root.pem": file("root.pem"),
		"ring.json": ring(key), "other-ring.json": ring(other), "answer.pem": answer, "answer.json": good,
		"hello.json":   object("hello", e.ChallengeSigner, hello, e.HelloCreated, challenged),
		"flipped.json": object("flipped", e.SignerName, flipped, e.AnswerCreated),
		"late.json":    object("late", e.SignerName, answer, e.AnswerCreated.Add(time.Hour)),
		"unknown.json": object("unknown", "cluster.x-k8s.io/kube-apiserver-client-kubelet-acme", changed(answer, func(b *csr.Bundle) { b.Provider = "acme/v1" }), e.AnswerCreated),
		"strange.json": object("strange", "cluster.x-k8s.io/kubelet-attestation-challenge-strange", changed(hello, func(b *csr.Bundle) {
			b.Provider, b.Data = "strange/v1", strangeHello(t, "cluster.x-k8s.io/kube-apiserver-client-kubelet-strange", "strange:1")
		}), e.HelloCreated),
		"bare.json":   object("bare", e.SignerName, changed(answer, func(b *csr.Bundle) { b.Provider, b.Data = "", nil }), e.AnswerCreated),
		"list.json":   []byte(`{"kind": "List", "items": [` + string(good) + `,` + string(object("flipped", e.SignerName, flipped, e.AnswerCreated)) + `]}`),
		"secret.json": []byte(`{"apiVersion": "v1", "kind": "Secret", "data": {"token": "c2VjcmV0"}}`),
		"key.pem":     pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("a secret")}),
		"ak.bin":      file("ak-public.bin"), "challenge.txt": file("challenge.txt"), "evidence.der": file("answer-evidence.der"),
		"audit.log": []byte(auditLog()),
	}
}
