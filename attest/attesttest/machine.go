package attesttest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// machine is a machine of a world. Its TPM is in software, so that its attestation
// key can sign what no TPM would; the issuer of certificates does not know.
type machine struct {
	key    *ecdsa.PrivateKey // the AK
	public *tpm.Public
	chain  [][]byte // of the AK
	// ek is the EK by which the machine is known, second another one of the same TPM.
	ek, second           *ecdsa.PrivateKey
	ekChain, secondChain [][]byte
}

// carrier is the key that carries the trust on a road.
func (m *machine) carrier(road attest.Road) crypto.PublicKey {
	if road == attest.RoadEK {
		return m.ek.Public()
	}
	return m.key.Public()
}

// certificates are those of a road.
func (m *machine) certificates(road attest.Road) [][]byte {
	if road == attest.RoadEK {
		return m.ekChain
	}
	return m.chain
}

// machineType is the type of the OtherName that names a machine, 2.999.1.
const machineType = oid.OID("\x88\x37\x01")

func machineName(name string) *tpmsim.OtherName {
	return &tpmsim.OtherName{Type: machineType, Value: append([]byte{0x0c, byte(len(name))}, name...)}
}

func identityOf(name string) attest.Identity {
	return attest.Identity("othername:" + machineType.String() + ":" + base64.RawURLEncoding.EncodeToString(machineName(name).Value))
}

func (w *World) newMachine(name string, issuer *tpmsim.CA) (*machine, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	m := &machine{key: key}
	if m.public, err = publicArea(&key.PublicKey, akAttributes, tpm.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}); err != nil {
		return nil, err
	}
	if m.chain, err = certify(issuer, &key.PublicKey, &tpmsim.AKCertificateOptions{OtherName: machineName(name)}); err != nil {
		return nil, err
	}
	if m.ek, m.ekChain, err = newEK(issuer, elliptic.P256()); err != nil {
		return nil, err
	}
	m.second, m.secondChain, err = newEK(issuer, elliptic.P384())
	return m, err
}

func newEK(issuer *tpmsim.CA, curve elliptic.Curve) (*ecdsa.PrivateKey, [][]byte, error) {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	chain, err := certifyEK(issuer, key.Public(), nil)
	return key, chain, err
}

func certifyEK(issuer *tpmsim.CA, key crypto.PublicKey, o *tpmsim.EKCertificateOptions) ([][]byte, error) {
	leaf, err := issuer.IssueEK(key, o)
	if err != nil {
		return nil, err
	}
	return [][]byte{leaf.Raw, issuer.EKIntermediate().Raw}, nil
}

func certify(issuer *tpmsim.CA, key crypto.PublicKey, o *tpmsim.AKCertificateOptions) ([][]byte, error) {
	leaf, err := issuer.IssueAK(key, o)
	if err != nil {
		return nil, err
	}
	return [][]byte{leaf.Raw, issuer.AKIntermediate().Raw}, nil
}

// The attributes of attestation keys, of keys made in a TPM, and of software keys
// that were loaded to be certified.
const (
	akAttributes = tpm.AttributeFixedTPM | tpm.AttributeFixedParent | tpm.AttributeSensitiveDataOrigin |
		tpm.AttributeUserWithAuth | tpm.AttributeRestricted | tpm.AttributeSign
	residentAttributes = tpm.AttributeFixedTPM | tpm.AttributeFixedParent | tpm.AttributeSensitiveDataOrigin |
		tpm.AttributeUserWithAuth | tpm.AttributeSign
	softwareAttributes = tpm.AttributeUserWithAuth | tpm.AttributeSign
)

var noScheme = tpm.KeyScheme{Alg: tpm2.TPMAlgNull}

// publicArea is the public area of a P-256 key, parsed, so with Raw set.
func publicArea(key *ecdsa.PublicKey, attributes tpm.Attributes, scheme tpm.KeyScheme) (*tpm.Public, error) {
	point, err := key.Bytes()
	if err != nil {
		return nil, err
	}
	half := len(point) / 2
	return reparsed(&tpm.Public{Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, Scheme: scheme,
		Symmetric: tpm.SymmetricScheme{Alg: tpm2.TPMAlgNull}, KDF: noScheme, Curve: tpm2.TPMECCNistP256,
		X: point[1 : 1+half], Y: point[1+half:]})
}

func reparsed(p *tpm.Public) (*tpm.Public, error) {
	raw, err := p.Marshal()
	if err != nil {
		return nil, err
	}
	return tpm.ParsePublic(raw)
}

// sign makes an ECDSA signature with a hash of the caller's choice.
func (m *machine) sign(hash tpm2.TPMAlgID, message []byte) (*tpm.Signature, error) {
	var digest []byte
	switch hash {
	case tpm2.TPMAlgSHA1:
		sum := sha1.Sum(message)
		digest = sum[:]
	case tpm2.TPMAlgSHA384:
		sum := sha512.Sum384(message)
		digest = sum[:]
	default:
		sum := sha256.Sum256(message)
		digest = sum[:]
	}
	der, err := ecdsa.SignASN1(rand.Reader, m.key, digest)
	if err != nil {
		return nil, err
	}
	v := &tpm.Signature{Alg: tpm2.TPMAlgECDSA, Hash: hash}
	var body cryptobyte.String
	s := cryptobyte.String(der)
	if !s.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1Integer(&v.R) || !body.ReadASN1Integer(&v.S) {
		return nil, errors.New("attesttest: no ECDSA signature in DER")
	}
	return v, nil
}

// The labels under which challenge secrets and qualifying data are derived.
const (
	labelSecret  = "nodeattest/tpm/v1 secret\x00"
	labelCertify = "nodeattest/tpm/v1 certify\x00"
	labelQuote   = "nodeattest/tpm/v1 quote\x00"
)

func derive(key []byte, label string, binding []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(label))
	h.Write(binding)
	return h.Sum(nil)
}

// proveTPM is the honest machine of package attest: hello, challenge, answer.
func (a *attempt) proveTPM(ctx context.Context, applicant *Applicant) (*csr.Bundle, error) {
	m := a.machines[applicant.Machine]
	c, err := a.challenge(ctx, applicant, a.newForgery(m, applicant))
	if err != nil {
		return nil, err
	}
	secret := c.Clear
	if c.Credential != nil {
		if secret, err = openCredential(m.ek, m.public.Name(), c.Credential); err != nil {
			return nil, err
		}
	}
	return a.answer(a.newForgery(m, applicant), c, secret)
}

// challenge says hello with the keys and certificates of f, and returns what the
// provider answers.
func (a *attempt) challenge(ctx context.Context, applicant *Applicant, f *forgery) (*attest.Challenge, error) {
	challenger, ok := a.provider.(csr.Challenger)
	if !ok {
		return nil, shut("the provider is no csr.Challenger, and WorldOptions.Prove is not set")
	}
	stmt, err := (&attest.Hello{Road: f.road, ClusterID: ClusterID, TargetSigner: applicant.Object.Spec.SignerName,
		EKPublic: f.ekPublic, AKPublic: f.akPublic}).Marshal()
	if err != nil {
		return nil, err
	}
	if f.err != nil {
		return nil, errors.Join(errForgery, f.err)
	}
	hello := applicant.Object
	hello.Spec.SignerName = a.Config.ChallengeSigner
	bundle, err := bundleOf(applicant.Request, f.chain, attest.AttestationStatement{Type: oid.NodeAttestHello, Stmt: stmt})
	if err != nil {
		return nil, err
	}
	if hello.Spec.Request, err = bundle.Marshal(); err != nil {
		return nil, err
	}
	der, err := challenger.Challenge(ctx, hello.Parsed())
	if err != nil {
		return nil, err
	}
	return attest.ParseChallenge(der)
}

// answer answers a challenge whose secret is known.
func (a *attempt) answer(f *forgery, c *attest.Challenge, secret []byte) (*csr.Bundle, error) {
	f.binding, f.secret = &c.Binding, secret
	if err := f.prepare(); err != nil {
		return nil, err
	}
	return f.bundle()
}

// bundleOf puts evidence behind a request.
func bundleOf(request []byte, chain [][]byte, statements ...attest.AttestationStatement) (*csr.Bundle, error) {
	data, err := (&attest.AttestationBundle{Statements: statements, Certificates: chain}).Marshal()
	if err != nil {
		return nil, err
	}
	return &csr.Bundle{Request: request, Provider: tpm.Provider, Data: data}, nil
}
