package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
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
	// Certificates is the AK's certificate and what stands between it and the
	// root, DER, leaf first; a root at the end is left out. Nil means to read the
	// leaf from the source's CertificateIndex.
	Certificates [][]byte
	// Intermediates is what stands between a leaf read from NV and the root, DER.
	Intermediates [][]byte
	// EndorsementPassword is the password of the endorsement hierarchy; nil means
	// the empty one. [EndorsementPassword] makes and keeps one.
	EndorsementPassword []byte
}

// Attester is the node's side: it says hello and answers challenges with a TPM.
// It keeps nothing loaded in the TPM between calls and is safe for use from many
// goroutines.
type Attester struct {
	tpm           *SharedTPM
	source        AKSource
	certificates  [][]byte
	intermediates [][]byte
	password      []byte
}

// Format keeps the password out of logs, whatever the verb.
func (AttesterOptions) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("attest.AttesterOptions")) }

// LogValue keeps the password out of package log/slog.
func (AttesterOptions) LogValue() slog.Value { return slog.StringValue("attest.AttesterOptions") }

// Format keeps the password out of logs, whatever the verb.
func (*Attester) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("attest.Attester")) }

// LogValue keeps the password out of package log/slog.
func (*Attester) LogValue() slog.Value { return slog.StringValue("attest.Attester") }

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
	if len(opts.Certificates) == 0 && source.CertificateIndex == 0 {
		return nil, errors.New("attest: attester: no AK certificate and no NV index of one")
	}
	if len(opts.Certificates) > 0 && len(opts.Intermediates) > 0 {
		return nil, errors.New("attest: attester: Intermediates are for a certificate from NV, Certificates holds the whole chain")
	}
	return &Attester{
		tpm:           ShareTPM(tpm),
		source:        source,
		certificates:  slices.Clone(opts.Certificates),
		intermediates: slices.Clone(opts.Intermediates),
		password:      bytes.Clone(opts.EndorsementPassword),
	}, nil
}

// AKPublic returns the public area of the attestation key of source in tpm, for
// who is to certify it. endorsementPassword is that of the hierarchy, nil for the
// empty one. A key that no verifier would accept is an error.
func AKPublic(ctx context.Context, tpm transport.TPM, source AKSource, endorsementPassword []byte) (*Public, error) {
	if tpm == nil {
		return nil, errors.New("attest: AK: no TPM")
	}
	var public *Public
	err := ShareTPM(tpm).do(ctx, func(h *handles) error {
		ak, err := loadAK(ctx, h, &source, endorsementPassword)
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
	var hello *Hello
	var chain [][]byte
	err := a.tpm.do(ctx, func(h *handles) error {
		ak, err := loadAK(ctx, h, &a.source, a.password)
		if err != nil {
			return err
		}
		hello = &Hello{Road: RoadAK, ClusterID: s.ClusterID, TargetSigner: s.SignerName, AKPublic: ak.public.Raw}
		chain, err = a.chain(ctx, h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attest: hello: %w", err)
	}
	der, err := hello.Marshal()
	if err != nil {
		return nil, err
	}
	return bundleOf(s, chain, AttestationStatement{Type: oid.NodeAttestHello, Stmt: der})
}

// Answer checks that the challenge is for this very node, request, cluster and
// signer, lets the AK certify key, and returns the node's second message. The
// key must be the one of the request.
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
	var made *certification
	var proof *Proof
	var chain [][]byte
	err = a.tpm.do(ctx, func(h *handles) error {
		ak, err := loadAK(ctx, h, &a.source, a.password)
		if err != nil {
			return err
		}
		if err := checkOwnBinding(&c.Binding, ak, request, s); err != nil {
			return err
		}
		if chain, err = a.chain(ctx, h); err != nil {
			return err
		}
		made, err = certify(ctx, h, ak, key, qualifyingData(c.Clear, labelCertify, binding))
		proof = &Proof{Binding: binding, AKPublic: ak.public.Raw}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attest: answer: %w", err)
	}
	return answerBundle(s, chain, made, proof)
}

func answerBundle(s *Subject, chain [][]byte, made *certification, proof *Proof) (*csr.Bundle, error) {
	statement, err := MarshalTCGAttestCertify(&CertifyEvidence{Attest: made.attest, Signature: made.signature, Public: made.public})
	if err != nil {
		return nil, err
	}
	echo, err := proof.Marshal()
	if err != nil {
		return nil, err
	}
	return bundleOf(s, chain,
		AttestationStatement{Type: oid.TCGAttestTPMCertify, Stmt: statement},
		AttestationStatement{Type: oid.NodeAttestProof, Stmt: echo})
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

// checkOwnBinding holds a challenge against the node's own values.
func checkOwnBinding(b *Binding, ak *loadedKey, request *csr.PKCS10, s *Subject) error {
	key, err := ak.public.Key()
	if err != nil {
		return err
	}
	machineKey, err := csr.SPKIHash(key)
	if err != nil {
		return err
	}
	return compareOwnValues(b, &Binding{
		Road:              RoadAK,
		ClusterID:         s.ClusterID,
		SignerName:        s.SignerName,
		ExpirationSeconds: s.ExpirationSeconds,
		MachineKey:        machineKey,
		RequestHash:       request.InfoHash,
	})
}

// chain returns the AK's certificates, leaf first and root left out.
func (a *Attester) chain(ctx context.Context, h *handles) ([][]byte, error) {
	chain := a.certificates
	if len(chain) == 0 {
		leaf, err := readNVCertificate(ctx, h, a.source.CertificateIndex)
		if err != nil {
			return nil, err
		}
		chain = append([][]byte{leaf}, a.intermediates...)
	}
	last := len(chain) - 1
	if last > 0 && isRoot(chain[last]) {
		return chain[:last], nil
	}
	return chain, nil
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
