package tpm_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// akCA is an operator's own CA for AKs.
type akCA struct {
	cert *x509.Certificate
	key  crypto.Signer
	id   string // the cluster ID of enrolments
}

func newAKCA(t *testing.T) *akCA {
	t.Helper()
	key := newKey(t, elliptic.P256())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "AK CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.NoError(t, err)
	ca := &akCA{key: key}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if ca.id, err = attest.ClusterID(ca.cert); err != nil {
		t.Fatal(err)
	}
	return ca
}

// enrolling is a machine that enrols with a CA, and the CA's verifier, which knows it.
func (ca *akCA) enrolling(t *testing.T, o attesttest.NodeOptions) *stage {
	t.Helper()
	o.Road, o.ClusterID = attest.RoadEK, ca.id
	s := &stage{node: attesttest.NewNode(t, o)}
	s.plane = attesttest.NewControlPlane(t, s.node)
	s.plane.Config.Policy.ClusterIDs = []string{ca.id}
	s.plane.Verifier = planeVerifier(t, s.plane)
	return s
}

// enrol runs the exchange.
func (ca *akCA) enrol(ctx context.Context, s *stage) (*tpmcert.AKCertificate, error) {
	answer, err := s.plane.Evidence(ctx, s.node)
	if err != nil {
		return nil, err
	}
	result, err := s.plane.Verifier.Verify(ctx, answer)
	if err != nil {
		return nil, err
	}
	return ca.certify(ctx, result)
}

func (ca *akCA) certify(ctx context.Context, r *attest.Result) (*tpmcert.AKCertificate, error) {
	template, err := tpmkind.EnrolledAK(r, ca.cert)
	if err != nil {
		return nil, err
	}
	template.NotBefore = time.Now().Add(-time.Minute).Truncate(time.Second)
	template.NotAfter = template.NotBefore.Add(time.Hour)
	return tpmcert.CreateAKCertificate(ctx, template, ca.cert, ca.key)
}

// joining is the machine with the certificate, before a cluster that trusts the CA.
func (ca *akCA) joining(t *testing.T, s *stage, source tpmkind.AKSource, made *tpmcert.AKCertificate) (*attesttest.Node, *attest.Verifier) {
	t.Helper()
	node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: s.node.TPM, AK: source, TPMKey: tpmkey.ECDSAP256,
		Certificates: [][]byte{made.Chain[0].Raw}})
	plane := attesttest.NewControlPlane(t, node)
	plane.TPM.AKIssuers = []tpmcert.Issuer{{Roots: []*x509.Certificate{ca.cert}, Profile: tpmcert.ProfileTCG()}}
	return node, planeVerifier(t, plane)
}

func join(ctx context.Context, node *attesttest.Node, v *attest.Verifier) (*attest.Result, error) {
	hello, err := node.Hello(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	challenge, err := v.Challenge(ctx, hello)
	if err != nil {
		return nil, err
	}
	answer, err := node.Answer(ctx, challenge, time.Now())
	if err != nil {
		return nil, err
	}
	return v.Verify(ctx, answer)
}

func TestEnrolmentOnTheSimulator(t *testing.T) {
	testEnrolment(t, tpmsim.New(t, everyEK()), ekOrigins())
}

func TestEnrolmentOnSwtpm(t *testing.T) {
	device, origins := swtpmWithEveryEK(t)
	testEnrolment(t, device, origins)
}

// Every AK enrols with every EK, and joins by its certificate. The machine is its EK's,
// whichever AK it has.
func testEnrolment(t *testing.T, device *tpmsim.TPM, origins map[string]tpmkind.EKOrigin) {
	ca := newAKCA(t)
	for ekName, ek := range origins {
		machines := map[attest.Identity]bool{}
		for akName, template := range akTemplates() {
			source := tpmkind.AKSource{Template: template}
			s := ca.enrolling(t, attesttest.NodeOptions{TPM: device, EK: ek, AK: source})
			made, err := ca.enrol(t.Context(), s)
			if err != nil {
				t.Fatal(ekName, akName, err)
			}
			machines[made.Machine] = true
			if made.Directory.Model == "" {
				t.Errorf("%s, %s: no TPM model", ekName, akName)
			}
			node, verifier := ca.joining(t, s, source, made)
			r, err := join(t.Context(), node, verifier)
			if err != nil {
				t.Fatal(ekName, akName, err)
			}
			if r.Road != attest.RoadAK || r.Machine != made.Machine || r.ClusterID != attesttest.ClusterID || !r.TPMResident || !tpmkind.DetailsOf(r).AKPrimary || r.ManyIdentities != "" {
				t.Errorf("%s, %s: road %s, %s, want %s", ekName, akName, r.Road, r.Machine, made.Machine)
			}
		}
		if len(machines) != 1 {
			t.Errorf("%s: one machine is %v", ekName, machines)
		}
	}
	noHandles(t, device)
}

// A certificate is kept in NV, with the AK.
func TestEnrolmentToNV(t *testing.T) {
	const index = 0x01800017
	ca := newAKCA(t)
	source := tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256(), CertificateIndex: index}
	s := ca.enrolling(t, attesttest.NodeOptions{AK: source})
	made, err := ca.enrol(t.Context(), s)
	testkit.NoError(t, err)
	testkit.NoError(t, tpmkey.WriteNVCertificate(t.Context(), s.node.Shared, index, made.Chain[0].Raw, tpmkey.NVCertificateOptions{}))
	node, verifier := ca.joining(t, s, source, made)
	node.Attester = attesterOf(t, s.node.Shared, source, tpmkind.ProverOptions{})
	if _, err := join(t.Context(), node, verifier); err != nil {
		t.Error(err)
	}
}

// An AK that is not proven to this CA gets no certificate.
func TestEnrolmentRefuses(t *testing.T) {
	ctx := t.Context()
	ca, device := newAKCA(t), tpmsim.New(t, everyEK())
	ak := tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}
	s := ca.enrolling(t, attesttest.NodeOptions{TPM: device, EK: tpmkind.EKP256(), AK: ak})
	challenge, err := s.plane.Challenge(ctx, s.node)
	testkit.NoError(t, err)
	if s.good, err = s.node.Answer(ctx, challenge, s.plane.Now()); err != nil {
		t.Fatal(err)
	}
	refused := func(name string, err error, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	verify := func(change func(*parts)) error {
		t.Helper()
		p := takeApart(t, s.good)
		change(p)
		_, err := s.plane.Verifier.Verify(ctx, p.together(t))
		return err
	}

	// The secret opens for this EK and this AK, and here alone.
	otherEK := attesterOf(t, device, ak, tpmkind.ProverOptions{EK: new(tpmkind.EKRSA2048()), Intermediates: [][]byte{device.CA().EKIntermediate().Raw}})
	_, err = otherEK.Answer(ctx, challenge, s.node.Certified, s.node.Subject)
	refused("another EK", err, attest.CheckBindingMachineKey)
	otherSource := tpmkind.AKSource{Template: tpmkind.AKTemplateRSA2048SHA256()}
	otherAK := attesterOf(t, device, otherSource, tpmkind.ProverOptions{EK: new(tpmkind.EKP256()), Intermediates: [][]byte{device.CA().EKIntermediate().Raw}})
	_, err = otherAK.Answer(ctx, challenge, s.node.Certified, s.node.Subject)
	refused("another AK", err, refusal.Check("binding-ak-name"))
	other := ca.enrolling(t, attesttest.NodeOptions{TPM: device, EK: tpmkind.EKP256(), AK: otherSource})
	foreign, err := other.node.Answer(ctx, mustChallenge(t, other), s.plane.Now())
	testkit.NoError(t, err)
	refused("the statement of another AK", verify(func(p *parts) { p.certify = takeApart(t, foreign).certify }), attest.CheckQualifyingData)
	refused("another AK's area", verify(func(p *parts) { p.proof.AKPublic = takeApart(t, foreign).proof.AKPublic }), refusal.Check("binding-ak-name"))

	// Nor does it open twice, or later, or for others.
	again, err := s.plane.Challenge(ctx, s.node)
	testkit.NoError(t, err)
	fresh, err := s.node.Answer(ctx, again, s.plane.Now())
	testkit.NoError(t, err)
	refused("an old secret", verify(func(p *parts) {
		p.proof.Binding, p.binding = takeApart(t, fresh).proof.Binding, takeApart(t, fresh).binding
	}), attest.CheckQualifyingData)
	refused("another requester", verify(func(p *parts) { p.request.User.Username = "system:bootstrap:mallor" }), attest.CheckBindingRequester)
	s.plane.Advance(11 * time.Minute)
	refused("an ended session", verify(func(p *parts) { p.request.Metadata.CreationTimestamp = s.plane.Now().Truncate(time.Second) }), attest.CheckAnswerLate)
	s.plane.Advance(-11 * time.Minute)

	// Another CA, or a cluster, takes no part in it.
	rival := newAKCA(t)
	_, err = s.plane.Challenge(ctx, rival.enrolling(t, attesttest.NodeOptions{TPM: device, EK: tpmkind.EKP256(), AK: ak}).node)
	refused("a hello to another CA", err, attest.CheckBindingCluster)
	clustered := newStage(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, EK: tpmkind.EKP256(), AK: ak})
	_, err = clustered.plane.Verifier.Verify(ctx, s.good)
	refused("an enrolment as a join", err, attest.CheckBindingCluster)
	joined, err := clustered.plane.Verifier.Verify(ctx, clustered.good)
	testkit.NoError(t, err)
	_, err = ca.certify(ctx, joined)
	refused("a join as an enrolment", err, attest.CheckBindingCluster)

	// A result proves an AK only on the road of the EK, and at its end.
	result, err := s.plane.Verifier.Verify(ctx, s.good)
	testkit.NoError(t, err)
	if _, err := ca.certify(ctx, result); err != nil {
		t.Error("the good one:", err)
	}
	_, err = rival.certify(ctx, result)
	refused("a result of another CA", err, attest.CheckBindingCluster)
	_, err = tpmkind.EnrolledAK(nil, ca.cert)
	refused("no result", err, refusal.Check("enrolment"))
	if _, err = tpmkind.EnrolledAK(result, nil); err == nil || errors.Is(err, attest.CheckBindingCluster) {
		t.Errorf("no CA: %v", err)
	}
	ofAnotherKind := *result
	ofAnotherKind.Details = nil
	_, err = tpmkind.EnrolledAK(&ofAnotherKind, ca.cert)
	refused("a result of another kind", err, refusal.Check("enrolment"))
	onAK := newStage(t, attesttest.NodeOptions{TPM: device})
	byCertificate, err := onAK.plane.Verifier.Verify(ctx, onAK.good)
	testkit.NoError(t, err)
	byCertificate.ClusterID = ca.id
	_, err = ca.certify(ctx, byCertificate)
	refused("a result on the road of the AK", err, refusal.Check("enrolment"))
	var undecided error
	s.plane.Config.Authorizer = attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		_, undecided = tpmkind.EnrolledAK(r, ca.cert)
		return nil, attest.NotMember("no machine of the operator's")
	})
	_, err = planeVerifier(t, s.plane).Verify(ctx, s.good)
	refused("no member", err, attest.CheckMembership)
	refused("a result before the decision", undecided, refusal.Check("enrolment"))
}

func mustChallenge(t *testing.T, s *stage) []byte {
	t.Helper()
	challenge, err := s.plane.Challenge(t.Context(), s.node)
	testkit.NoError(t, err)
	return challenge
}

// A key that is no AK gets no challenge.
func TestEnrolmentOfOtherKeys(t *testing.T) {
	s := newAKCA(t).enrolling(t, attesttest.NodeOptions{})
	for name, c := range map[string]struct{ set, clear statement.Attributes }{
		"not restricted": {0, statement.AttributeRestricted},
		"decrypts":       {statement.AttributeDecrypt, 0},
		"not fixed":      {0, statement.AttributeFixedTPM},
		"from outside":   {0, statement.AttributeSensitiveDataOrigin},
	} {
		t.Run(name, func(t *testing.T) {
			request := changedHello(t, s, func(h *message.Hello, _ *message.Bundle) { changeAK(t, h, c.set, c.clear) })
			if _, err := s.plane.Verifier.Challenge(t.Context(), request); !errors.Is(err, refusal.Check("ak-attributes")) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// An EK that is not trusted, or was revoked, gets no challenge, nor a certificate if it
// was revoked since.
func TestEnrolmentOfOtherEKs(t *testing.T) {
	ctx := t.Context()
	seed := []byte("a CA whose key the test knows")
	maker, err := tpmsim.NewCA(tpmsim.CAOptions{Seed: seed})
	testkit.NoError(t, err)
	raw, err := hkdf.Key(sha256.New, seed, nil, "tpmsim CA key EK CA 0", 32)
	testkit.NoError(t, err)
	makersKey, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	testkit.NoError(t, err)
	ca, device := newAKCA(t), tpmsim.New(t, tpmsim.Options{CA: maker})
	s := ca.enrolling(t, attesttest.NodeOptions{TPM: device, EK: tpmkind.EKP256()})
	answer, err := s.plane.Evidence(ctx, s.node)
	testkit.NoError(t, err)
	stranger, err := tpmsim.NewCA(tpmsim.CAOptions{})
	testkit.NoError(t, err)
	list := func(number *big.Int) []byte {
		t.Helper()
		der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1),
			ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour),
			RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: number, RevocationTime: time.Now().Add(-time.Hour)}},
		}, maker.EKIntermediate(), makersKey)
		testkit.NoError(t, err)
		return der
	}
	for name, c := range map[string]struct {
		root *x509.Certificate
		list []byte
		want error
	}{
		"trusted, not revoked": {maker.Root(), list(big.NewInt(7777)), nil},
		"another maker's":      {stranger.Root(), nil, tpmcert.CheckCertificateChain},
		"revoked":              {maker.Root(), list(device.EKCertificate(tpmsim.P256).SerialNumber), refusal.Check("certificate-revoked")},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := tpmcert.EKIssuer{Roots: []*x509.Certificate{c.root}, Profile: tpmcert.EKProfileTCG()}
			if c.list != nil {
				if issuer.CRLs, err = tpmcert.NewCRLStore(c.list); err != nil {
					t.Fatal(err)
				}
			}
			if s.plane.TPM.EKs, err = tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{issuer}}); err != nil {
				t.Fatal(err)
			}
			s.plane.Verifier = planeVerifier(t, s.plane)
			_, err := s.plane.Challenge(ctx, s.node)
			if !errors.Is(err, c.want) {
				t.Errorf("%s, hello: %v", name, err)
			}
			if _, err := s.plane.Verifier.Verify(ctx, answer); !errors.Is(err, c.want) {
				t.Errorf("%s, answer: %v", name, err)
			}
		})
	}
}

// The certificate is the AK's and of no other, and no other CA's.
func TestCertificateOfAnotherAK(t *testing.T) {
	ca, device := newAKCA(t), tpmsim.New(t, tpmsim.Options{})
	source := tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}
	s := ca.enrolling(t, attesttest.NodeOptions{TPM: device, AK: source})
	made, err := ca.enrol(t.Context(), s)
	testkit.NoError(t, err)
	node, verifier := ca.joining(t, s, source, made)
	node.Attester = attesterOf(t, device, tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP384()}, tpmkind.ProverOptions{Certificates: node.Certificates})
	if _, err := join(t.Context(), node, verifier); !errors.Is(err, statement.CheckAKMismatch) {
		t.Errorf("another AK: %v", err)
	}
	_, rivals := newAKCA(t).joining(t, s, source, made)
	node, _ = ca.joining(t, s, source, made)
	if _, err := join(t.Context(), node, rivals); !errors.Is(err, tpmcert.CheckCertificateChain) {
		t.Errorf("another CA: %v", err)
	}
}
