package main

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// config has the paths and settings of a CA.
type config struct {
	certificate, key, ring, machines, makers string
	issuer                                   string
	lifetime                                 time.Duration
}

// A ca certifies attestation keys.
type ca struct {
	certificate *x509.Certificate
	key         crypto.Signer
	verifier    *attest.Verifier
	identity    tpmcert.OtherNameIdentity
	lifetime    time.Duration
	now         func() time.Time
}

// maxFile bounds the files of a CA, in bytes.
const maxFile = 16 << 20

// open reads the files.
func (f *config) open(now func() time.Time) (*ca, error) {
	c := &ca{identity: tpmcert.OtherNameIdentity{Types: nil, Issuer: f.issuer}, lifetime: f.lifetime, now: now}
	if f.lifetime < time.Minute {
		return nil, refusal.Config("--lifetime", f.lifetime.String(), "at least 1m")
	}
	if _, err := attest.ParseIdentity("othername:" + f.issuer + "/1.3.6.1.5.5.7.8.3:MAA"); f.issuer != "" && err != nil {
		return nil, refusal.Config("--issuer", refusal.Quote(f.issuer), "up to 63 lower-case letters, digits, . and -")
	}
	pair, err := keyPair("--certificate", "--key", f.certificate, f.key)
	if err != nil {
		return nil, err
	}
	c.certificate, c.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	text, err := safefile.Read(f.machines, maxFile, safefile.Trusted)
	if err != nil {
		return nil, fmt.Errorf("--machines: %w", err)
	}
	list, err := membership.ParseStaticList(text)
	if err != nil {
		return nil, fmt.Errorf("--machines: %w", err)
	}
	kind, err := f.kind(list)
	if err != nil {
		return nil, err
	}
	ring, err := openRing(f.ring, now())
	if err != nil {
		return nil, fmt.Errorf("--ring: %w", err)
	}
	id, err := attest.ClusterID(c.certificate)
	if err != nil {
		return nil, err
	}
	c.verifier, err = attest.NewVerifier(attest.VerifierConfig{KeyRing: ring, Kinds: []attest.Kind{kind}, Authorizer: list, Now: now,
		Policy: &csr.Policy{ClusterIDs: []string{id}, SignerNames: []string{csr.SignerClientTPM}, Machines: list.Machine}})
	return c, err
}

// kind trusts the EKs of the list, or EKs certified by makers. The list decides admission in both cases.
func (f *config) kind(list *membership.StaticList) (attest.Kind, error) {
	var trust tpmcert.EKVerifierConfig
	if f.makers == "" {
		for _, m := range list.Members() {
			trust.Allowed = append(trust.Allowed, m.Machine)
		}
		if len(trust.Allowed) == 0 {
			return nil, refusal.Config("--machines", "a list without machines", "lines such as ek:sha256:<64 hexadecimal digits> <name>")
		}
	} else {
		text, err := safefile.Read(f.makers, maxFile, safefile.Trusted)
		var makers []*x509.Certificate
		if err == nil {
			makers, err = tpmcert.ParseCertificatesPEM(text)
		}
		if err != nil {
			return nil, fmt.Errorf("--makers: %w", err)
		}
		trust.Issuers = []tpmcert.EKIssuer{{Roots: makers, Profile: tpmcert.EKProfileTCG()}}
	}
	eks, err := tpmcert.NewEKVerifier(trust)
	if err != nil {
		return nil, err
	}
	return tpm.NewKind(tpm.KindConfig{EKs: eks})
}

// enrolling returns the user of all requests, as files have no requester. The TPM proves the machine.
func enrolling() csr.User {
	return csr.User{Username: csr.BootstrapUserPrefix + "enrols", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
}

// decide challenges a machine's hello, and certifies its attestation key after the answer. made
// describes the certificate. A refusal is also in the status, except an error that wraps
// [refusal.ErrRetry].
func (c *ca) decide(ctx context.Context, spec *csr.Spec) (status csr.Status, made string, err error) {
	request := csr.Filed(spec, enrolling(), c.now())
	reply := new(join.Reply)
	if spec.SignerName != csr.SignerClientTPM {
		challenge, err := c.verifier.Challenge(ctx, request)
		reply.Decision = attest.ChallengeDecision(challenge, err).For(request)
		return reply.Status(request), "", err
	}
	result, certificate, err := c.certify(ctx, request)
	if err != nil {
		reply.Decision = csr.Decide(err).For(request)
		return reply.Status(request), "", err
	}
	machine, err := c.identity.Identify(certificate)
	if err != nil {
		return csr.Status{}, "", err
	}
	reply.Decision = result.Attested().Decision().For(request)
	reply.Issued = &csr.Issued{PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})}
	return reply.Status(request), result.NodeName + " " + string(machine), nil
}

func (c *ca) certify(ctx context.Context, request *csr.Request) (*attest.Result, *x509.Certificate, error) {
	result, err := c.verifier.Verify(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	template, err := tpm.EnrolledAK(result, c.certificate)
	if err != nil {
		return nil, nil, err
	}
	begin, end := c.now().Add(-csr.Backdate).UTC().Truncate(time.Second), c.now().Add(c.lifetime).UTC().Truncate(time.Second)
	template.NotBefore = slices.MaxFunc([]time.Time{begin, c.certificate.NotBefore}, time.Time.Compare)
	template.NotAfter = slices.MinFunc([]time.Time{end, c.certificate.NotAfter}, time.Time.Compare)
	made, err := tpmcert.CreateAKCertificate(ctx, template, c.certificate, c.key)
	if err != nil {
		return nil, nil, err
	}
	return result, made.Chain[0], nil
}

// rotateAfter is how long a key of the ring is used for challenges.
const rotateAfter = 30 * 24 * time.Hour

// openRing reads the ring. It creates a missing ring, and adds the next key when that is due.
func openRing(path string, now time.Time) (*attest.KeyRing, error) {
	var keys []attest.RingKey
	text, err := safefile.Read(path, maxFile, safefile.Private)
	due := errors.Is(err, fs.ErrNotExist)
	switch {
	case due:
		keys = []attest.RingKey{attest.NewRingKey(now.Truncate(time.Second))}
	case err != nil:
		return nil, err
	default:
		var data map[string][]byte
		if err := json.Unmarshal(text, &data); err != nil {
			return nil, errors.New(path + " is not a key ring") // without the parser's error, which may contain a part of a key
		}
		if keys, err = attest.ParseRingKeys(data); err != nil {
			return nil, err
		}
		keys, due = attest.RotateKeys(keys, now, rotateAfter)
	}
	if due {
		data, err := attest.MarshalRingKeys(keys)
		if err != nil {
			return nil, err
		}
		if text, err = json.Marshal(data); err != nil {
			return nil, err
		}
		if err := safefile.Replace(path, safefile.Content(text)); err != nil {
			return nil, err
		}
	}
	return attest.NewStaticKeyRing(slices.Clone(keys)...)
}

// keyPair reads a certificate and its key from the files of two flags.
func keyPair(certificateFlag, keyFlag, certificate, key string) (*tls.Certificate, error) {
	chain, err := safefile.Read(certificate, maxFile, safefile.Trusted)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certificateFlag, err)
	}
	text, err := safefile.Read(key, maxFile, safefile.Private)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyFlag, err)
	}
	pair, err := tls.X509KeyPair(chain, text)
	if err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: certificateFlag + " and " + keyFlag, Want: "a certificate and its key, in PEM", Err: err}
	}
	return &pair, nil
}
