package forge

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// naive verifies answers as plainly as can be, one check after the other, and
// forgets the named ones. It shares no check with package attest.
type naive struct {
	w      *world
	forget map[string]bool
	policy *csr.Policy
	tidy   bool // reads the request as a lenient PEM reader would
}

// naiveRefusal is a refusal by one check.
type naiveRefusal string

func (r naiveRefusal) Error() string      { return "naive: " + string(r) }
func (r naiveRefusal) DenyReason() string { return "Naive" }
func (r naiveRefusal) Unwrap() error      { return checkNaive }

// checkNaive is the check of every refusal by a naive provider.
const checkNaive refusal.Check = "naive"

func newNaive(w *world, forget ...string) *naive {
	n := &naive{w: w, forget: map[string]bool{}, policy: w.Config.Policy}
	for _, f := range forget {
		n.forget[f] = true
	}
	return n
}

// must is a check: it fails unless ok, or forgotten.
func (n *naive) must(check string, ok bool) error {
	if ok || n.forget[check] {
		return nil
	}
	return naiveRefusal(check)
}

func (n *naive) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return n.verify(ctx, r)
}

func (n *naive) VerifyServingAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return n.verify(ctx, r)
}

func (n *naive) MachineName(_ context.Context, a *csr.Attested) (string, error) {
	return a.InventoryName()
}

// naiveAnswer is a parsed answer.
type naiveAnswer struct {
	checked *csr.Checked
	request *csr.Request
	certify *statement.CertifyEvidence
	proof   *message.Proof
	binding *message.Binding
	attest  *statement.Attestation
	public  *statement.Public
	ak      *statement.Public
	leaf    *x509.Certificate
	above   *x509.CertPool
	// ek is on the road of the EK, and quote where there is one.
	road  attest.Road
	ek    *naiveEK
	quote *message.Statement
}

func (n *naive) verify(ctx context.Context, parsed *csr.Parsed) (*csr.Attested, error) {
	if n.tidy {
		parsed = tidied(parsed.Request()).Parsed()
	}
	checked, err := n.policy.Check(ctx, parsed)
	if err != nil {
		if n.forget["retry"] && errors.Is(err, refusal.ErrRetry) {
			return nil, naiveRefusal("retry")
		}
		return nil, err
	}
	a := &naiveAnswer{checked: checked, request: parsed.Request()}
	for _, step := range []func(*naiveAnswer) error{n.read, n.checkBinding, n.checkTimes, n.checkChallenge, n.checkStatement,
		n.checkKey, n.checkAK, n.checkSignature, n.checkCertificate, n.checkEK, n.checkQuote} {
		if err := step(a); err != nil {
			return nil, err
		}
	}
	m := checked.Machine()
	found := a.identity()
	if err := n.must("membership", n.w.expects(m.Name, a.road, found, a.trustedKey())); err != nil {
		return nil, err
	}
	return checked.Vouch(string(found), csr.Grant{ProviderID: m.ProviderID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}, nil), nil
}

// read takes the evidence apart.
func (n *naive) read(a *naiveAnswer) error {
	bundle := a.checked.Bundle()
	if err := n.must("version", bundle.Provider == "tpm/v1"); err != nil {
		return err
	}
	evidence, err := message.ParseBundle(bundle.Data)
	if err != nil {
		return naiveRefusal("bundle")
	}
	for _, s := range evidence.Statements {
		switch s.Type {
		case oid.TCGAttestTPMCertify:
			a.certify, err = statement.ParseTCGAttestCertify(s.Stmt)
		case oid.NodeAttestProof:
			a.proof, _, err = message.ParseProof(s.Stmt)
		case oid.NodeAttestQuote:
			a.quote = &s
		}
		if err != nil {
			return naiveRefusal("statement")
		}
	}
	if a.certify == nil || a.proof == nil {
		return naiveRefusal("statements")
	}
	s := evidence.Statements
	if err := n.must("statements", (len(s) == 2 || len(s) == 3 && s[2].Type == oid.NodeAttestQuote) && s[0].Type == oid.TCGAttestTPMCertify); err != nil {
		return err
	}
	if a.binding, err = message.ParseBinding(a.proof.Binding); err != nil {
		return naiveRefusal("binding")
	}
	if a.ak, err = statement.ParsePublic(a.proof.AKPublic); err != nil {
		return naiveRefusal("ak")
	}
	if err := n.readCarrier(a, evidence.Certificates); err != nil {
		return err
	}
	return n.readStatement(a)
}

// readCarrier reads certificates, and the EK.
func (n *naive) readCarrier(a *naiveAnswer, certificates [][]byte) (err error) {
	a.above = x509.NewCertPool()
	for i, der := range certificates {
		c, err := x509.ParseCertificate(der)
		switch {
		case err != nil:
			return naiveRefusal("certificate")
		case i == 0:
			a.leaf = c
		default:
			a.above.AddCert(c)
		}
	}
	a.road = attest.Road(a.binding.Road)
	if n.forget["road"] {
		a.road = n.guessRoad(a)
	}
	if err := n.must("closed", a.road == n.w.options.road); err != nil {
		return err
	}
	if a.road == attest.RoadEK {
		return n.readEK(a)
	}
	if a.leaf == nil {
		return naiveRefusal("certificate")
	}
	return nil
}

// readStatement reads the TPM structures, without the forgotten checks.
func (n *naive) readStatement(a *naiveAnswer) error {
	raw := bytes.Clone(a.certify.Attest)
	if err := n.must("magic", len(raw) > 6 && bytes.Equal(raw[:4], []byte{0xff, 'T', 'C', 'G'})); err != nil {
		return err
	}
	copy(raw, []byte{0xff, 'T', 'C', 'G'})
	if err := n.must("type", bytes.Equal(raw[4:6], []byte{0x80, 0x17})); err != nil {
		return err
	}
	if raw[5] != 0x18 { // a quote keeps its form
		raw[5] = 0x17
	}
	var err error
	if a.attest, err = statement.ParseAttestation(raw); err != nil && n.forget["trailing-bytes"] {
		a.attest, err = statement.ParseAttestation(raw[:len(raw)-1])
	}
	if err != nil {
		return naiveRefusal("attest")
	}
	if a.public, err = statement.ParsePublic(a.certify.Public); err != nil && n.forget["trailing-bytes"] {
		a.public, err = statement.ParsePublic(a.certify.Public[:len(a.certify.Public)-1])
	}
	if err != nil {
		return naiveRefusal("public")
	}
	return nil
}

func (n *naive) checkBinding(a *naiveAnswer) error {
	var lifetime int32
	if s := a.request.Spec.ExpirationSeconds; s != nil {
		lifetime = *s
	}
	b, name := a.binding, []byte(nil)
	if a.road == attest.RoadEK {
		name = a.ak.Name()
	}
	return errors.Join(
		n.must("road", attest.Road(b.Road) == n.guessRoad(a)),
		n.must("ak-name", bytes.Equal(b.AKName, name) || attest.Road(b.Road) != a.road),
		n.must("cluster", b.ClusterID == attesttest.ClusterID),
		n.must("signer", b.SignerName == a.request.Spec.SignerName),
		n.must("requester", b.Requester == a.request.User.Username),
		n.must("lifetime", b.ExpirationSeconds == lifetime),
		n.must("machine-key", b.MachineKey == a.machineKey()),
		n.must("request", b.RequestHash == a.checked.PKCS10().InfoHash))
}

func (n *naive) checkTimes(a *naiveAnswer) error {
	b, created := a.binding, a.request.Metadata.CreationTimestamp
	return errors.Join(
		n.must("window", b.NotAfter >= b.IssuedAt && b.NotAfter <= b.IssuedAt+3600),
		n.must("late", !created.After(b.Expires())),
		n.must("early", !created.Before(b.Issued().Add(-time.Minute))),
		n.must("old", n.w.Now().Sub(created) <= time.Hour))
}

func (n *naive) checkChallenge(a *naiveAnswer) error {
	key := n.w.bench.Ring
	retired := a.binding.KeyID == n.w.bench.Retired.ID
	if retired {
		key = n.w.bench.Retired
	}
	if err := errors.Join(n.must("retired-key", !retired), n.must("unknown-key", a.binding.KeyID == key.ID)); err != nil {
		return err
	}
	qd := QualifyingData(Secret(secretOf(&key), a.proof.Binding), a.proof.Binding)
	got := a.attest.ExtraData
	if n.forget["qualifying-data-length"] {
		qd = qd[:min(len(got), len(qd))]
	}
	if n.forget["unknown-key"] && a.binding.KeyID != key.ID {
		return nil
	}
	return n.must("qualifying-data", bytes.Equal(got, qd))
}

func (n *naive) checkStatement(a *naiveAnswer) error {
	if a.attest.Certified == nil {
		return n.must("type", false)
	}
	name, qn := a.attest.Certified.Name, a.attest.Certified.QualifiedName
	return errors.Join(
		n.must("name", bytes.Equal(name, a.public.Name())),
		n.must("name-algorithm", a.public.NameAlg != tpm2.TPMAlgSHA1),
		n.must("qualified-name", len(qn) == len(name) && len(qn) > 2 && bytes.Equal(qn[:2], name[:2])),
		n.must("residence-claim", !bytes.Equal(name, qn) || !a.public.Attributes.HasAny(statement.AttributeFixedTPM|statement.AttributeFixedParent)),
		n.must("residence", !n.w.options.resident || a.public.Attributes.Has(statement.AttributeFixedTPM) && !bytes.Equal(name, qn)))
}

func (n *naive) checkKey(a *naiveAnswer) error {
	at := a.public.Attributes
	return errors.Join(
		n.must("request-key", a.public.SameKey(a.checked.PKCS10().CSR.PublicKey)),
		n.must("ak-is-key", !a.ak.SameKey(a.checked.PKCS10().CSR.PublicKey)),
		n.must("key-restricted", !at.Has(statement.AttributeRestricted)),
		n.must("key-x509sign", !at.Has(statement.AttributeX509Sign)),
		n.must("key-sign", at.Has(statement.AttributeSign)),
		n.must("key-fixed", at.Has(statement.AttributeFixedTPM) == at.Has(statement.AttributeFixedTPM|statement.AttributeFixedParent)))
}

func (n *naive) checkAK(a *naiveAnswer) error {
	at, signer := a.ak.Attributes, a.attest.QualifiedSigner
	return errors.Join(
		n.must("ak-sign", at.Has(statement.AttributeSign)),
		n.must("ak-encrypted-duplication", !at.Has(statement.AttributeEncryptedDuplication)),
		n.must("ak-symmetric", a.ak.Symmetric.Alg == tpm2.TPMAlgNull),
		n.must("qualified-signer", len(signer) == len(a.ak.Name()) && bytes.Equal(signer[:2], a.ak.Name()[:2]) && !bytes.Equal(signer, a.ak.Name())),
		n.must("ak-restricted", at.Has(statement.AttributeRestricted)),
		n.must("ak-fixed", at.Has(statement.AttributeFixedTPM|statement.AttributeFixedParent)),
		n.must("ak-origin", at.Has(statement.AttributeSensitiveDataOrigin)),
		n.must("ak-decrypt", !at.Has(statement.AttributeDecrypt)),
		n.must("ak-x509sign", !at.Has(statement.AttributeX509Sign)),
		n.must("ak-scheme", a.ak.Scheme.Alg == tpm2.TPMAlgECDSA),
		n.must("ak-name-algorithm", a.ak.NameAlg != tpm2.TPMAlgSHA1),
		n.must("ak-certificate", a.road == attest.RoadEK || a.ak.SameKey(a.leaf.PublicKey)))
}

func (n *naive) checkSignature(a *naiveAnswer) error {
	raw := a.certify.Signature
	s, err := statement.ParseSignature(raw)
	if err != nil && n.forget["trailing-bytes"] {
		s, err = statement.ParseSignature(raw[:len(raw)-1])
	}
	if err != nil {
		return n.must("signature", false)
	}
	var digest []byte
	switch s.Hash {
	case tpm2.TPMAlgSHA1:
		sum := sha1.Sum(a.certify.Attest)
		digest = sum[:]
	case tpm2.TPMAlgSHA384:
		sum := sha512.Sum384(a.certify.Attest)
		digest = sum[:]
	default:
		sum := sha256.Sum256(a.certify.Attest)
		digest = sum[:]
	}
	der, err := s.MarshalECDSA()
	key, isECDSA := a.signer().(*ecdsa.PublicKey)
	return errors.Join(
		n.must("signature-hash", s.Hash != tpm2.TPMAlgSHA1),
		n.must("signature-scheme", s.Hash == tpm2.TPMAlgSHA256 || s.Hash == tpm2.TPMAlgSHA1),
		n.must("signature", isECDSA && err == nil && ecdsa.VerifyASN1(key, digest, der)))
}

func (n *naive) checkCertificate(a *naiveAnswer) error {
	if a.leaf == nil {
		return nil
	}
	leaf, now := *a.leaf, n.w.Now()
	var critical []string
	leaf.UnhandledCriticalExtensions = slices.DeleteFunc(slices.Clone(leaf.UnhandledCriticalExtensions), oid.SubjectAltName.Equal)
	for _, e := range leaf.UnhandledCriticalExtensions {
		critical = append(critical, e.String())
	}
	leaf.UnhandledCriticalExtensions = nil
	roots := x509.NewCertPool()
	roots.AddCert(n.w.bench.CA.Root())
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: a.above, CurrentTime: leaf.NotBefore.Add(time.Second),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	right, wrong, usage := oid.TCGKpAIKCertificate, oid.TCGKpEKCertificate, x509.KeyUsageDigitalSignature
	if a.road == attest.RoadEK {
		right, wrong, usage = wrong, right, x509.KeyUsageKeyAgreement
		if _, ok := leaf.PublicKey.(*rsa.PublicKey); ok {
			usage = x509.KeyUsageKeyEncipherment
		}
	}
	return errors.Join(
		n.must("chain", err == nil),
		n.must("expired", !now.After(leaf.NotAfter)),
		n.must("not-yet-valid", !now.Before(leaf.NotBefore)),
		n.must("critical-extension", len(critical) == 0),
		n.must("ca", !leaf.IsCA),
		n.must("key-usage", leaf.KeyUsage == usage),
		n.must("ext-key-usage", slices.ContainsFunc(leaf.UnknownExtKeyUsage, right.Equal) && !slices.ContainsFunc(leaf.UnknownExtKeyUsage, wrong.Equal) &&
			!slices.ContainsFunc(leaf.UnknownExtKeyUsage, oid.TCGKpPlatformCertificate.Equal)))
}

// tidied is the request as a lenient reader sees it: the blocks that it knows, in the
// order that it likes, and of two the last.
func tidied(r *csr.Request) *csr.Request {
	again := *r
	text := bytes.ReplaceAll(r.Spec.Request, []byte("\r\n"), []byte("\n"))
	var out []byte
	for _, label := range []string{csr.BlockRequest, csr.BlockProvider, csr.BlockData} {
		begin, end := fmt.Sprintf("-----BEGIN %s-----\n", label), fmt.Sprintf("-----END %s-----", label)
		i, j := bytes.LastIndex(text, []byte(begin)), bytes.LastIndex(text, []byte(end))
		if i < 0 || j < i {
			continue
		}
		body := text[i+len(begin) : j]
		if k := bytes.Index(body, []byte("\n\n")); k >= 0 {
			body = body[k+2:]
		}
		out = append(append(append(append(out, begin...), body...), end...), '\n')
	}
	again.Spec.Request = out
	return &again
}

func secretOf(k *attest.RingKey) []byte {
	key := k.Secret.Reveal()
	return key[:]
}
