package statement

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of a signature against the key.
const (
	// CheckSignatureHash: the statement is signed with SHA-1, and no option allows
	// that.
	CheckSignatureHash Check = "signature-hash"
	// CheckSignatureLength: an RSA signature is not as long as the modulus, or r or s
	// is longer than a number under the curve's order.
	CheckSignatureLength Check = "signature-length"
	// CheckSignatureRange: r or s of an ECDSA signature is zero, or not under the
	// curve's order.
	CheckSignatureRange Check = "signature-range"
	// CheckSignature: the signature does not verify under the attestation key.
	CheckSignature Check = "signature"
)

// checkSignatureForm checks all of the signature that needs no public-key operation:
// the attestation key's own scheme and hash, an accepted hash, and numbers in range.
func (in *CertifyInput) checkSignatureForm() error {
	scheme := KeyScheme{Alg: in.Sig.Alg, Hash: in.Sig.Hash}
	if in.AK != nil && scheme != in.AK.Scheme {
		return tpmwire.Refuse(CheckSignatureScheme, scheme.String(), in.AK.Scheme.String()+", the attestation key's own")
	}
	if in.Sig.Hash == tpm2.TPMAlgSHA1 && !in.Options.InsecureAllowSHA1Signature {
		return tpmwire.Refuse(CheckSignatureHash, "SHA1", "SHA256, SHA384 or SHA512")
	}
	return in.Sig.checkForm(in.AKKey)
}

// checkForm refuses a signature that fits no key of this kind and size.
func (v *Signature) checkForm(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if v.Alg != tpm2.TPMAlgRSASSA && v.Alg != tpm2.TPMAlgRSAPSS {
			return tpmwire.Refuse(CheckSignatureScheme, tpmwire.AlgorithmName(v.Alg), "RSASSA or RSAPSS, for an RSA key")
		}
		if len(v.RSA) != k.Size() {
			return tpmwire.Refuse(CheckSignatureLength, strconv.Itoa(len(v.RSA))+" bytes", strconv.Itoa(k.Size()))
		}
		return nil
	case *ecdsa.PublicKey:
		c, ok := tpmwire.CurveOfKey(k)
		if v.Alg != tpm2.TPMAlgECDSA || !ok {
			return tpmwire.Refuse(CheckSignatureScheme, tpmwire.AlgorithmName(v.Alg), "ECDSA, for a key on P-256, P-384 or P-521")
		}
		if err := checkScalar(c, "r", v.R); err != nil {
			return err
		}
		return checkScalar(c, "s", v.S)
	}
	return tpmwire.Refuse(CheckSignatureScheme, tpmwire.AlgorithmName(v.Alg), "an RSA or ECDSA key")
}

// checkScalar refuses a number that is not in 1 to order − 1. A large s is in range:
// TPMs do not normalize it.
func checkScalar(c tpmwire.Curve, what string, v []byte) error {
	if len(v) > c.Width {
		return tpmwire.Refuse(CheckSignatureLength, what+" of "+strconv.Itoa(len(v))+" bytes", "at most "+strconv.Itoa(c.Width))
	}
	significant := withoutLeadingZeros(v)
	if len(significant) == 0 {
		return tpmwire.Refuse(CheckSignatureRange, what+" = 0", "1 or more")
	}
	// Both are big-endian without leading zero bytes, and the order has the full width.
	if len(significant) == len(c.Order) && string(significant) >= c.Order {
		return tpmwire.Refuse(CheckSignatureRange, what+" = "+refusal.Hex(v), "under the curve's order")
	}
	return nil
}

// CheckSignature verifies the signature over the statement's received bytes. It is
// the one public-key operation, and trusts that checkSignatureForm has passed.
func (in *CertifyInput) CheckSignature() error {
	return in.Sig.verify(in.AKKey, in.Attest.Raw)
}

// verify verifies the signature over message, with the standard library. The salt of
// RSAPSS is as long as the digest, as every TPM in use makes it.
func (v *Signature) verify(key crypto.PublicKey, message []byte) error {
	h := tpmwire.HashOf(v.Hash)
	var buf [tpmwire.MaxDigestSize]byte
	digest := tpmwire.AppendDigest(buf[:0], h, message)
	var err error
	switch k := key.(type) {
	case *rsa.PublicKey:
		if v.Alg == tpm2.TPMAlgRSAPSS {
			err = rsa.VerifyPSS(k, h, digest, v.RSA, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: h})
		} else {
			err = rsa.VerifyPKCS1v15(k, h, digest, v.RSA)
		}
	case *ecdsa.PublicKey:
		der, notECDSA := v.MarshalECDSA()
		if notECDSA != nil {
			return notECDSA
		}
		if !ecdsa.VerifyASN1(k, digest, der) {
			err = errNotVerified
		}
	default:
		return tpmwire.Refuse(CheckSignatureScheme, tpmwire.AlgorithmName(v.Alg), "an RSA or ECDSA key")
	}
	if err != nil {
		return &Error{Check: CheckSignature, Got: "a bad " + KeyScheme{Alg: v.Alg, Hash: v.Hash}.String() + " signature",
			Want: "one by the attestation key", Err: err}
	}
	return nil
}

var errNotVerified = errors.New("ECDSA: the verification fails")
