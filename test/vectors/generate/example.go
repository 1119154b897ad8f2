package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// The worked example of docs/protocol.md stands between these lines.
const (
	exampleBegin = "<!-- example: written by make generate -->\n"
	exampleEnd   = "<!-- end of the example -->\n"
)

// writeExample writes the worked example of docs/protocol.md again, from the messages and the
// vector that are there.
func writeExample(root string) {
	page := filepath.Join(root, "docs", "protocol.md")
	text := string(forge.Must(os.ReadFile(page)))
	before, rest, begins := strings.Cut(text, exampleBegin)
	_, after, ends := strings.Cut(rest, exampleEnd)
	if !begins || !ends {
		forge.Check(errors.New("docs/protocol.md has no place for the example"))
	}
	writeFile(page, []byte(before+exampleBegin+exampleText(os.DirFS(root))+exampleEnd+after))
}

// exampleText is the example in Markdown.
func exampleText(root fs.FS) string {
	file := func(name string) []byte { return forge.Must(fs.ReadFile(root, "attest/testdata/messages/"+name)) }
	var e example
	forge.Check(json.Unmarshal(file("example.json"), &e))
	at := func(t time.Time) string { return t.Format(time.RFC3339) }
	var out page
	out.text("### An answer on the road of the AK certificate", "Both sides know, and the API server says:")
	out.block("text", field{"clusterID", e.ClusterID}, field{"signerName", e.SignerName}, field{"challengeSigner", e.ChallengeSigner},
		field{"requester", e.Requester}, field{"expirationSeconds", fmt.Sprint(e.ExpirationSeconds)}, field{"nodeName", e.NodeName},
		field{"machine", e.Machine}, field{"helloCreated", at(e.HelloCreated)}, field{"answerCreated", at(e.AnswerCreated)}, field{"verified", at(e.Verified)})
	out.text("The control plane has a key in its ring and trusts the AK's issuer (a certificate in DER). The node has a request and an AK, a primary key of the endorsement hierarchy:")
	out.block("text", field{"keyID", e.RingKey.ID}, field{"K", e.RingKey.Secret}, field{"root", first(file("root.pem"))}, field{"request", file("request.der")},
		field{"akPublic", file("ak-public.bin")})
	out.text("The node's `spec.request` of the hello, and the Hello in it:")
	out.raw("pem", file("hello.pem"))
	out.block("text", field{"hello", file("hello.der")})
	out.text("The control plane draws a nonce. What it derives, the Binding and the Challenge are:")
	out.block("text", field{"nonce", e.Nonce}, field{"requestHash", e.RequestHash}, field{"machineKey", e.MachineKey}, field{"binding", file("binding.der")},
		field{"S", e.Secret}, field{"challenge", file("challenge.der")})
	out.text("As the message of the condition:")
	out.raw("text", append(file("challenge.txt"), '\n'))
	out.text("The node derives the qualifying data and has its AK certify the request's key:")
	out.block("text", field{"qualifyingData", e.QualifyingData}, field{"akName", e.AKName}, field{"akQualifiedName", e.AKQualifiedName}, field{"keyName", e.KeyName},
		field{"keyPublic", file("key-public.bin")}, field{"attest", file("attest.bin")}, field{"signature", file("signature.bin")}, field{"proof", file("proof.der")})
	out.text("And it files the answer:")
	out.raw("pem", file("answer.pem"))
	var v vector.Vector
	forge.Check(json.Unmarshal(forge.Must(fs.ReadFile(root, "vectors/data/accepted/credential-p256.json")), &v))
	out.credential(v.Credential, v.Result.Secret)
	out.document(forge.Must(message.ParseBinding(file("binding.der"))), e.RingKey.Secret)
	return out.String() + "\n"
}

// first is the content of the first PEM block.
func first(text []byte) []byte {
	block, _ := pem.Decode(text)
	return block.Bytes
}

// page collects Markdown.
type page struct{ bytes.Buffer }

// field is one value: a text, or bytes that are shown in hexadecimal.
type field struct {
	name  string
	value any
}

func (p *page) text(paragraphs ...string) {
	for _, paragraph := range paragraphs {
		p.WriteByte('\n')
		width := 0
		for word := range strings.FieldsSeq(paragraph) {
			if width += len(word) + 1; width > 100 && width != len(word)+1 {
				p.WriteByte('\n')
				width = len(word) + 1
			} else if width != len(word)+1 {
				p.WriteByte(' ')
			}
			p.WriteString(word)
		}
		p.WriteByte('\n')
	}
}

func (p *page) raw(language string, text []byte) { fmt.Fprintf(p, "\n```%s\n%s```\n", language, text) }

// block shows values, bytes in lines of 40.
func (p *page) block(language string, fields ...field) {
	const perLine = 40
	var out bytes.Buffer
	for _, f := range fields {
		data, isHex := f.value.([]byte)
		if h, ok := f.value.(hexBytes); ok {
			data, isHex = h, true
		}
		switch {
		case !isHex:
			fmt.Fprintf(&out, "%s = %s\n", f.name, f.value)
		case len(data) <= perLine:
			fmt.Fprintf(&out, "%s = %x\n", f.name, data)
		default:
			fmt.Fprintf(&out, "%s =\n", f.name)
			for ; len(data) > 0; data = data[min(perLine, len(data)):] {
				fmt.Fprintf(&out, "    %x\n", data[:min(perLine, len(data))])
			}
		}
	}
	p.raw(language, out.Bytes())
}

// credential shows how a credential for an EK on P-256 is opened.
func (p *page) credential(c *vector.Credential, secret []byte) {
	key := forge.Must(x509.ParsePKCS8PrivateKey(c.EK)).(*ecdsa.PrivateKey)
	challenge := forge.Must(message.ParseChallenge(c.Challenge))
	ek := forge.Must(key.ECDH())
	point := challenge.Credential.EncryptedSecret
	ephemeral := forge.Must(ek.Curve().NewPublicKey(bytes.Join([][]byte{{4}, point[2:34], point[36:]}, nil)))
	z := forge.Must(ek.ECDH(ephemeral))
	own := ek.PublicKey().Bytes()[1:]
	seed := tpm2.KDFe(crypto.SHA256, z, "IDENTITY", point[2:34], own[:32], 256)
	p.text("### A credential for an EK on P-256",
		"The EK is in software here, so that its private number can be shown. The challenge is for an AK with this Name, under the key of the ring above:")
	p.block("text", field{"ekPrivate", ek.Bytes()}, field{"ekPoint", own}, field{"credentialAKName", c.AKName}, field{"credentialChallenge", c.Challenge},
		field{"idObject", challenge.Credential.IDObject}, field{"encryptedSecret", point})
	p.text("It opens by way of these values to S, which follows from the Binding as well:")
	p.block("text", field{"Z", z}, field{"seed", seed}, field{"hmacKey", tpm2.KDFa(crypto.SHA256, seed, "INTEGRITY", nil, nil, 256)},
		field{"aesKey", tpm2.KDFa(crypto.SHA256, seed, "STORAGE", c.AKName, nil, 128)}, field{"credentialS", secret})
}

// document shows the value that a document carries.
func (p *page) document(b *message.Binding, key []byte) {
	const machine, format = "gce:my-project/4242424242424242424", "gce/v1"
	b.Road, b.MachineKey, b.SignerName = message.RoadDocument, sha256.Sum256([]byte("nodeattest machine\x00"+machine)), "cluster.x-k8s.io/kube-apiserver-client-kubelet-gce"
	binding := forge.Must(b.Marshal())
	secret := message.Secret(key, format, binding)
	value := message.QualifyingData(secret, format, "document", binding)
	p.text("### The value of a document",
		"For a machine of Google Compute Engine, with the key, nonce, times, requester, cluster and request of the first example:")
	p.block("text", field{"documentMachine", machine}, field{"documentMachineKey", b.MachineKey[:]}, field{"documentBinding", binding},
		field{"documentS", secret}, field{"documentValue", value}, field{"audience", "nodeattest:" + base64.RawURLEncoding.EncodeToString(value)})
}

// UnmarshalText reads hexadecimal.
func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}
