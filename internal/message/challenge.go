package message

import (
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
	binding, err := c.Binding.Marshal()
	if err != nil {
		return nil, err
	}
	return der.Marshal("challenge", func(k *der.Codec) { c.fields(k, &binding) })
}

// fields returns the Binding too, which is never nil.
func (c *Challenge) fields(k *der.Codec, raw *[]byte) *Binding {
	binding := bindingField(k, raw)
	k.Optional("clear", &c.Clear, der.Context0, SecretSize, SecretSize)
	if k.Has(der.Context1Constructed, c.Credential != nil) {
		if c.Credential == nil {
			c.Credential = &Credential{}
		}
		k.Nested("credential", der.Context1Constructed, func(k *der.Codec) {
			k.Octets("idObject", &c.Credential.IDObject, asn1.OCTET_STRING, 1, maxIDObjectSize)
			k.Octets("encryptedSecret", &c.Credential.EncryptedSecret, asn1.OCTET_STRING, 1, maxEncryptedSecretSize)
		})
	}
	onEK := binding.Road == RoadEK
	k.Demand((c.Credential != nil) == onEK && (c.Clear == nil) == onEK, "secret", "clear [0], or on road ek credential [1]")
	return binding
}

// ParseChallenge reads the DER of a Challenge. It accepts exactly what
// [Challenge.Marshal] writes; the result shares memory with der. It returns an
// [*refusal.Error] with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseChallenge(data []byte) (*Challenge, error) {
	c := &Challenge{}
	err := der.Parse("challenge", data, der.MaxChallengeSize, func(k *der.Codec) { c.Binding = *c.fields(k, new([]byte)) })
	if err != nil {
		return nil, err
	}
	return c, nil
}
