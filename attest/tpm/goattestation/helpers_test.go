package goattestation

import (
	"reflect"
	"testing"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// onBoth runs a test on two TPMs, and go-attestation on each. The EKs are persistent: it wants
// an ECC EK at its handle.
func onBoth(t *testing.T, test func(t *testing.T, device transport.TPM, client *goattest.TPM, simulated *tpmsim.TPM)) {
	t.Helper()
	for name, open := range map[string]func(testing.TB, tpmsim.Options) *tpmsim.TPM{"simulator": tpmsim.New, "swtpm": tpmsim.Swtpm} {
		t.Run(name, func(t *testing.T) {
			simulated := open(t, tpmsim.Options{PersistEKs: true})
			device := tpmkey.Share(simulated)
			client := clientOf(t, device)
			test(t, device, client, simulated)
			testkit.NoError(t, client.Close())
			tpmlab.CheckNothingLoaded(t, device)
		})
	}
}

// clientOf is go-attestation on a TPM that others use too.
func clientOf(t testing.TB, device transport.TPM) *goattest.TPM {
	t.Helper()
	channel, err := NewChannel(device, nil)
	testkit.NoError(t, err)
	client, err := goattest.OpenTPM(&goattest.OpenConfig{CommandChannel: channel})
	testkit.NoError(t, err)
	return client
}

// same fails unless both are the same value.
func same(t testing.TB, want, got any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// answered is a node's answer, the control plane that took it, and its statements.
type answered struct {
	plane   *attesttest.ControlPlane
	request *csr.Request
	pkcs10  []byte // DER
	bundle  *message.Bundle
	ak      []byte // TPMT_PUBLIC
	certify *statement.CertifyEvidence
	quote   *statement.QuoteEvidence // nil without one
}

func answerOf(t testing.TB, o attesttest.NodeOptions) *answered {
	t.Helper()
	node := attesttest.NewNode(t, o)
	a := &answered{plane: attesttest.NewControlPlane(t, node)}
	var err error
	a.request, err = a.plane.Evidence(t.Context(), node)
	testkit.NoError(t, err)
	_, err = a.plane.Verifier.Verify(t.Context(), a.request)
	testkit.NoError(t, err)
	a.read(t)
	return a
}

// read takes the request apart.
func (a *answered) read(t testing.TB) {
	t.Helper()
	whole, err := csr.Parse(a.request.Spec.Request)
	testkit.NoError(t, err)
	a.pkcs10 = whole.Request
	a.bundle, err = message.ParseBundle(whole.Data)
	testkit.NoError(t, err)
	proof, _, err := message.ParseProof(a.bundle.Statements[1].Stmt)
	testkit.NoError(t, err)
	a.ak = proof.AKPublic
	a.certify, err = statement.ParseTCGAttestCertify(a.bundle.Statements[0].Stmt)
	testkit.NoError(t, err)
	if len(a.bundle.Statements) > 2 {
		a.quote, err = statement.ParseQuote(a.bundle.Statements[2].Stmt)
		testkit.NoError(t, err)
	}
}
