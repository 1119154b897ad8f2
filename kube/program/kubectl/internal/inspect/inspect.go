// Package inspect shows certificate requests of nodes, and evidence, as an indented tree for
// people to read. It recognises the form of its input, reads each structure with this module's
// strict parsers, and decides nothing: it has no roots, challenge keys or records.
package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// MaxSize is the maximum size of one input, in bytes. A request that Kubernetes stores is
// smaller.
const MaxSize = 2 << 20

// Show writes what one input is: the PEM of a request; request objects in JSON or YAML, or a
// list of them, with their challenge and certificate; PKCS#10 requests and certificates in PEM
// or DER; statements in DER, structures of a TPM, with or without a size in front, and any
// other DER; or one of these in base64. Kinds read the messages of requests; they need not
// trust any issuer. It returns where and why reading stopped, for each fault; control characters
// in both are escaped. Secrets are not shown: of unknown octets it shows only the
// size.
func Show(w io.Writer, name string, input []byte, kinds []attest.Kind) (faults []string, err error) {
	t := &tree{kinds: kinds}
	t.in(name, sizeOf(len(input)), func() {
		if len(input) > MaxSize {
			t.fault(fmt.Sprintf("more than %d bytes", MaxSize))
			return
		}
		t.input(input)
	})
	_, err = w.Write(t.out.Bytes())
	return t.faults, err
}

const begin = "-----BEGIN "

// input recognises the form of an input from its content: files state no type.
func (t *tree) input(b []byte) {
	text := bytes.TrimSpace(b)
	switch {
	case len(text) == 0:
		t.fault("nothing there")
	case bytes.Contains(text, []byte(begin)) && text[0] == '-':
		t.pem(b)
	case text[0] == '{':
		t.object(b)
	case !printable(b):
		t.binary(b)
	case bytes.Contains(text, []byte("apiVersion:")):
		if text, err := configfile.JSON(b); err != nil {
			t.fault("refused: " + err.Error())
		} else {
			t.object(text)
		}
	default:
		t.base64(string(text))
	}
}

// printable reports whether b is text.
func printable(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(c rune) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' })
}

// base64 shows decoded base64: a challenge from a condition's message, or spec.request.
func (t *tree) base64(text string) {
	b, err := base64.StdEncoding.DecodeString(text) // which lets line ends through
	switch {
	case err != nil:
		t.fault("unknown form: " + err.Error())
	case bytes.HasPrefix(b, []byte(begin)):
		t.pem(b)
	default:
		t.binary(b)
	}
}

// object shows a CertificateSigningRequest as csr reads it, or a list of them. An object of
// another kind, a Secret for example, is not shown.
func (t *tree) object(text []byte) {
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err == nil && strings.HasSuffix(list.Kind, "List") {
		for i, item := range list.Items {
			t.in(fmt.Sprintf("item %d", i+1), "", func() { t.object(item) })
		}
		return
	}
	request, err := csr.ParseServerObject(text)
	if err != nil {
		t.fault("refused: " + err.Error())
		return
	}
	if len(request.Spec.Request) == 0 {
		t.fault("no spec.request: this is no CertificateSigningRequest")
	}
	shown, certificate, conditions := *request, request.Status.Certificate, request.Status.Conditions
	shown.Spec.Request, shown.Status = nil, csr.Status{}
	t.fields(reflect.ValueOf(shown))
	for _, c := range conditions {
		t.in("Condition", "", func() { t.condition(c) })
	}
	if len(certificate) > 0 {
		t.in("Certificate", sizeOf(len(certificate)), func() { t.pem(certificate) })
	}
	if text := request.Spec.Request; len(text) > 0 {
		t.in("Request", sizeOf(len(text)), func() { t.blocks(text); t.message(request.Parsed()) })
	}
}

func (t *tree) condition(c csr.Condition) {
	message := c.Message
	isChallenge := c.Reason == attest.ReasonChallenge
	if isChallenge {
		c.Message = ""
	}
	t.fields(reflect.ValueOf(c))
	if isChallenge {
		t.in("Message", sizeOf(len(message))+", a challenge", func() { t.base64(message) })
	}
}

// pem shows PEM, perhaps a request.
func (t *tree) pem(text []byte) {
	labels := t.blocks(text)
	switch {
	case labels[csr.BlockRequest] || labels[csr.BlockProvider] || labels[csr.BlockData]:
		t.message((&csr.Request{Spec: csr.Spec{Request: text}}).Parsed())
	case labels["CERTIFICATE"]:
		if _, err := tpmcert.ParseCertificatesPEM(text); err != nil {
			t.fault("refused: " + err.Error())
		}
	}
}

// blocks shows the blocks of PEM one after the other, and returns their labels. Text around them and blocks
// of other labels are not shown: they may hold a private key.
func (t *tree) blocks(text []byte) map[string]bool {
	labels := map[string]bool{}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		labels[block.Type], text = true, rest
		t.in("block "+refusal.Quote(block.Type), sizeOf(len(block.Bytes)), func() {
			switch block.Type {
			case csr.BlockRequest, "NEW CERTIFICATE REQUEST": // the latter from older tools
				t.request(block.Bytes)
			case "CERTIFICATE":
				t.structure("Certificate", block.Bytes)
			case "PUBLIC KEY":
				t.structure("SubjectPublicKeyInfo", block.Bytes)
			case csr.BlockProvider:
				t.line("content", refusal.Quote(string(block.Bytes)))
			case csr.BlockData:
				t.line("content", "below")
			default:
				t.line("content", "not shown")
			}
		})
	}
	if rest := bytes.TrimSpace(text); len(rest) > 0 || len(labels) == 0 {
		t.fault(sizeOf(len(rest)) + " outside a PEM block")
	}
	return labels
}

// message shows the bundle of a request.
func (t *tree) message(request *csr.Parsed) {
	bundle, err := request.Bundle()
	if err != nil {
		t.fault("refused: " + err.Error())
		return
	}
	if bundle.Provider == "" {
		t.line("evidence", "none")
		return
	}
	m, err := attest.ReadMessage(request, t.kinds...)
	t.in("message", "", func() {
		if errors.Is(err, csr.CheckAttestationProvider) || errors.Is(err, csr.CheckProviderVersion) {
			t.line("evidence", "of a kind that this program does not read")
		} else if err != nil {
			t.fault("refused: " + err.Error())
		}
		t.line("Provider", refusal.Text(bundle.Provider))
		if m.Stage != 0 {
			t.line("Stage", m.Stage.String())
			t.line("Road", m.Road.String())
			var repeated *echo // nil for a hello
			if len(m.KeyID) != 0 {
				repeated = &echo{m.KeyID, m.IssuedAt, m.NotAfter, m.Requester, m.ExpirationSeconds, m.MachineKeyHash, m.RequestHash}
			}
			t.fields(reflect.ValueOf(struct {
				ClusterID, TargetSigner string
				Machine                 attest.Identity
				MachineKey              []byte
				Echo                    *echo
			}{m.ClusterID, m.TargetSigner, m.Machine, m.MachineKey, repeated}))
		}
		for _, d := range m.Differences {
			t.line("differs from the request", d.Error())
		}
		if m.Evidence == nil {
			t.binary(bundle.Data)
			return
		}
		for _, s := range m.Evidence.Statements {
			t.in("statement "+nameOf(s.Type), sizeOf(len(s.DER)), func() { t.binary(s.DER) })
		}
		for i, c := range m.Evidence.Certificates {
			t.in(fmt.Sprintf("certificate %d", i+1), sizeOf(len(c)), func() { t.structure("Certificate", c) })
		}
	})
}

// echo is the part of an answer that repeats its challenge.
type echo struct {
	KeyID                       []byte
	IssuedAt, NotAfter          time.Time
	Requester                   string
	ExpirationSeconds           int32
	MachineKeyHash, RequestHash [32]byte
}
