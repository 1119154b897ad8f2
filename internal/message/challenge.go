package message

import (
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
)

// SecretSize is the size of a challenge's secret, in bytes.
const SecretSize = 32

// Limits of a Credential's two parts, in bytes.
const (
	maxIDObjectSize        = 256
	maxEncryptedSecretSize = 1 << 10
)

// Challenge is the control plane's message to one node about one request: the
// Binding and the secret that makes the qualifying data.
//
//	Challenge ::= SEQUENCE { binding Binding,
//	         secret CHOICE { clear [0] IMPLICIT OCTET STRING (SIZE(32)),
//	                         credential [1] IMPLICIT Credential } }
type Challenge struct {
	Binding Binding
	// Clear is the secret itself, 32 bytes, on [RoadAK] and [RoadDocument]: there it only
	// proves that the answer was made after the control plane spoke.
	Clear []byte
	// Credential carries the secret on [RoadEK].
	Credential *Credential
}

// Credential is the result of TPM2_MakeCredential, each part without the outer
// TPM2B size.
//
//	Credential ::= SEQUENCE { idObject OCTET STRING, encryptedSecret OCTET STRING }
type Credential struct {
	// IDObject is TPM2B integrityHMAC and encIdentity, at most 256 bytes.
	IDObject []byte
	// EncryptedSecret is the RSA ciphertext, or a TPMS_ECC_POINT of full width;
	// at most 1024 bytes.
	EncryptedSecret []byte
}

// Marshal returns the DER of c. It returns a [*refusal.Error] with [der.CheckEncoding] if
// a field is outside its range, or if the secret is not the one of the road.
func (c *Challenge) Marshal() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	b := cryptobyte.NewBuilder(make([]byte, 0, 640))
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		c.Binding.add(b)
		if c.Credential == nil {
			der.AddTagged(b, der.Context0, c.Clear)
			return
		}
		b.AddASN1(der.Context1Constructed, func(b *cryptobyte.Builder) {
			b.AddASN1OctetString(c.Credential.IDObject)
			b.AddASN1OctetString(c.Credential.EncryptedSecret)
		})
	})
	return b.Bytes()
}

func (c *Challenge) check() error {
	if err := c.Binding.check(); err != nil {
		return err
	}
	if c.Binding.Road != RoadEK && (len(c.Clear) != SecretSize || c.Credential != nil) {
		return der.Fault("challenge", "secret", "32 bytes in clear on road "+c.Binding.Road.String())
	}
	if c.Binding.Road == RoadEK && (c.Clear != nil || c.Credential == nil) {
		return der.Fault("challenge", "secret", "a credential on road ek")
	}
	if k := c.Credential; k != nil && (len(k.IDObject) == 0 || len(k.IDObject) > maxIDObjectSize ||
		len(k.EncryptedSecret) == 0 || len(k.EncryptedSecret) > maxEncryptedSecretSize) {
		return der.Fault("challenge", "credential", "two parts within their sizes")
	}
	return nil
}

// ParseChallenge reads the DER of a Challenge. It accepts exactly what
// [Challenge.Marshal] writes; the result shares memory with der. It returns an
// [*refusal.Error] with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseChallenge(data []byte) (*Challenge, error) {
	body, err := der.OpenSequence("challenge", data, der.MaxChallengeSize)
	if err != nil {
		return nil, err
	}
	var raw cryptobyte.String
	if !body.ReadASN1Element(&raw, asn1.SEQUENCE) {
		return nil, der.Fault("challenge", "binding", "a SEQUENCE")
	}
	binding, err := ParseBinding(raw)
	if err != nil {
		return nil, err
	}
	c := &Challenge{Binding: *binding}
	if body.PeekASN1Tag(der.Context0) {
		if c.Clear, err = der.ReadOctets("challenge", "clear", &body, der.Context0, SecretSize, SecretSize); err != nil {
			return nil, err
		}
	} else if c.Credential, err = readCredential(&body); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, der.Fault("challenge", "frame", "nothing after the secret")
	}
	return c, c.check()
}

func readCredential(s *cryptobyte.String) (*Credential, error) {
	var body cryptobyte.String
	if !s.ReadASN1(&body, der.Context1Constructed) {
		return nil, der.Fault("challenge", "secret", "clear [0] or credential [1]")
	}
	c := &Credential{}
	var err error
	if c.IDObject, err = der.ReadOctets("challenge", "idObject", &body, asn1.OCTET_STRING, 1, maxIDObjectSize); err != nil {
		return nil, err
	}
	if c.EncryptedSecret, err = der.ReadOctets("challenge", "encryptedSecret", &body, asn1.OCTET_STRING, 1, maxEncryptedSecretSize); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, der.Fault("challenge", "credential", "nothing after encryptedSecret")
	}
	return c, nil
}
