package statement

import "crypto"

// AKTrust says where the trust in an attestation key comes from.
type AKTrust string

const (
	// AKByCredential: the key's TPM opened a credential for the Name of its public area,
	// under a trusted EK. Every attribute is proven.
	AKByCredential AKTrust = "credential"
	// AKByIssuer: the issuer of a verified certificate, or a platform's API, named the
	// key. That it is restricted and lives in a TPM is their word.
	AKByIssuer AKTrust = "issuer"
	// AKBySender: only the sender of the statement named the key. It may be a software key,
	// whose owner can write anything into a statement.
	AKBySender AKTrust = "sender"
)

// AK is the attestation key that a recorded statement is checked against, and where the trust
// in it comes from. [AKFromCredential], [AKFromIssuer] and [InsecureAKFromSender] make one;
// the zero value is not a key and is refused.
type AK struct {
	public []byte
	key    crypto.PublicKey
	Trust  AKTrust
}

// AKFromCredential returns the key with this public area (TPMT_PUBLIC, at most 1024 bytes),
// whose TPM has opened a credential (TPM2_MakeCredential) for exactly its Name under a
// trusted EK. Name algorithm, attributes and scheme are checked, and a statement must be
// signed with exactly that scheme and hash.
func AKFromCredential(public []byte) AK { return AK{public: public, Trust: AKByCredential} }

// AKFromIssuer returns a key (*rsa.PublicKey or *ecdsa.PublicKey) from a verified AK
// certificate (tpmcert.VerifyAKCertificate) or from a platform's answer about that very
// machine. With this call the caller states that the issuer vouches for more than the key:
// that it is restricted, so that it signs only structures made by a TPM, and lives in a TPM.
//
// public is its public area (TPMT_PUBLIC), or nil if it is not known. It must contain key;
// the rest of it is the sender's claim, and checked as in [AKFromCredential]. Without it, any
// accepted scheme that fits the key will do.
func AKFromIssuer(key crypto.PublicKey, public []byte) AK {
	return AK{public: public, key: key, Trust: AKByIssuer}
}

// InsecureAKFromSender returns a key that comes with the statement and that nothing vouches
// for: its public area, its bare key, or both. A statement under it is consistent, and no
// more: anyone with a software key can make one about any other key. So a certified key never
// counts as resident, the clock is never trusted, and RequireTPMResident is refused. It is
// meant for inspecting recorded evidence.
func InsecureAKFromSender(key crypto.PublicKey, public []byte) AK {
	return AK{public: public, key: key, Trust: AKBySender}
}

// check names the missing field, or returns "".
func (k *AK) check() string {
	switch {
	case !k.trusted() && k.Trust != AKBySender:
		return "no attestation key"
	case k.Trust == AKByCredential && len(k.public) == 0:
		return "an attestation key of a credential without its public area"
	case k.Trust == AKByIssuer && k.key == nil:
		return "an attestation key of an issuer without its key"
	case k.key == nil && len(k.public) == 0:
		return "an attestation key of the sender without key and public area"
	}
	return ""
}

// trusted reports whether a party other than the sender vouches for the key.
func (k *AK) trusted() bool { return k.Trust == AKByCredential || k.Trust == AKByIssuer }
