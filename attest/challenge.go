package attest

import (
	"encoding/base64"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/csr"
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
	// Clear is the secret itself, 32 bytes, on [RoadAK]: there it only proves
	// that the AK signed after the control plane spoke.
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

// Marshal returns the DER of c. It returns an [*Error] with [CheckEncoding] if
// a field is outside its range, or if the secret is not the one of the road.
func (c *Challenge) Marshal() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	b := cryptobyte.NewBuilder(make([]byte, 0, 640))
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		c.Binding.add(b)
		if c.Credential == nil {
			addTagged(b, tagContext0, c.Clear)
			return
		}
		b.AddASN1(tagContext1Constructed, func(b *cryptobyte.Builder) {
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
	if c.Binding.Road == RoadAK && (len(c.Clear) != SecretSize || c.Credential != nil) {
		return fault("challenge", "secret", "32 bytes in clear on road ak")
	}
	if c.Binding.Road == RoadEK && (c.Clear != nil || c.Credential == nil) {
		return fault("challenge", "secret", "a credential on road ek")
	}
	if k := c.Credential; k != nil && (len(k.IDObject) == 0 || len(k.IDObject) > maxIDObjectSize ||
		len(k.EncryptedSecret) == 0 || len(k.EncryptedSecret) > maxEncryptedSecretSize) {
		return fault("challenge", "credential", "two parts within their sizes")
	}
	return nil
}

// ParseChallenge reads the DER of a Challenge. It accepts exactly what
// [Challenge.Marshal] writes; the result shares memory with der. It returns an
// [*Error] with [CheckEncoding], [CheckVersion] or [CheckSize].
func ParseChallenge(der []byte) (*Challenge, error) {
	body, err := openSequence("challenge", der, MaxChallengeSize)
	if err != nil {
		return nil, err
	}
	var raw cryptobyte.String
	if !body.ReadASN1Element(&raw, asn1.SEQUENCE) {
		return nil, fault("challenge", "binding", "a SEQUENCE")
	}
	binding, err := ParseBinding(raw)
	if err != nil {
		return nil, err
	}
	c := &Challenge{Binding: *binding}
	if body.PeekASN1Tag(tagContext0) {
		if c.Clear, err = readOctets("challenge", "clear", &body, tagContext0, SecretSize, SecretSize); err != nil {
			return nil, err
		}
	} else if c.Credential, err = readCredential(&body); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, fault("challenge", "frame", "nothing behind the secret")
	}
	return c, c.check()
}

func readCredential(s *cryptobyte.String) (*Credential, error) {
	var body cryptobyte.String
	if !s.ReadASN1(&body, tagContext1Constructed) {
		return nil, fault("challenge", "secret", "clear [0] or credential [1]")
	}
	c := &Credential{}
	var err error
	if c.IDObject, err = readOctets("challenge", "idObject", &body, asn1.OCTET_STRING, 1, maxIDObjectSize); err != nil {
		return nil, err
	}
	if c.EncryptedSecret, err = readOctets("challenge", "encryptedSecret", &body, asn1.OCTET_STRING, 1, maxEncryptedSecretSize); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, fault("challenge", "credential", "nothing behind encryptedSecret")
	}
	return c, nil
}

// ReasonChallenge is the reason of the Denied condition that carries a
// challenge to the node on Kubernetes.
const ReasonChallenge = "AttestationChallenge"

// ChallengeMessage returns the text of that condition's message: the base64 of
// the challenge's DER (RFC 4648 section 4, padded, unbroken).
func ChallengeMessage(der []byte) string { return base64.StdEncoding.EncodeToString(der) }

// ChallengeDecision is the decision about a hello that was challenged, with the DER
// that [Verifier.Challenge] returned: its request is denied, since it is never
// signed, and the condition carries the challenge. Like every decision it goes through
// [csr.Decision.For] before it is written.
func ChallengeDecision(der []byte) csr.Decision {
	return csr.Decision{Verdict: csr.VerdictDeny, Condition: csr.ConditionDenied, Subresource: csr.SubresourceApproval,
		Reason: ReasonChallenge, Message: ChallengeMessage(der)}
}

// ParseChallengeMessage is the reverse of [ChallengeMessage]. It refuses any
// other spelling of the same bytes and returns an [*Error] with [CheckEncoding]
// or [CheckSize]. It does not look inside the DER.
func ParseChallengeMessage(message string) ([]byte, error) {
	if len(message) > base64.StdEncoding.EncodedLen(MaxChallengeSize) {
		return nil, &Error{Check: CheckSize, Got: "a longer challenge message", Want: "at most 21848 characters"}
	}
	der, err := base64.StdEncoding.Strict().DecodeString(message)
	if err != nil || base64.StdEncoding.EncodeToString(der) != message {
		return nil, &Error{Check: CheckEncoding, Got: "a challenge message in another form", Want: "padded, unbroken base64"}
	}
	return der, nil
}
