package goattestation

import (
	"encoding/binary"
	"fmt"
	"slices"

	goattest "github.com/google/go-attestation/attest"

	"github.com/nodeattest/nodeattest/attest"
)

// The sizes of a credential's parts, in bytes: see [attest.Credential].
const maxIDObject, maxEncryptedSecret = 256, 1024

// Credential returns c without the two-byte sizes before its parts, of a TPM2B_ID_OBJECT and a
// TPM2B_ENCRYPTED_SECRET. Only the TPM can tell whether they belong together. A size other than the
// rest's, 0, or more than [attest.Credential] allows is a [*refusal.Error] with the check
// "go-attestation-value".
func Credential(c goattest.EncryptedCredential) (*attest.Credential, error) {
	object, err := withoutSize("Credential", c.Credential, maxIDObject)
	if err != nil {
		return nil, err
	}
	secret, err := withoutSize("Secret", c.Secret, maxEncryptedSecret)
	if err != nil {
		return nil, err
	}
	return &attest.Credential{IDObject: object, EncryptedSecret: secret}, nil
}

// EncryptedCredential returns c with the sizes that go-attestation has before each part, for
// attest.AK.ActivateCredential. It refuses parts as [Credential] does.
func EncryptedCredential(c *attest.Credential) (goattest.EncryptedCredential, error) {
	if c == nil {
		c = &attest.Credential{}
	}
	object, err := withSize("IDObject", c.IDObject, maxIDObject)
	if err != nil {
		return goattest.EncryptedCredential{}, err
	}
	secret, err := withSize("EncryptedSecret", c.EncryptedSecret, maxEncryptedSecret)
	if err != nil {
		return goattest.EncryptedCredential{}, err
	}
	return goattest.EncryptedCredential{Credential: object, Secret: secret}, nil
}

func withoutSize(part string, b []byte, limit int) ([]byte, error) {
	if len(b) < 2 || int(binary.BigEndian.Uint16(b)) != len(b)-2 {
		return nil, wrongPart(part, fmt.Sprintf("%d bytes, of which the first two are not the size of the rest", len(b)), limit)
	}
	if b = b[2:]; len(b) == 0 || len(b) > limit {
		return nil, wrongPart(part, fmt.Sprintf("%d bytes", len(b)), limit)
	}
	return slices.Clone(b), nil
}

func withSize(part string, b []byte, limit int) ([]byte, error) {
	if len(b) == 0 || len(b) > limit {
		return nil, wrongPart(part, fmt.Sprintf("%d bytes", len(b)), limit)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...), nil
}

func wrongPart(part, got string, limit int) error {
	return fmt.Errorf("goattestation: credential: %w", checkValue.Refuse(part+" of "+got, fmt.Sprintf("1 to %d", limit)))
}
