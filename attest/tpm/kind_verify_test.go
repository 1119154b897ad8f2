package tpm_test

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// parts is an answer taken apart, to be changed and put together again.
type parts struct {
	request *csr.Request
	bundle  *csr.Bundle
	att     *message.Bundle
	certify *statement.CertifyEvidence
	proof   *message.Proof
	binding *message.Binding
}

func takeApart(t testing.TB, request *csr.Request) *parts {
	t.Helper()
	r := *request
	p := &parts{request: &r}
	var err error
	if p.bundle, err = csr.Parse(r.Spec.Request); err != nil {
		t.Fatal(err)
	}
	if p.att, err = message.ParseBundle(p.bundle.Data); err != nil {
		t.Fatal(err)
	}
	if p.certify, err = statement.ParseTCGAttestCertify(p.att.Statements[0].Stmt); err != nil {
		t.Fatal(err)
	}
	if p.proof, _, err = message.ParseProof(p.att.Statements[1].Stmt); err != nil {
		t.Fatal(err)
	}
	if p.binding, err = message.ParseBinding(p.proof.Binding); err != nil {
		t.Fatal(err)
	}
	return p
}

// together encodes the parts again, from the innermost outwards.
func (p *parts) together(t testing.TB) *csr.Request {
	t.Helper()
	ok := func(der []byte, err error) []byte {
		t.Helper()
		testkit.NoError(t, err)
		return der
	}
	p.proof.Binding = ok(p.binding.Marshal())
	if len(p.att.Statements) >= 2 {
		p.att.Statements[0].Stmt = ok(statement.MarshalTCGAttestCertify(p.certify))
		p.att.Statements[1].Stmt = ok(p.proof.Marshal())
	}
	p.bundle.Data = ok(p.att.Marshal())
	p.request.Spec.Request = ok(p.bundle.Marshal())
	return p.request
}

// stage is one node and one control plane, with a good answer between them.
type stage struct {
	node  *attesttest.Node
	plane *attesttest.ControlPlane
	good  *csr.Request
	// challenge is the one that the answer is for.
	challenge []byte
}

// plainNode are the options of a node as it comes.
var plainNode attesttest.NodeOptions

func newStage(t testing.TB, opts attesttest.NodeOptions) *stage {
	t.Helper()
	s := &stage{node: attesttest.NewNode(t, opts)}
	s.plane = attesttest.NewControlPlane(t, s.node)
	var err error
	if s.challenge, err = s.plane.Challenge(context.Background(), s.node); err != nil {
		t.Fatal(err)
	}
	if s.good, err = s.node.Answer(context.Background(), s.challenge, s.plane.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.plane.Verifier.Verify(context.Background(), s.good); err != nil {
		t.Fatalf("the good answer: %v", err)
	}
	return s
}

// Every field of the binding is refused with its own check when it is changed,
// and so is every frame around it.
func TestChangedAnswer(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{})
	ctx := context.Background()
	for name, c := range map[string]struct {
		change func(*parts)
		want   error
	}{
		"road":               {func(p *parts) { p.binding.Road = message.RoadEK; p.binding.AKName = make([]byte, 34) }, attest.CheckBindingRoad},
		"key id":             {func(p *parts) { p.binding.KeyID[0] ^= 1 }, refusal.Check("ring-key")},
		"nonce":              {func(p *parts) { p.binding.Nonce[0] ^= 1 }, attest.CheckQualifyingData},
		"issuedAt":           {func(p *parts) { p.binding.IssuedAt-- }, attest.CheckQualifyingData},
		"notAfter":           {func(p *parts) { p.binding.NotAfter++ }, attest.CheckQualifyingData},
		"notAfter stretched": {func(p *parts) { p.binding.NotAfter = p.binding.IssuedAt + 3601 }, refusal.Check("binding-window")},
		"window reversed":    {func(p *parts) { p.binding.NotAfter = p.binding.IssuedAt - 1 }, refusal.Check("binding-window")},
		"cluster":            {func(p *parts) { p.binding.ClusterID = "other" }, attest.CheckBindingCluster},
		"signer":             {func(p *parts) { p.binding.SignerName = csr.SignerServingTPM }, attest.CheckBindingSigner},
		"requester":          {func(p *parts) { p.binding.Requester = "system:bootstrap:mallor" }, attest.CheckBindingRequester},
		"expirationSeconds":  {func(p *parts) { p.binding.ExpirationSeconds = 600 }, attest.CheckBindingExpiration},
		"machineKey":         {func(p *parts) { p.binding.MachineKey[0] ^= 1 }, attest.CheckBindingMachineKey},
		"requestHash":        {func(p *parts) { p.binding.RequestHash[0] ^= 1 }, attest.CheckBindingRequest},

		"another requester files it": {func(p *parts) { p.request.User.Username = "system:bootstrap:mallor" }, attest.CheckBindingRequester},
		"another lifetime":           {func(p *parts) { s := int32(3600); p.request.Spec.ExpirationSeconds = &s }, attest.CheckBindingExpiration},
		"no evidence":                {func(p *parts) { p.bundle.Provider, p.bundle.Data = "", nil }, csr.CheckAttestationProvider},
		"another version":            {func(p *parts) { p.bundle.Provider = "tpm/v2" }, csr.CheckProviderVersion},
		"insecure provider":          {func(p *parts) { p.bundle.Provider = "insecure/v1" }, csr.CheckAttestationProvider},
		"statements swapped":         {func(p *parts) { st := p.att.Statements; st[0].Type, st[1].Type = st[1].Type, st[0].Type }, attest.CheckStatements},
		"a third statement": {func(p *parts) {
			p.att.Statements = append(p.att.Statements, message.Statement{Type: oid.NodeAttestHello, Stmt: []byte{5, 0}})
		}, attest.CheckStatements},
		"no quote": {func(p *parts) {
			p.att.Statements = append(p.att.Statements, message.Statement{Type: oid.NodeAttestQuote, Stmt: []byte{5, 0}})
		}, refusal.Check("message-encoding")},
		"no certificate":          {func(p *parts) { p.att.Certificates = nil }, refusal.Check("certificate-missing")},
		"certificate of the CA":   {func(p *parts) { p.att.Certificates = p.att.Certificates[1:] }, statement.CheckAKMismatch},
		"no intermediate":         {func(p *parts) { p.att.Certificates = p.att.Certificates[:1] }, tpmcert.CheckCertificateChain},
		"root sent along":         {func(p *parts) { p.att.Certificates = append(p.att.Certificates, s.node.TPM.CA().Root().Raw) }, refusal.Check("certificate-order")},
		"a certificate too many":  {func(p *parts) { p.att.Certificates = append(p.att.Certificates, s.node.TPM.CA().EKIntermediate().Raw) }, refusal.Check("certificate-order")},
		"no tpmTPublic":           {func(p *parts) { p.certify.Public = nil }, refusal.Check("message-encoding")},
		"public area swapped":     {func(p *parts) { p.certify.Public = p.proof.AKPublic }, refusal.Check("certified-name")},
		"akPublic of another key": {func(p *parts) { p.proof.AKPublic = p.certify.Public }, statement.CheckAKMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			p := takeApart(t, s.good)
			if p.bundle.Provider == "" {
				t.Fatal("no evidence")
			}
			c.change(p)
			request := p.request
			if p.bundle.Data != nil {
				request = p.together(t)
			} else if pem, err := p.bundle.Marshal(); err != nil {
				t.Fatal(err)
			} else {
				request.Spec.Request = pem
			}
			_, err := s.plane.Verifier.Verify(ctx, request)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
			if d := csr.Decide(err); d.Verdict != csr.VerdictDeny {
				t.Errorf("%s: the decision is %v, want a denial", name, d)
			}
		})
	}
}

// The window: an answer is good from 60 s before its challenge to the end of the
// window, by the time that the API server gave it, for an hour.
func TestAnswerTimes(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{})
	ctx := context.Background()
	p := takeApart(t, s.good)
	issued := p.binding.Issued()
	for name, c := range map[string]struct {
		created, now time.Duration // since issuedAt
		want         error
	}{
		"at once":               {0, time.Second, nil},
		"60 s early":            {-60 * time.Second, time.Second, nil},
		"61 s early":            {-61 * time.Second, time.Second, refusal.Check("answer-early")},
		"at the end":            {message.DefaultWindow, message.DefaultWindow, nil},
		"a second late":         {message.DefaultWindow + time.Second, message.DefaultWindow + time.Second, attest.CheckAnswerLate},
		"verified after 1 h":    {0, message.MaxAnswerAge, nil},
		"verified later":        {0, message.MaxAnswerAge + time.Second, attest.CheckAnswerOld},
		"created in the future": {5 * time.Second, 4 * time.Second, refusal.Check("request-in-the-future")},
	} {
		t.Run(name, func(t *testing.T) {
			config := s.plane.Config
			config.Now = func() time.Time { return issued.Add(c.now) }
			request := *s.good
			request.Metadata.CreationTimestamp = issued.Add(c.created)
			_, err := newVerifier(t, &config).Verify(ctx, &request)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
			if retry := errors.Is(err, refusal.ErrRetry); retry != (c.want == refusal.Check("request-in-the-future")) { //nolint:errorlint // a row of the table
				t.Errorf("%s: retry is %v", name, retry)
			}
		})
	}
}

// A change to any byte of the answer is refused: of the statement, the binding,
// the certificates and the request.
func TestEveryByte(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{})
	ctx := context.Background()
	good := takeApart(t, s.good)
	flip := func(name string, part []byte, put func(p *parts, changed []byte)) {
		for n := range part {
			changed := bytes.Clone(part)
			changed[n] ^= 1 << (n % 8)
			p := takeApart(t, s.good)
			put(p, changed)
			der, err := p.att.Marshal()
			if err != nil {
				continue // no bundle at all
			}
			p.bundle.Data = der
			pem, err := p.bundle.Marshal()
			if err != nil {
				continue
			}
			p.request.Spec.Request = pem
			r, err := s.plane.Verifier.Verify(ctx, p.request)
			if err == nil {
				t.Errorf("%s: byte %d of %d: accepted as %s", name, n, len(part), r.Machine)
			} else if d := csr.Decide(err); d.Verdict == csr.VerdictApprove {
				t.Errorf("%s: byte %d: %v", name, n, d)
			}
		}
	}
	flip("request", good.bundle.Request, func(p *parts, b []byte) { p.bundle.Request = b })
	flip("certify", good.att.Statements[0].Stmt, func(p *parts, b []byte) { p.att.Statements[0].Stmt = b })
	flip("proof", good.att.Statements[1].Stmt, func(p *parts, b []byte) { p.att.Statements[1].Stmt = b })
	for i, c := range good.att.Certificates {
		flip("certificate", c, func(p *parts, b []byte) { p.att.Certificates[i] = b })
	}
	for n := range s.good.Spec.Request {
		changed := bytes.Clone(s.good.Spec.Request)
		changed[n] ^= 1
		request := *s.good
		request.Spec.Request = changed
		if _, err := s.plane.Verifier.Verify(ctx, &request); err == nil {
			t.Errorf("PEM: byte %d: accepted", n)
		}
	}
}

// Evidence for one request says nothing about another: another node's name,
// another key, another signer.
func TestReplayForAnotherRequest(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{})
	ctx := context.Background()
	evidence := takeApart(t, s.good).bundle
	other, err := csr.Create(csr.PurposeClient, s.node.Key, "node-2", csr.CreateOptions{ProviderID: attesttest.ProviderID})
	testkit.NoError(t, err)
	s.node.Name = "node-2"
	testkit.NoError(t, s.plane.Admit(s.node))
	object := func(request []byte) *csr.Request {
		again, err := *s.good, error(nil)
		if again.Spec.Request, err = (&csr.Bundle{Request: request, Provider: evidence.Provider, Data: evidence.Data}).Marshal(); err != nil {
			t.Fatal(err)
		}
		return &again
	}
	request := object(other)
	if _, err := s.plane.Verifier.Verify(ctx, request); !errors.Is(err, attest.CheckBindingRequest) {
		t.Errorf("another node's name: got %v", err)
	}
	s.node.Name = attesttest.NodeName
	other, err = csr.Create(csr.PurposeClient, newKey(t, elliptic.P256()), attesttest.NodeName, csr.CreateOptions{ProviderID: attesttest.ProviderID})
	testkit.NoError(t, err)
	request = object(other)
	if _, err := s.plane.Verifier.Verify(ctx, request); !errors.Is(err, attest.CheckBindingRequest) {
		t.Errorf("another key: got %v", err)
	}
	request = new(csr.Request)
	*request = *s.good
	request.Spec.SignerName = csr.SignerServingTPM
	if _, err := s.plane.Verifier.Verify(ctx, request); err == nil {
		t.Error("another signer: accepted")
	}
}

// criticalExtension is unknown to every reader.
func criticalExtension() pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}, Critical: true, Value: []byte{5, 0}}
}

// liveBytes is the size of the heap that is in use.
func liveBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Membership has the last word, at both stages.
func TestMembership(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{})
	ctx := context.Background()
	verdicts := map[string]struct {
		authorizer  attest.AuthorizerFunc
		want, hello error
		verdict     csr.Verdict
	}{
		"not a member": {func(context.Context, *attest.Result) (*attest.Authorization, error) {
			return nil, attest.NotMember("gone")
		}, attest.CheckMembership, attest.CheckMembership, csr.VerdictDeny},
		"nothing said": {func(context.Context, *attest.Result) (*attest.Authorization, error) {
			return nil, nil
		}, attest.CheckMembership, nil, csr.VerdictDeny}, // at the hello nothing is against it
		"database down": {func(context.Context, *attest.Result) (*attest.Authorization, error) {
			return nil, errors.New("connection refused")
		}, refusal.ErrRetry, refusal.ErrRetry, csr.VerdictRetry},
		"another provider ID": {func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			return as("sim://other")(r), nil
		}, refusal.Check("provider-id"), nil, csr.VerdictDeny}, // which is compared at the answer
	}
	for name, c := range verdicts {
		config := s.plane.Config
		config.Authorizer = &atHellos{c.authorizer}
		v := newVerifier(t, &config)
		_, err := v.Verify(ctx, s.good)
		if !errors.Is(err, c.want) || csr.Decide(err).Verdict != c.verdict {
			t.Errorf("%s: got %v, %v", name, err, csr.Decide(err))
		}
		hello, err := s.node.Hello(ctx, s.plane.Now())
		testkit.NoError(t, err)
		if _, err := v.Challenge(ctx, hello); !errors.Is(err, c.hello) {
			t.Errorf("%s, hello: got %v", name, err)
		}
	}
}

// The AK certificate: each fault has its check.
func TestAKCertificates(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	ctx := context.Background()
	noUsage, encipher := x509.KeyUsage(0), x509.KeyUsageKeyEncipherment
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		options tpmsim.CertificateOptions
		want    error
	}{
		"CA":                  {tpmsim.CertificateOptions{IsCA: true}, refusal.Check("certificate-is-ca")},
		"expired":             {tpmsim.CertificateOptions{NotBefore: past.Add(-time.Hour), NotAfter: past}, refusal.Check("certificate-expired")},
		"not yet valid":       {tpmsim.CertificateOptions{NotBefore: future, NotAfter: future.Add(time.Hour)}, refusal.Check("certificate-not-yet-valid")},
		"no EKU":              {tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{}}, refusal.Check("certificate-ext-key-usage")},
		"EK's EKU":            {tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}}, refusal.Check("certificate-ext-key-usage")},
		"both EKUs":           {tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate, oid.TCGKpEKCertificate}}, refusal.Check("certificate-ext-key-usage")},
		"no key usage":        {tpmsim.CertificateOptions{KeyUsage: &noUsage}, refusal.Check("certificate-key-usage")},
		"EK's key usage":      {tpmsim.CertificateOptions{KeyUsage: &encipher}, refusal.Check("certificate-key-usage")},
		"Google's, under TCG": {tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle}, refusal.Check("certificate-ext-key-usage")},
		"unknown critical extension": {tpmsim.CertificateOptions{Edit: func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, criticalExtension())
		}}, refusal.Check("certificate-extension")},
	} {
		t.Run(name, func(t *testing.T) {
			source := tpmkind.GCERSA()
			leaf, err := device.CA().IssueAK(device.AKPublic(tpmsim.RSA2048), c.options)
			if err != nil {
				t.Fatal(name, err)
			}
			node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, AK: source, Certificates: [][]byte{leaf.Raw, device.CA().AKIntermediate().Raw}})
			plane := attesttest.NewControlPlane(t, node)
			_, err = plane.Challenge(ctx, node)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		})
	}
}

// An EK certificate is no AK certificate, whatever the profile's mistakes.
func TestEKCertificateAsAK(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{})
	p := takeApart(t, s.good)
	p.att.Certificates[0] = s.node.TPM.EKCertificate(tpmsim.RSA2048).Raw
	p.att.Certificates[1] = s.node.TPM.CA().EKIntermediate().Raw
	if _, err := s.plane.Verifier.Verify(context.Background(), p.together(t)); !errors.Is(err, statement.CheckAKMismatch) {
		t.Errorf("got %v", err)
	}
}

// A stranger's TPM, with an issuer of its own, is refused for its chain; one of
// the right issuer for its membership.
func TestStranger(t *testing.T) {
	ctx := context.Background()
	ours := newStage(t, attesttest.NodeOptions{})
	stranger := attesttest.NewNode(t, attesttest.NodeOptions{TPM: tpmsim.Swtpm(t, tpmsim.Options{})})
	if _, err := ours.plane.Challenge(ctx, stranger); !errors.Is(err, tpmcert.CheckCertificateChain) {
		t.Errorf("another issuer: got %v", err)
	}
	neighbour := attesttest.NewNode(t, attesttest.NodeOptions{TPM: tpmsim.Swtpm(t, tpmsim.Options{CA: ours.node.TPM.CA()})})
	if _, err := ours.plane.Challenge(ctx, neighbour); !errors.Is(err, attest.CheckMembership) {
		t.Errorf("the same issuer: got %v", err)
	}
	// It gets a challenge as itself, and answers it with the first node's request.
	neighbour.Name = "node-2"
	testkit.NoError(t, ours.plane.Admit(neighbour))
	_, err := neighbour.Attester.Answer(ctx, ours.challenge, neighbour.Certified, neighbour.Subject)
	if !errors.Is(err, attest.CheckBindingMachineKey) {
		t.Errorf("a node that is asked to answer for another: got %v", err)
	}
}

// 10,000 challenges leave nothing behind.
func TestChallengesKeepNoState(t *testing.T) {
	s := newStage(t, attesttest.NodeOptions{})
	ctx := context.Background()
	hello, err := s.node.Hello(ctx, s.plane.Now())
	testkit.NoError(t, err)
	seen := map[string]bool{}
	heap := func(rounds int) uint64 {
		for range rounds {
			der, err := s.plane.Verifier.Challenge(ctx, hello)
			testkit.NoError(t, err)
			if len(seen) < 100 {
				seen[string(der)] = true
			}
		}
		return liveBytes()
	}
	before := heap(500)
	after := heap(10_000)
	if after > before+64<<10 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	if len(seen) != 100 {
		t.Errorf("%d of 100 challenges differ", len(seen))
	}
}
