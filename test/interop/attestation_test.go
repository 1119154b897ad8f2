package interop

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// hexBytes are bytes as the other side has them.
type hexBytes []byte

func (b hexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(b)), nil }

func (b *hexBytes) UnmarshalText(text []byte) (err error) {
	*b, err = hex.DecodeString(string(text))
	return err
}

// bundle is an AttestationBundle as the other side reads and writes it.
type bundle struct {
	Statements []stated   `json:"statements"`
	Certs      []hexBytes `json:"certs"`
	Other      string     `json:"other,omitempty"` // the format of Certs that are no certificates
	Again      hexBytes   `json:"again,omitempty"`
	Error      string     `json:"error,omitempty"`
}

type stated struct {
	Type    string              `json:"type"`
	Stmt    hexBytes            `json:"stmt,omitempty"`
	Fields  map[string]hexBytes `json:"fields,omitempty"`
	Wrapped bool                `json:"wrapped,omitempty"`
}

// python is the one that has pyasn1: Debian's may not be the first in PATH.
var python = sync.OnceValue(func() string {
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(candidate, "-c", "import pyasn1").Run() == nil {
			return candidate
		}
	}
	return ""
})

// pyasn1 has one request answered by the program in testdata.
func pyasn1(t *testing.T, request, answer any) {
	t.Helper()
	if python() == "" {
		t.Skip("no pyasn1: apt-get install -y python3 python3-pyasn1")
	}
	in, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python(), filepath.Join("testdata", "csr_attestation.py"))
	cmd.Stdin = bytes.NewReader(append(in, '\n'))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, answer); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func readThere(t *testing.T, data []byte) *bundle {
	t.Helper()
	var out bundle
	pyasn1(t, map[string]hexBytes{"read": data}, &out)
	return &out
}

func writtenThere(t *testing.T, b *bundle) []byte {
	t.Helper()
	var out struct {
		DER   hexBytes `json:"der"`
		Error string   `json:"error"`
	}
	pyasn1(t, map[string]*bundle{"write": b}, &out)
	if out.Error != "" {
		t.Fatal(out.Error)
	}
	return out.DER
}

// answered is a node's answer and the control plane that takes it, the evidence, and what its
// statements verify against.
type answered struct {
	plane   *attesttest.ControlPlane
	request *csr.Request
	pkcs10  []byte // DER
	data    []byte
	bundle  *message.Bundle
	ak      []byte // TPMT_PUBLIC
	certify statement.CertifyOptions
	quote   *statement.QuoteEvidence
}

func answerOf(t testing.TB, o attesttest.NodeOptions) *answered {
	t.Helper()
	node := attesttest.NewNode(t, o)
	plane := attesttest.NewControlPlane(t, node)
	request, err := plane.Evidence(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plane.Verifier.Verify(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	whole, err := csr.Parse(request.Spec.Request)
	if err != nil {
		t.Fatal(err)
	}
	a := &answered{plane: plane, request: request, pkcs10: whole.Request, data: whole.Data}
	if a.bundle, err = message.ParseBundle(whole.Data); err != nil {
		t.Fatal(err)
	}
	proof, _, err := message.ParseProof(a.bundle.Statements[1].Stmt)
	if err != nil {
		t.Fatal(err)
	}
	a.ak = proof.AKPublic
	a.certify = statement.CertifyOptions{AK: statement.AKFromCredential(a.ak), Key: node.Key.Public(), InsecureAllowAnyQualifyingData: true}
	if len(a.bundle.Statements) > 2 {
		if a.quote, err = statement.ParseQuote(a.bundle.Statements[2].Stmt); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// answers are answers of nodes on every road, with every AK, with and without a quote.
func answers(t *testing.T) map[string]*answered {
	t.Helper()
	device := tpmsim.New(t, tpmsim.Options{})
	return map[string]*answered{
		"road AK":               answerOf(t, attesttest.NodeOptions{TPM: device}),
		"road AK, a quote":      answerOf(t, attesttest.NodeOptions{TPM: device, TPMKey: tpmkey.ECDSAP256, Quote: tpm.DefaultPCRs()}),
		"road EK, RSAPSS":       answerOf(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, AK: tpm.AKSource{Template: tpm.AKTemplateRSA2048PSS()}}),
		"road EK, bare, P-384":  answerOf(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, BareEK: true, AK: tpm.AKSource{Template: tpm.AKTemplateECDSAP384()}, Quote: tpm.DefaultPCRs()}),
		"road EK, resident RSA": answerOf(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpm.EKP256(), TPMKey: tpmkey.RSA2048}),
	}
}

// Ours there: an answer is a bundle of the draft, in DER, whose certify statement has the
// fields that we wrote. Private values are passed on unchanged.
func TestBundlesReadByPyasn1(t *testing.T) {
	for name, a := range answers(t) {
		t.Run(name, func(t *testing.T) {
			got := readThere(t, a.data)
			if got.Error != "" {
				t.Fatal(got.Error)
			}
			if !bytes.Equal(got.Again, a.data) {
				t.Errorf("written again it is %x", got.Again)
			}
			certify, err := statement.ParseTCGAttestCertify(a.bundle.Statements[0].Stmt)
			if err != nil {
				t.Fatal(err)
			}
			want := &bundle{Again: a.data, Certs: []hexBytes{}}
			for _, s := range a.bundle.Statements {
				want.Statements = append(want.Statements, stated{Type: s.Type.String(), Stmt: s.Stmt})
			}
			want.Statements[0].Fields = map[string]hexBytes{"tpmSAttest": certify.Attest, "signature": certify.Signature, "tpmTPublic": certify.Public}
			for _, c := range a.bundle.Certificates {
				want.Certs = append(want.Certs, c)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			for _, cut := range []int{1, len(a.data) / 2, len(a.data) - 1} {
				if there := readThere(t, a.data[:cut]); there.Error == "" {
					t.Errorf("%d bytes of it are read there", cut)
				}
			}
		})
	}
}

// Theirs here: certify statements and quotes that they wrote are read and verify.
func TestBundlesWrittenByPyasn1(t *testing.T) {
	for name, a := range answers(t) {
		t.Run(name, func(t *testing.T) {
			there := readThere(t, a.data)
			there.Statements = there.Statements[:1]
			there.Statements[0].Stmt = nil
			if a.quote != nil {
				var values []byte
				for _, p := range a.quote.PCRs {
					values = append(values, p.Value...)
				}
				there.Statements = append(there.Statements, stated{Type: oid.TCGAttestTPMQuote.String(),
					Fields: map[string]hexBytes{"tpmSAttest": a.quote.Attest, "signature": a.quote.Signature, "pcrValues": values}})
			}
			got, err := message.ParseBundle(writtenThere(t, there))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(got.Certificates, a.bundle.Certificates, bytes.Equal) || got.Statements[0].Type != oid.TCGAttestTPMCertify {
				t.Errorf("%d certificates, %s", len(got.Certificates), got.Statements[0].Type)
			}
			certify, err := statement.ParseTCGAttestCertify(got.Statements[0].Stmt)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := statement.VerifyCertify(certify, a.certify); err != nil {
				t.Error(err)
			}
			if a.quote == nil {
				return
			}
			quote, err := statement.ParseTCGAttestQuote(got.Statements[1].Stmt)
			if err != nil {
				t.Fatal(err)
			}
			quoted, err := statement.VerifyQuote(quote, statement.QuoteOptions{AK: a.certify.AK, Selection: tpm.DefaultPCRs(), InsecureAllowAnyQualifyingData: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a.quote.PCRs, quoted.PCRs()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Forms that the draft allows and this SDK does not on purpose are refused with a reason.
func TestBundlesOfOthersRefused(t *testing.T) {
	a := answerOf(t, attesttest.NodeOptions{})
	for name, c := range map[string]struct {
		change func(*bundle)
		want   error
	}{
		"as it is":            {func(*bundle) {}, nil},
		"no certificates":     {func(b *bundle) { b.Certs = []hexBytes{} }, nil},
		"other certificates":  {func(b *bundle) { b.Other = "1.2.3.4" }, refusal.Check("message-encoding")},
		"a wrapped statement": {func(b *bundle) { b.Statements[0].Wrapped = true }, refusal.Check("message-encoding")},
		"nine statements":     {func(b *bundle) { b.Statements = slices.Repeat(b.Statements[:1], 9) }, refusal.Check("message-encoding")},
		"nine certificates":   {func(b *bundle) { b.Certs = slices.Repeat(b.Certs[:1], 9) }, refusal.Check("message-encoding")},
		"a larger certificate": {func(b *bundle) {
			b.Certs = []hexBytes{slices.Concat(hexBytes{0x30, 0x82, 0x40, 0}, make(hexBytes, 16<<10))}
		}, refusal.Check("message-size")},
	} {
		t.Run(name, func(t *testing.T) {
			b := readThere(t, a.data)
			c.change(b)
			got, err := message.ParseBundle(writtenThere(t, b))
			if err == nil {
				_, err = statement.ParseTCGAttestCertify(got.Statements[0].Stmt)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
