package goattestation

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	goattest "github.com/google/go-attestation/attest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// benchmarked is one answer with everything that the benchmarks need of it.
type benchmarked struct {
	*answered
	key      crypto.PublicKey // of the AK
	leaf     *x509.Certificate
	middle   *x509.Certificate
	root     *x509.Certificate
	digest   [sha256.Size]byte
	rsaSig   []byte
	ecdsaSig []byte
}

// newBenchmarked joins with a key that the TPM made: go-attestation certifies no
// others.
func newBenchmarked(b *testing.B, opts attesttest.NodeOptions) *benchmarked {
	b.Helper()
	opts.TPMKey = tpmkey.ECDSAP256
	a := answerOf(b, opts)
	out := &benchmarked{answered: a, root: opts.TPM.CA().Root(),
		key:  testkit.Must(testkit.Must(statement.ParsePublic(a.ak)).Key()),
		leaf: tpmlab.Parsed(b, a.bundle.Certificates[0]), middle: tpmlab.Parsed(b, a.bundle.Certificates[1])}
	out.digest = sha256.Sum256(out.certify.Attest)
	signature := testkit.Must(statement.ParseSignature(out.certify.Signature))
	if out.rsaSig = signature.RSA; out.rsaSig == nil {
		out.ecdsaSig = testkit.Must(signature.MarshalECDSA())
	}
	return out
}

// statementSignature is the AK's signature, checked bare.
func (m *benchmarked) statementSignature(b *testing.B) {
	switch key := m.key.(type) {
	case *rsa.PublicKey:
		if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, m.digest[:], m.rsaSig); err != nil {
			b.Fatal(err)
		}
	case *ecdsa.PublicKey:
		if !ecdsa.VerifyASN1(key, m.digest[:], m.ecdsaSig) {
			b.Fatal("bad signature")
		}
	}
}

// publicKeyOperations are the operations of a verifier without a cache: the request's, the
// statement's, the leaf's, and with cold the intermediate's signature.
func (m *benchmarked) publicKeyOperations(b *testing.B, request *x509.CertificateRequest, cold bool) {
	if err := request.CheckSignature(); err != nil {
		b.Fatal(err)
	}
	m.statementSignature(b)
	if err := m.leaf.CheckSignatureFrom(m.middle); err != nil {
		b.Fatal(err)
	}
	if cold {
		if err := m.middle.CheckSignatureFrom(m.root); err != nil {
			b.Fatal(err)
		}
	}
}

// parsing is the standard library's part: the request, the leaf, and with cold the
// intermediate.
func (m *benchmarked) parsing(b *testing.B, cold bool) *x509.CertificateRequest {
	request, err := x509.ParseCertificateRequest(m.pkcs10)
	if err != nil {
		b.Fatal(err)
	}
	certificates := m.bundle.Certificates[:1]
	if cold {
		certificates = m.bundle.Certificates[:2]
	}
	for _, der := range certificates {
		if _, err := x509.ParseCertificate(der); err != nil {
			b.Fatal(err)
		}
	}
	return request
}

// goAttestation is the same work with the peer: go-attestation for the statement,
// crypto/x509 for the chain and the request. It does not look at qualifying data,
// policy, profile or membership. A nil pool of intermediates means that it takes
// the intermediate from the evidence, as a verifier does that meets it first.
func (m *benchmarked) goAttestation(b *testing.B, roots, intermediates *x509.CertPool) {
	request := m.parsing(b, false)
	if intermediates == nil {
		middle, err := x509.ParseCertificate(m.bundle.Certificates[1])
		if err != nil {
			b.Fatal(err)
		}
		intermediates = x509.NewCertPool()
		intermediates.AddCert(middle)
	}
	if err := request.CheckSignature(); err != nil {
		b.Fatal(err)
	}
	parameters := goattest.CertificationParameters{Public: m.certify.Public, // as CertificationParameters gives them
		CreateAttestation: m.certify.Attest, CreateSignature: m.certify.Signature}
	if err := parameters.Verify(goattest.VerifyOpts{Public: m.key, Hash: crypto.SHA256}); err != nil {
		b.Fatal(err)
	}
	leaf := *m.leaf
	leaf.UnhandledCriticalExtensions = nil
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: time.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkVerify runs its rows by turns, so that all of them meet the same
// machine, and gives medians: ns-ours of one verification, and its cost as a
// multiple of the bare operations (x-ops), of those and the standard library's
// parsing (x-ops+parse), of the peer's work on what others have decoded for it (x-peer), and
// of that on what we get, a request's PEM (x-peer+pem). The peer has no memory.
//
// "again" is a verifier that has seen the machine's certificates before, as at a hello, and
// remembers their signatures; "machine" one that has seen the intermediate alone, with
// another machine; "first" one that has seen neither. The operations and the peer's work
// have the leaf's signature in each of them, and the intermediate's, and its parsing, in
// "first".
func BenchmarkVerify(b *testing.B) {
	device := bothAKs(b)
	for name, opts := range map[string]attesttest.NodeOptions{
		"RSA":             {TPM: device, AK: tpm.GCERSA()},
		"ECDSA":           {TPM: device, AK: tpm.GCEECC()},
		"EK-P256/RSA":     {TPM: device, Road: attest.RoadEK, EK: tpm.EKP256(), AK: tpm.AKSource{Template: tpm.AKTemplateRSA2048SHA256()}},
		"EK-RSA2048/P256": {TPM: device, Road: attest.RoadEK, EK: tpm.EKRSA2048(), AK: tpm.AKSource{Template: tpm.AKTemplateECDSAP256()}},
	} {
		m := newBenchmarked(b, opts)
		forget := func(intermediates bool) func() {
			return func() { tpmlab.ForgetSignatures(m.plane.Config.Kinds[0], intermediates) }
		}
		b.Run(name+"/again", func(b *testing.B) { m.race(b, false, func() {}) })
		b.Run(name+"/machine", func(b *testing.B) { m.race(b, false, forget(false)) })
		b.Run(name+"/first", func(b *testing.B) { m.race(b, true, forget(true)) })
	}
}

// bothAKs is a TPM with certificates of an RSA and of an ECC AK.
func bothAKs(b *testing.B) *tpmsim.TPM {
	return tpmsim.New(b, tpmsim.Options{AKs: []tpmsim.AK{{}, {Algorithm: tpmsim.P256}}})
}

func (m *benchmarked) race(b *testing.B, first bool, before func()) {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(m.root)
	intermediates.AddCert(m.middle)
	if first {
		intermediates = nil
	}
	parsed := m.parsing(b, false)
	rows := []func(){
		func() {
			if _, err := m.plane.Verifier.Verify(context.Background(), m.request); err != nil {
				b.Fatal(err)
			}
		},
		func() { m.publicKeyOperations(b, parsed, first) },
		func() { m.publicKeyOperations(b, m.parsing(b, first), first) },
		func() { m.goAttestation(b, roots, intermediates) },
		func() {
			for block, rest := pem.Decode(m.request.Spec.Request); block != nil; block, rest = pem.Decode(rest) {
			}
			m.goAttestation(b, roots, intermediates)
		},
	}
	tpmlab.ByTurns(b, before, []string{"x-ops", "x-ops+parse", "x-peer", "x-peer+pem"}, rows...)
}

// BenchmarkVerifyAlone is one verification, for profiles: with certificates seen before, with the intermediate
// alone seen before, and the first.
func BenchmarkVerifyAlone(b *testing.B) {
	m := newBenchmarked(b, attesttest.NodeOptions{TPM: bothAKs(b), AK: tpm.GCEECC()})
	for name, before := range map[string]func(){
		"again":   func() {},
		"machine": func() { tpmlab.ForgetSignatures(m.plane.Config.Kinds[0], false) },
		"first":   func() { tpmlab.ForgetSignatures(m.plane.Config.Kinds[0], true) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				before()
				if _, err := m.plane.Verifier.Verify(context.Background(), m.request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
