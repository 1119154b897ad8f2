package main

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// messages is the worked example: a file for each message and each part of one, and
// example.json with the values that they are made from.
type messages struct {
	files   map[string][]byte
	example example
}

// hexBytes is hexadecimal in JSON: the example is for people to read.
type hexBytes []byte

// MarshalText gives lower-case hexadecimal.
func (h hexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

// example is example.json.
type example struct {
	NodeName          string     `json:"nodeName"`
	ProviderID        string     `json:"providerID"`
	ClusterID         string     `json:"clusterID"`
	SignerName        string     `json:"signerName"`
	ChallengeSigner   string     `json:"challengeSigner"`
	Requester         string     `json:"requester"`
	Groups            []string   `json:"groups"`
	Usages            []string   `json:"usages"`
	ExpirationSeconds int32      `json:"expirationSeconds"`
	HelloCreated      time.Time  `json:"helloCreated"`
	AnswerCreated     time.Time  `json:"answerCreated"`
	Verified          time.Time  `json:"verified"`
	RingKey           exampleKey `json:"ringKey"`
	Nonce             hexBytes   `json:"nonce"`
	IssuedAt          int64      `json:"issuedAt"`
	NotAfter          int64      `json:"notAfter"`
	MachineKey        hexBytes   `json:"machineKey"`
	RequestHash       hexBytes   `json:"requestHash"`
	Secret            hexBytes   `json:"secret"`
	QualifyingData    hexBytes   `json:"qualifyingData"`
	AKName            hexBytes   `json:"akName"`
	AKQualifiedName   hexBytes   `json:"akQualifiedName"`
	KeyName           hexBytes   `json:"keyName"`
	Machine           string     `json:"machine"`
}

type exampleKey struct {
	ID       hexBytes  `json:"id"`
	Secret   hexBytes  `json:"secret"`
	ActiveAt time.Time `json:"activeAt"`
}

// messages makes the example with the simulator's RSA AK.
func (w *world) messages() *messages {
	n := w.tpmNode(tpm.GCERSA(), &join{expiration: 86400, label: "nonce of the worked example"})
	hello := n.hello(w)
	challenge := n.challenge(w)
	answer := n.answer(w, challenge)
	h, a := takeApart(hello), takeApart(answer)
	m := &messages{files: map[string][]byte{
		"request.der":         a.bundle.Request,
		"tls-key.pem":         []byte(pemBlock("PRIVATE KEY", pkcs8(w.tls))),
		"ak-public.bin":       a.proof.AKPublic,
		"ak-chain.pem":        []byte(pemBlock("CERTIFICATE", a.evidence.Certificates[0]) + pemBlock("CERTIFICATE", a.evidence.Certificates[1])),
		"root.pem":            []byte(pemBlock("CERTIFICATE", w.tpm.CA().Root().Raw)),
		"hello.der":           h.evidence.Statements[0].Stmt,
		"hello-evidence.der":  h.bundle.Data,
		"hello.pem":           hello.Spec.Request,
		"binding.der":         a.proof.Binding,
		"challenge.der":       challenge,
		"challenge.txt":       []byte(attest.ChallengeMessage(challenge)),
		"attest.bin":          a.certify.Attest,
		"signature.bin":       a.certify.Signature,
		"key-public.bin":      a.certify.Public,
		"certify.der":         a.evidence.Statements[0].Stmt,
		"proof.der":           a.evidence.Statements[1].Stmt,
		"answer-evidence.der": a.bundle.Data,
		"answer.pem":          answer.Spec.Request,
	}}
	m.example = n.example(w, a, hello, answer)
	w.otherRoad(m, a)
	return m
}

func (n *tpmNode) example(w *world, a *parts, hello, answer *csr.Request) example {
	secret, qd := n.secrets(a.binding)
	statement := must(tpm.ParseAttestation(a.certify.Attest))
	return example{
		NodeName: nodeName, ProviderID: providerID, ClusterID: n.cluster, SignerName: n.signer, ChallengeSigner: hello.Spec.SignerName,
		Requester: n.username, Groups: n.groups, Usages: n.usages, ExpirationSeconds: n.expiration,
		HelloCreated: hello.Metadata.CreationTimestamp, AnswerCreated: answer.Metadata.CreationTimestamp, Verified: w.now,
		RingKey: exampleKey{ID: must(hex.DecodeString(n.ring.ID)), Secret: n.ring.Secret, ActiveAt: n.ring.ActiveAt},
		Nonce:   a.binding.Nonce[:], IssuedAt: a.binding.IssuedAt, NotAfter: a.binding.NotAfter,
		MachineKey: a.binding.MachineKey[:], RequestHash: a.binding.RequestHash[:],
		Secret: secret, QualifyingData: qd,
		AKName: n.public.Name(), AKQualifiedName: statement.QualifiedSigner, KeyName: statement.Certified.Name,
		Machine: identity("machine-1"),
	}
}

// otherRoad adds the messages of the road of the EK certificate, as encodings: the
// EK and the AK are the simulator's, the credential is made of bytes that no TPM
// opens.
func (w *world) otherRoad(m *messages, a *parts) {
	ek := spki(w.tpm.EKPublic(tpmsim.P256))
	b := *a.binding
	b.Road, b.MachineKey, b.AKName = attest.RoadEK, must(csr.SPKIHash(w.tpm.EKPublic(tpmsim.P256))), m.example.AKName
	binding := must(b.Marshal())
	credential := &attest.Credential{IDObject: derive("idObject", 68), EncryptedSecret: derive("encryptedSecret", 68)}
	m.files["hello-ek.der"] = must((&attest.Hello{Road: attest.RoadEK, ClusterID: b.ClusterID, TargetSigner: b.SignerName,
		EKPublic: ek, AKPublic: a.proof.AKPublic}).Marshal())
	m.files["binding-ek.der"] = binding
	m.files["challenge-ek.der"] = must((&attest.Challenge{Binding: b, Credential: credential}).Marshal())
	m.files["proof-ek.der"] = must((&attest.Proof{Binding: binding, EKPublic: ek, AKPublic: a.proof.AKPublic}).Marshal())
}

// writeMessages writes the example below root.
func writeMessages(root string, m *messages) error {
	dir := filepath.Join(root, "attest", "testdata", "messages")
	old, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, entry := range old {
		if entry.Name() != "README.md" {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	for name, data := range m.files {
		if err := writeFile(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dir, "example.json"), &m.example)
}
