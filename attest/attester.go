package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/secret"
)

// Subject is what a node's proof is bound to, as the node itself knows it. Hello
// and Answer take the same Subject: the node refuses a challenge for anything
// else.
type Subject struct {
	// Request is the final PKCS#10 request, DER. The same bytes go into both
	// messages.
	Request []byte
	// SignerName is the signer that is to issue the certificate.
	SignerName string
	// ClusterID is the name of the cluster, configured on both sides and never
	// learnt from the API server. The customary one is that of [ClusterID].
	ClusterID string
	// ExpirationSeconds is spec.expirationSeconds of the answer; 0 where it is
	// absent.
	ExpirationSeconds int32
}

// ClusterID returns the customary cluster ID: the lower-case hexadecimal SHA-256
// of the SubjectPublicKeyInfo of the cluster's CA, 64 bytes.
func ClusterID(ca *x509.Certificate) (string, error) {
	if ca == nil {
		return "", errors.New("attest: cluster ID: no CA certificate")
	}
	sum, err := csr.SPKIHash(ca.PublicKey)
	if err != nil {
		return "", fmt.Errorf("attest: cluster ID: %w", err)
	}
	return fmt.Sprintf("%x", sum), nil
}

// AttesterOptions are the optional inputs of [NewAttester].
type AttesterOptions struct {
	// EK, if set, has the node go [RoadEK], with this endorsement key; nil means
	// [RoadAK]. The certificates are then the EK's: where there are none and
	// EK.CertificateIndex is 0, the node presents the bare key.
	EK *EKOrigin
	// Certificates is the certificate of the AK, or of the EK, and what stands between
	// it and the root, DER, leaf first; a root at the end is left out. Nil means to
	// read the leaf from the CertificateIndex of the AK's or the EK's source.
	Certificates [][]byte
	// Intermediates is what stands between a leaf read from NV and the root, DER.
	Intermediates [][]byte
	// EKChainFromNV, in the place of Intermediates, has the node send what its TPM keeps
	// between the EK certificate and the root, in the NV indexes 0x01C00100 to
	// 0x01C001FF (TCG EK Credential Profile 2.6, 2.2.1.5; Intel's parts with an on-die
	// CA), as [ReadEKChain] does: it is read for each message. A TPM that keeps nothing
	// there sends the leaf alone; one that keeps there what is no certificate is an
	// error, which is why this is not the default.
	EKChainFromNV bool
	// EndorsementPassword is the password of the endorsement hierarchy; zero means
	// the empty one. [EndorsementPassword] makes and keeps one.
	EndorsementPassword secret.Value[[]byte]
	// Quote, if set, has every answer carry a quote over these PCRs, so that the
	// control plane knows what the machine booted: [DefaultPCRs], or others. Banks of
	// SHA-1 are refused.
	Quote []PCRSelection
	// EventLog, if set, reads the firmware's event log for every answer, at most
	// [MaxEventLogSize] bytes; on Linux that is the file
	// /sys/kernel/security/tpm0/binary_bios_measurements. It goes along with a Quote
	// alone.
	EventLog func(ctx context.Context) ([]byte, error)
}

// Attester is the node's side: it says hello and answers challenges with a TPM.
// It keeps nothing loaded in the TPM between calls and is safe for use from many
// goroutines.
type Attester struct {
	tpm           *SharedTPM
	source        AKSource
	ek            *EKOrigin // nil on road AK
	certificates  [][]byte
	intermediates [][]byte
	chainFromNV   bool
	password      secret.Value[[]byte]
	measuring     measuring
}

// NewAttester returns an attester that uses the attestation key of source in
// tpm. It sends no command yet. Other users of the same TPM in this process go
// through [ShareTPM].
func NewAttester(tpm transport.TPM, source AKSource, opts *AttesterOptions) (*Attester, error) {
	if tpm == nil {
		return nil, errors.New("attest: attester: no TPM")
	}
	if err := source.check(); err != nil {
		return nil, fmt.Errorf("attest: attester: %w", err)
	}
	if opts == nil {
		opts = &AttesterOptions{}
	}
	if err := opts.checkEK(&source); err != nil {
		return nil, fmt.Errorf("attest: attester: %w", err)
	}
	if len(opts.Certificates) > 0 && len(opts.Intermediates) > 0 {
		return nil, errors.New("attest: attester: Intermediates are for a certificate from NV, Certificates holds the whole chain")
	}
	if err := opts.checkChainFromNV(); err != nil {
		return nil, fmt.Errorf("attest: attester: %w", err)
	}
	measuring, err := newMeasuring(opts)
	if err != nil {
		return nil, fmt.Errorf("attest: attester: %w", err)
	}
	a := &Attester{
		measuring:     measuring,
		tpm:           ShareTPM(tpm),
		source:        source,
		certificates:  clonedBytes(opts.Certificates),
		intermediates: clonedBytes(opts.Intermediates),
		chainFromNV:   opts.EKChainFromNV,
		password:      secret.New(bytes.Clone(opts.EndorsementPassword.Reveal())),
	}
	if opts.EK != nil {
		ek := *opts.EK
		a.ek = &ek
	}
	return a, nil
}

func clonedBytes(list [][]byte) [][]byte {
	all := slices.Clone(list)
	for n := range all {
		all[n] = bytes.Clone(all[n])
	}
	return all
}

// checkEK checks what there must be of the road's key.
func (o *AttesterOptions) checkEK(ak *AKSource) error {
	if o.EK != nil {
		return o.EK.check()
	}
	if len(o.Certificates) == 0 && ak.CertificateIndex == 0 {
		return errors.New("no AK certificate and no NV index of one")
	}
	return nil
}

// checkChainFromNV checks that EKChainFromNV is for an EK certificate from NV, and that
// nothing else says what stands above it.
func (o *AttesterOptions) checkChainFromNV() error {
	switch {
	case !o.EKChainFromNV:
		return nil
	case o.EK == nil || o.EK.CertificateIndex == 0:
		return errors.New("EKChainFromNV without an EK certificate in NV")
	case len(o.Certificates) > 0 || len(o.Intermediates) > 0:
		return errors.New("EKChainFromNV beside Certificates or Intermediates")
	}
	return nil
}

// AKPublic returns the public area of the attestation key of source in tpm, for
// who is to certify it. endorsementPassword is that of the hierarchy, zero for the
// empty one. A key that no verifier would accept is an error.
func AKPublic(ctx context.Context, tpm transport.TPM, source AKSource, endorsementPassword secret.Value[[]byte]) (*Public, error) {
	var public *Public
	err := ShareTPM(tpm).do(ctx, func(h *handles) error {
		ak, err := loadAK(ctx, h, &source, endorsementPassword.Reveal())
		if err == nil {
			public = ak.public
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attest: AK: %w", err)
	}
	return public, nil
}

// Hello returns the node's first message: the request and a hello. On Kubernetes
// its encoding goes into spec.request of an object under
// [csr.SignerChallengeTPM].
func (a *Attester) Hello(ctx context.Context, s *Subject) (*csr.Bundle, error) {
	if _, err := parseSubject(s); err != nil {
		return nil, fmt.Errorf("attest: hello: %w", err)
	}
	var keys *nodeKeys
	err := a.tpm.do(ctx, func(h *handles) (err error) {
		keys, err = a.loadKeys(ctx, h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attest: hello: %w", err)
	}
	hello := &Hello{Road: keys.road, ClusterID: s.ClusterID, TargetSigner: s.SignerName, EKPublic: keys.ekPublic, AKPublic: keys.ak.public.Raw}
	der, err := hello.Marshal()
	if err != nil {
		return nil, err
	}
	return bundleOf(s, keys.chain, AttestationStatement{Type: oid.NodeAttestHello, Stmt: der})
}

// Answer checks that the challenge is for this very node, request, cluster and
// signer, lets the AK certify key, and returns the node's second message. The
// key must be the one of the request. On [RoadEK] the TPM opens the challenge's
// credential first, for this EK and this AK alone ([ErrCredential]); what is in it is
// used, and neither kept nor shown.
//
// challenge is the DER of a [Challenge]; on Kubernetes it comes out of
// [ParseChallengeMessage]. A challenge for anything else is refused with an
// [*Error] whose Check is the one that the verifier would use: a node that
// answered it would lend its TPM to somebody. Every handle is flushed on every
// path.
func (a *Attester) Answer(ctx context.Context, challenge []byte, key Key, s *Subject) (*csr.Bundle, error) {
	request, err := parseSubject(s)
	if err != nil {
		return nil, fmt.Errorf("attest: answer: %w", err)
	}
	if key == nil {
		return nil, errors.New("attest: answer: no key to certify")
	}
	if !sameKey(request.CSR.PublicKey, key.Public()) {
		return nil, &Error{Check: CheckKeyMismatch, Got: "another key than that of the request", Want: "the request's key"}
	}
	c, err := ParseChallenge(challenge)
	if err != nil {
		return nil, err
	}
	if err := checkWindow(&c.Binding); err != nil {
		return nil, err
	}
	binding, err := c.Binding.Marshal()
	if err != nil {
		return nil, err
	}
	log, err := a.measuring.readLog(ctx)
	if err != nil {
		return nil, fmt.Errorf("attest: answer: %w", err)
	}
	var made *certification
	var quote []byte
	var keys *nodeKeys
	err = a.tpm.do(ctx, func(h *handles) (err error) {
		if keys, err = a.loadKeys(ctx, h); err != nil {
			return err
		}
		if err := keys.checkBinding(&c.Binding, request, s); err != nil {
			return err
		}
		secret, err := a.openSecret(ctx, h, keys, c)
		if err != nil {
			return err
		}
		if made, err = certify(ctx, h, keys.ak, key, qualifyingData(secret, labelCertify, binding)); err != nil {
			return err
		}
		quote, err = a.measuring.quote(ctx, h, keys.ak, qualifyingData(secret, labelQuote, binding))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attest: answer: %w", err)
	}
	return answerBundle(s, keys.chain, made, &Proof{Binding: binding, EKPublic: keys.ekPublic, AKPublic: keys.ak.public.Raw},
		measuredStatements(quote, log)...)
}

// openSecret returns the challenge's secret. On road EK the TPM opens it, and the EK,
// which is not needed any more, makes room for the key to certify.
func (a *Attester) openSecret(ctx context.Context, h *handles, keys *nodeKeys, c *Challenge) ([]byte, error) {
	if keys.road == RoadAK {
		return c.Clear, nil
	}
	secret, err := activate(ctx, h, keys.ak, keys.ek, a.password.Reveal(), c.Credential)
	if err != nil {
		return nil, err
	}
	if len(secret) != SecretSize {
		return nil, fmt.Errorf("%w: it holds %d bytes, want %d", ErrCredential, len(secret), SecretSize)
	}
	if a.ek.Handle != 0 {
		return secret, nil
	}
	return secret, h.flush(keys.ek.handle)
}

func answerBundle(s *Subject, chain [][]byte, made *certification, proof *Proof, more ...AttestationStatement) (*csr.Bundle, error) {
	statement, err := MarshalTCGAttestCertify(&CertifyEvidence{Attest: made.attest, Signature: made.signature, Public: made.public})
	if err != nil {
		return nil, err
	}
	echo, err := proof.Marshal()
	if err != nil {
		return nil, err
	}
	return bundleOf(s, chain, append([]AttestationStatement{
		{Type: oid.TCGAttestTPMCertify, Stmt: statement},
		{Type: oid.NodeAttestProof, Stmt: echo},
	}, more...)...)
}

// Close flushes what an earlier operation had to leave loaded in the TPM, where
// flushing itself had failed. The TPM stays the caller's to close.
func (a *Attester) Close(ctx context.Context) error {
	if err := a.tpm.flushLeft(ctx); err != nil {
		return fmt.Errorf("attest: close: %w", err)
	}
	return nil
}

func parseSubject(s *Subject) (*csr.PKCS10, error) {
	if s == nil {
		return nil, errors.New("no subject")
	}
	if err := checkText("subject", "ClusterID", s.ClusterID, 1, MaxClusterIDSize); err != nil {
		return nil, err
	}
	if err := checkText("subject", "SignerName", s.SignerName, 1, MaxSignerNameSize); err != nil {
		return nil, err
	}
	if s.ExpirationSeconds < 0 {
		return nil, errors.New("ExpirationSeconds is negative")
	}
	return csr.ParsePKCS10(s.Request)
}

func isRoot(der []byte) bool {
	c, err := x509.ParseCertificate(der)
	return err == nil && bytes.Equal(c.RawSubject, c.RawIssuer)
}

func sameKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

func bundleOf(s *Subject, chain [][]byte, statements ...AttestationStatement) (*csr.Bundle, error) {
	data, err := (&AttestationBundle{Statements: statements, Certificates: chain}).Marshal()
	if err != nil {
		return nil, err
	}
	return &csr.Bundle{Request: s.Request, Provider: Provider, Data: data}, nil
}
