// Generate makes the test vectors of this module and the worked example of its
// messages.
//
//	generate [-index] [FOLDER]
//
// It writes vectors/data, vectors/INDEX.md and attest/testdata/messages below FOLDER, which is
// the repository unless it is given, replacing the present ones, and the worked example of
// docs/protocol.md. With -index it writes only INDEX.md and that example, from the files that are
// there. Good evidence comes from the reference simulator
// of a TPM; each attack is one change to it, or a statement that no TPM would make, signed by
// an attestation key in software that the same CA has certified. Keys, certificates, requests
// and nonces are derived from a seed and stay the same from run to run. Values that a TPM draws or
// counts itself differ: keys that it makes, its clock, ECDSA and RSAPSS signatures.
package main

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	defer forge.Caught(&err)
	indexOnly := len(args) > 0 && args[0] == "-index"
	if indexOnly {
		args = args[1:]
	}
	if len(args) > 1 {
		return errors.New("usage: generate [-index] [FOLDER]")
	}
	root := append(args, filepath.Join("..", ".."))[0]
	if indexOnly {
		writeIndex(root, forge.Must(vector.Load(os.DirFS(filepath.Join(root, "vectors", "data")))))
		writeExample(root)
		return nil
	}
	set, messages := generate()
	writeVectors(root, set)
	writeMessages(root, messages)
	writeExample(root)
	return nil
}

// writeVectors writes a set below root, replacing the classes that are there.
func writeVectors(root string, set *vector.Set) {
	dir := filepath.Join(root, "vectors", "data")
	byName(set)
	for _, class := range vector.Classes() {
		forge.Check(os.RemoveAll(filepath.Join(dir, class)))
	}
	writeJSON(filepath.Join(dir, vector.EnvironmentFile), &set.Environment)
	for i, v := range set.Vectors {
		if i > 0 && v.Class == set.Vectors[i-1].Class && v.Name == set.Vectors[i-1].Name {
			forge.Check(fmt.Errorf("two vectors %s/%s", v.Class, v.Name))
		}
		writeJSON(filepath.Join(dir, v.Class, v.Name+".json"), v)
	}
	writeIndex(root, set)
}

// byName sorts the vectors by class and name.
func byName(set *vector.Set) {
	slices.SortFunc(set.Vectors, func(a, b *vector.Vector) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.Name, b.Name))
	})
}

func writeIndex(root string, set *vector.Set) {
	byName(set)
	writeFile(filepath.Join(root, "vectors", "INDEX.md"), index(set))
}

func writeJSON(file string, v any) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	forge.Check(e.Encode(v))
	writeFile(file, out.Bytes())
}

func writeFile(file string, data []byte) {
	forge.Check(os.MkdirAll(filepath.Dir(file), 0o755))
	forge.Check(os.WriteFile(file, data, 0o644))
}

// index is a list of all vectors for human readers.
func index(set *vector.Set) []byte {
	var out bytes.Buffer
	out.WriteString("# The vectors\n\n`make generate` writes this list. [README.md](README.md) says how to read a file.\n")
	class := ""
	for _, v := range set.Vectors {
		if v.Class != class {
			class = v.Class
			fmt.Fprintf(&out, "\n## %s\n\n| file | level | expect | what an attacker changed |\n| --- | --- | --- | --- |\n", class)
		}
		expect := "accepted"
		if v.Expect != "" {
			expect = "`" + strings.Join(append([]string{v.Expect}, v.Also...), "` `") + "`"
		}
		if v.Retry {
			expect += " (try again)"
		}
		fmt.Fprintf(&out, "| [%s](data/%s/%s.json) | %s | %s | %s |\n", v.Name, v.Class, v.Name, v.Level, expect, v.Description)
	}
	return out.Bytes()
}

// messages is the worked example: a file for each message and each part of one, and
// example.json with the values that they are made from.
type messages struct {
	files   map[string][]byte
	example example
}

// hexBytes is hexadecimal in JSON: the example is for human readers.
type hexBytes []byte

// MarshalText returns lower-case hexadecimal.
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
	n := w.tpmNode(tpmkind.GCERSA(), &forge.Join{Expiration: 86400, Label: "nonce of the worked example"})
	hello := n.hello(w)
	challenge := n.challenge(w)
	answer := n.answer(w, challenge)
	h, a := forge.TakeApart(hello), forge.TakeApart(answer)
	m := &messages{files: map[string][]byte{
		"request.der":         a.Bundle.Request,
		"tls-key.pem":         []byte(forge.PEMBlock("PRIVATE KEY", pkcs8(w.TLS))),
		"ak-public.bin":       a.Proof.AKPublic,
		"ak-chain.pem":        []byte(forge.PEMBlock("CERTIFICATE", a.Evidence.Certificates[0]) + forge.PEMBlock("CERTIFICATE", a.Evidence.Certificates[1])),
		"root.pem":            []byte(forge.PEMBlock("CERTIFICATE", w.tpm.CA().Root().Raw)),
		"hello.der":           h.Evidence.Statements[0].Stmt,
		"hello-evidence.der":  h.Bundle.Data,
		"hello.pem":           hello.Spec.Request,
		"binding.der":         a.Proof.Binding,
		"challenge.der":       challenge,
		"challenge.txt":       []byte(attest.ChallengeDecision(challenge, nil).Message),
		"attest.bin":          a.Certify.Attest,
		"signature.bin":       a.Certify.Signature,
		"key-public.bin":      a.Certify.Public,
		"certify.der":         a.Evidence.Statements[0].Stmt,
		"proof.der":           a.Evidence.Statements[1].Stmt,
		"answer-evidence.der": a.Bundle.Data,
		"answer.pem":          answer.Spec.Request,
	}}
	m.example = n.example(w, a, hello, answer)
	w.otherRoad(m, a)
	return m
}

func (n *tpmNode) example(w *world, a *forge.Parts, hello, answer *csr.Request) example {
	secret, qd := n.Secrets(a.Binding)
	statement := forge.Must(statement.ParseAttestation(a.Certify.Attest))
	return example{
		NodeName: forge.NodeName, ProviderID: providerID, ClusterID: n.Cluster, SignerName: n.Signer, ChallengeSigner: hello.Spec.SignerName,
		Requester: n.Username, Groups: n.Groups, Usages: n.Usages, ExpirationSeconds: n.Expiration,
		HelloCreated: hello.Metadata.CreationTimestamp, AnswerCreated: answer.Metadata.CreationTimestamp, Verified: w.Now,
		RingKey: exampleKey{ID: n.Ring.ID[:], Secret: ringKey(n.Ring).Secret, ActiveAt: n.Ring.ActiveAt},
		Nonce:   a.Binding.Nonce[:], IssuedAt: a.Binding.IssuedAt, NotAfter: a.Binding.NotAfter,
		MachineKey: a.Binding.MachineKey[:], RequestHash: a.Binding.RequestHash[:],
		Secret: secret, QualifyingData: qd,
		AKName: n.public.Name(), AKQualifiedName: statement.QualifiedSigner, KeyName: statement.Certified.Name,
		Machine: forge.Identity("machine-1"),
	}
}

// otherRoad adds the messages of the road of the EK certificate, as encodings: the EK and the
// AK are the simulator's, and the credential is made of bytes that no TPM can open.
func (w *world) otherRoad(m *messages, a *forge.Parts) {
	ek := forge.SPKI(w.tpm.EKPublic(tpmsim.P256))
	b := *a.Binding
	b.Road, b.MachineKey, b.AKName = message.RoadEK, forge.Must(csr.SPKIHash(w.tpm.EKPublic(tpmsim.P256))), m.example.AKName
	binding := forge.Must(b.Marshal())
	credential := &message.Credential{IDObject: forge.Derive("idObject", 68), EncryptedSecret: forge.Derive("encryptedSecret", 68)}
	m.files["hello-ek.der"] = forge.Must((&message.Hello{Road: message.RoadEK, ClusterID: b.ClusterID, TargetSigner: b.SignerName,
		EKPublic: ek, AKPublic: a.Proof.AKPublic}).Marshal())
	m.files["binding-ek.der"] = binding
	m.files["challenge-ek.der"] = forge.Must((&message.Challenge{Binding: b, Credential: credential}).Marshal())
	m.files["proof-ek.der"] = forge.Must((&message.Proof{Binding: binding, EKPublic: ek, AKPublic: a.Proof.AKPublic}).Marshal())
}

// writeMessages writes the example below root.
func writeMessages(root string, m *messages) {
	dir := filepath.Join(root, "attest", "testdata", "messages")
	for _, old := range forge.Must(filepath.Glob(filepath.Join(dir, "*"))) {
		if filepath.Base(old) != "README.md" {
			forge.Check(os.Remove(old))
		}
	}
	for name, data := range m.files {
		writeFile(filepath.Join(dir, name), data)
	}
	writeJSON(filepath.Join(dir, "example.json"), &m.example)
}
