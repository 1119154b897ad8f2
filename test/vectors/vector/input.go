package vector

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// answer makes an attester with the node's AK answer the challenge. It returns nil if the node
// found nothing wrong with it and went on to certify its key.
func (n *Node) answer(ctx context.Context) error {
	signer, ok := forge.Must(x509.ParsePKCS8PrivateKey(n.Key)).(crypto.Signer)
	if !ok {
		return &brokenVector{errors.New("a key that does not sign")}
	}
	key := forge.Must(tpmkey.SoftwareKey(signer))
	device := &stubTPM{public: n.AKPublic}
	// The certificate is only passed through.
	prover := forge.Must(tpmkind.NewProver(device, tpmkind.AKSource{Handle: stubHandle}, tpmkind.ProverOptions{Certificates: [][]byte{{0x30, 0}}}))
	_, err := forge.Must(attest.NewAttester(prover)).Answer(ctx, n.Challenge, key, attest.Subject{Request: n.Request,
		SignerName: n.SignerName, ClusterID: n.ClusterID, ExpirationSeconds: n.ExpirationSeconds})
	if device.certifies {
		return nil
	}
	if err == nil {
		return &brokenVector{errors.New("an answer without a certification")}
	}
	return err
}

// stubHandle is the handle of the AK in a stubTPM.
const stubHandle tpm2.TPMHandle = 0x81010100

// stubTPM has one public area. It records whether it is asked to load a key: that is the operation that the
// node does once it has no objection to a challenge.
type stubTPM struct {
	public    []byte
	certifies bool
}

// Send answers TPM2_ReadPublic and refuses everything else.
func (t *stubTPM) Send(command []byte) ([]byte, error) {
	if len(command) < 10 {
		return nil, errors.New("a command without a header")
	}
	code := tpm2.TPMCC(binary.BigEndian.Uint32(command[6:]))
	switch code {
	case tpm2.TPMCCReadPublic:
		public, err := statement.ParsePublic(t.public)
		if err != nil {
			return nil, err
		}
		name := public.Name()
		var body []byte
		for _, part := range [][]byte{t.public, name, statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, name)} {
			body = binary.BigEndian.AppendUint16(body, uint16(len(part)))
			body = append(body, part...)
		}
		response := binary.BigEndian.AppendUint16(nil, uint16(tpm2.TPMSTNoSessions))
		response = binary.BigEndian.AppendUint32(response, uint32(10+len(body)))
		response = binary.BigEndian.AppendUint32(response, uint32(tpm2.TPMRCSuccess))
		return append(response, body...), nil
	case tpm2.TPMCCLoadExternal, tpm2.TPMCCCreatePrimary: // the latter for the session that the former uses
		t.certifies = true
	}
	return nil, fmt.Errorf("no command 0x%x here", uint32(code))
}

// Token is a token in compact form (RFC 7515, section 7.1), and the one key with which it must
// verify.
type Token struct {
	// Text is the token, in base64 like all bytes, because a newline in it matters.
	Text []byte `json:"text"`
	// Key is a SubjectPublicKeyInfo, KeyID its ID, and Algorithm the algorithm it is bound to.
	Key       []byte `json:"key"`
	KeyID     string `json:"keyID"`
	Algorithm string `json:"algorithm"`
}

// verify passes the token to jws.VerifySignature. No check reads its payload.
func (k *Token) verify(ctx context.Context) error {
	key := forge.Must(jws.NewKey(publicKey(k.Key), jws.KeyOptions{KeyID: k.KeyID, Algorithm: jws.Algorithm(k.Algorithm)}))
	_, err := jws.VerifySignature(ctx, string(k.Text), forge.Must(jws.NewStaticKeySet(key)))
	return err
}

// Signer is a claim set given to an external signer of service-account tokens (KEP-740).
// Acceptance means that it is signed, byte for byte.
type Signer struct {
	// Issuer is the issuer that the signer signs for.
	Issuer string `json:"issuer"`
	// MaxLifetimeSeconds is the longest lifetime of a token that the signer signs.
	MaxLifetimeSeconds int64 `json:"maxLifetimeSeconds"`
	// Claims is the claim set.
	Claims []byte `json:"claims"`
}

// sign asks an extsigner.Service that has a new key and the environment's clock.
func (s *Signer) sign(ctx context.Context, e *Environment) error {
	key := forge.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	signer := forge.Must(jws.NewSigner(key, jws.SignerOptions{Type: jws.TypeJWT}))
	keys := forge.Must(jws.NewStaticKeySet(signer.Key()))
	service := forge.Must(extsigner.NewService(extsigner.ServiceConfig{
		Issuer: s.Issuer, Signer: signer, Keys: keys, RefreshHint: time.Minute,
		MaxLifetime: time.Duration(s.MaxLifetimeSeconds) * time.Second, Now: func() time.Time { return e.Now },
	}))
	segment := base64.RawURLEncoding.EncodeToString(s.Claims)
	answer, err := service.Sign(ctx, segment)
	if err != nil {
		return err
	}
	token, err := jws.VerifySignature(ctx, answer.Header+"."+segment+"."+answer.Signature, keys)
	if err == nil && string(token.Payload) != string(s.Claims) {
		err = errors.New("other claims are signed")
	}
	return err
}
