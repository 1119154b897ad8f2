package statement

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"math/big"
	"strconv"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxTPMTSignatureSize bounds a TPMT_SIGNATURE, in bytes; one of RSA-4096 has 518.
const maxTPMTSignatureSize = 1024

// Checks of signatures: of the encoding, and of the scheme that it names.
const (
	// checkSignatureSize: the signature is absent or over 1024 bytes.
	checkSignatureSize refusal.Check = "tpm-signature-size"
	// checkSignatureEncoding: the signature is not in its only canonical form, is truncated,
	// or has trailing bytes.
	checkSignatureEncoding refusal.Check = "signature-encoding"
	// checkSignatureScheme: the signature's scheme or hash is not the attestation key's own,
	// is not accepted at all, or does not fit a key of this kind.
	checkSignatureScheme refusal.Check = "signature-scheme"
)

// Signature is a TPMT_SIGNATURE with a scheme that can sign a statement: TPM 2.0 Library,
// Part 2, 11.3.4. Its byte slices share memory with the bytes that it was parsed from.
type Signature struct {
	// Alg is tpm2.TPMAlgRSASSA, RSAPSS or ECDSA.
	Alg tpm2.TPMAlgID
	// Hash is the hash with which the signature says it was made: tpm2.TPMAlgSHA1, SHA256,
	// SHA384 or SHA512.
	Hash tpm2.TPMAlgID
	// RSA is an RSA signature, as long as the modulus, up to 512 bytes; nil for
	// ECDSA.
	RSA []byte
	// R and S are an ECDSA signature, big-endian, up to 66 bytes each, with or
	// without leading zero bytes; nil for RSA.
	R, S []byte
}

// ParseSignature parses a TPMT_SIGNATURE. It is strict: each value has one encoding, and
// trailing bytes are refused. Values are not checked: whether r and s are in range depends on
// the key. The result refers to b, which must not be changed afterwards. Errors are a
// [*refusal.Error] with the check "tpm-signature-size", "signature-encoding" or, for schemes
// other than RSASSA, RSAPSS and ECDSA and for unknown hashes, the check "signature-scheme".
func ParseSignature(b []byte) (*Signature, error) {
	if err := limitSignature(b); err != nil {
		return nil, err
	}
	v := new(Signature)
	w := wire{in: b}
	if err := v.code(&w); err != nil {
		return nil, err
	}
	if !w.in.Empty() {
		return nil, badSignature(strconv.Itoa(len(w.in))+" bytes after the signature", "none")
	}
	return v, nil
}

// Marshal returns the TPMT_SIGNATURE of v's fields; for one from [ParseSignature], these are
// the bytes it was parsed from. It returns a [*refusal.Error] with the check for which
// ParseSignature would refuse the result.
func (v *Signature) Marshal() ([]byte, error) {
	v = cmp.Or(v, new(Signature))
	w := writer(8 + len(v.RSA) + len(v.R) + len(v.S))
	if err := v.code(w); err != nil {
		return nil, err
	}
	_, err := ParseSignature(w.out)
	return w.out, err
}

func (v *Signature) code(w *wire) error {
	switch {
	case !number(w, &v.Alg):
		return badSignature("fewer than 2 bytes", "a TPMT_SIGNATURE")
	case !signingScheme(v.Alg):
		return checkSignatureScheme.Refuse(tpmwire.AlgorithmName(v.Alg), "RSASSA, RSAPSS or ECDSA")
	case !number(w, &v.Hash):
		return badSignature("an end before the hash", "a TPMT_SIGNATURE")
	case tpmwire.HashOf(v.Hash) == 0:
		return checkSignatureScheme.Refuse(tpmwire.AlgorithmName(v.Hash), "SHA1, SHA256, SHA384 or SHA512")
	case v.Alg != tpm2.TPMAlgECDSA && !w.tpm2b(&v.RSA, maxModulusSize):
		return badSignature("RSA signature", "at most 512 bytes")
	case v.Alg == tpm2.TPMAlgECDSA && (!w.tpm2b(&v.R, maxCoordinateSize) || !w.tpm2b(&v.S, maxCoordinateSize)):
		return badSignature("r or s", "two numbers of at most 66 bytes")
	}
	return nil
}

// ParseRawSignature parses a bare signature by a scheme (RSASSA, RSAPSS or ECDSA) and a hash (SHA-1,
// SHA-256, SHA-384 or SHA-512), as carried by the sample of
// draft-ietf-lamps-csr-attestation, GKE's requests and WebAuthn: for RSASSA and RSAPSS the
// signature's bytes, for ECDSA the DER of the SEQUENCE of RFC 3279, 2.2.3, with r and s
// positive and minimal. The result refers to b. It returns the errors of [ParseSignature].
func ParseRawSignature(b []byte, scheme KeyScheme) (*Signature, error) {
	if err := limitSignature(b); err != nil {
		return nil, err
	}
	if !signingScheme(scheme.Alg) || tpmwire.HashOf(scheme.Hash) == 0 {
		return nil, checkSignatureScheme.Refuse(scheme.String(),
			"RSASSA, RSAPSS or ECDSA with SHA1, SHA256, SHA384 or SHA512")
	}
	v := &Signature{Alg: scheme.Alg, Hash: scheme.Hash}
	if scheme.Alg != tpm2.TPMAlgECDSA {
		if len(b) > maxModulusSize {
			return nil, badSignature(strconv.Itoa(len(b))+" bytes", "at most 512")
		}
		v.RSA = b
		return v, nil
	}
	var body cryptobyte.String
	s := cryptobyte.String(b)
	if !s.ReadASN1(&body, asn1.SEQUENCE) || !s.Empty() || !body.ReadASN1Integer(&v.R) || !body.ReadASN1Integer(&v.S) || !body.Empty() ||
		len(v.R) > maxCoordinateSize || len(v.S) > maxCoordinateSize {
		return nil, badSignature("DER", "SEQUENCE { r INTEGER, s INTEGER } of at most 66 bytes each, not negative")
	}
	return v, nil
}

// MarshalECDSA returns the DER of RFC 3279, 2.2.3, for an ECDSA signature, as read by
// ecdsa.VerifyASN1 and OpenSSL. It returns a [*refusal.Error] with the check
// "signature-scheme" for a signature of another scheme.
func (v *Signature) MarshalECDSA() ([]byte, error) {
	v = cmp.Or(v, new(Signature))
	if v.Alg != tpm2.TPMAlgECDSA {
		return nil, checkSignatureScheme.Refuse(tpmwire.AlgorithmName(v.Alg), "ECDSA")
	}
	b := cryptobyte.NewBuilder(make([]byte, 0, 16+len(v.R)+len(v.S)))
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1BigInt(new(big.Int).SetBytes(v.R))
		b.AddASN1BigInt(new(big.Int).SetBytes(v.S))
	})
	return b.Bytes()
}

func limitSignature(b []byte) error {
	if len(b) == 0 || len(b) > maxTPMTSignatureSize {
		return checkSignatureSize.Refuse(strconv.Itoa(len(b))+" bytes", "1 to "+strconv.Itoa(maxTPMTSignatureSize))
	}
	return nil
}

func signingScheme(alg tpm2.TPMAlgID) bool {
	return alg == tpm2.TPMAlgRSASSA || alg == tpm2.TPMAlgRSAPSS || alg == tpm2.TPMAlgECDSA
}

func badSignature(got, want string) error { return checkSignatureEncoding.Refuse(got, want) }

// Checks of a signature against the key.
const (
	// CheckSignatureHash: the statement is signed with SHA-1, and no option allows
	// that.
	CheckSignatureHash refusal.Check = "signature-hash"
	// checkSignatureLength: an RSA signature is not as long as the modulus, or r or s is
	// longer than a number less than the curve's order.
	checkSignatureLength refusal.Check = "signature-length"
	// checkSignatureRange: r or s of an ECDSA signature is zero, or not less than the curve's
	// order.
	checkSignatureRange refusal.Check = "signature-range"
	// checkSignature: the signature does not verify under the attestation key.
	checkSignature refusal.Check = "tpm-signature"
)

// checkSignatureForm checks everything about the signature that needs no public-key
// operation: the attestation key's own scheme and hash, an accepted hash, and numbers in
// range.
func (in *CertifyInput) checkSignatureForm() error {
	scheme := KeyScheme{Alg: in.Sig.Alg, Hash: in.Sig.Hash}
	if in.AK != nil && scheme != in.AK.Scheme {
		return checkSignatureScheme.Refuse(scheme.String(), in.AK.Scheme.String()+", the attestation key's own")
	}
	if in.Sig.Hash == tpm2.TPMAlgSHA1 && !in.Options.InsecureAllowSHA1Signature {
		return CheckSignatureHash.Refuse("SHA1", "SHA256, SHA384 or SHA512")
	}
	return in.Sig.checkForm(in.AKKey)
}

// checkForm refuses a signature that does not fit a key of this kind and size.
func (v *Signature) checkForm(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if v.Alg != tpm2.TPMAlgRSASSA && v.Alg != tpm2.TPMAlgRSAPSS {
			return checkSignatureScheme.Refuse(tpmwire.AlgorithmName(v.Alg), "RSASSA or RSAPSS, for an RSA key")
		}
		if len(v.RSA) != k.Size() {
			return checkSignatureLength.Refuse(strconv.Itoa(len(v.RSA))+" bytes", strconv.Itoa(k.Size()))
		}
		return nil
	case *ecdsa.PublicKey:
		c, ok := tpmwire.CurveOfKey(k)
		if v.Alg != tpm2.TPMAlgECDSA || !ok {
			return checkSignatureScheme.Refuse(tpmwire.AlgorithmName(v.Alg), "ECDSA, for a key on P-256, P-384 or P-521")
		}
		return cmp.Or(checkScalar(c, "r", v.R), checkScalar(c, "s", v.S))
	}
	return checkSignatureScheme.Refuse(tpmwire.AlgorithmName(v.Alg), "an RSA or ECDSA key")
}

// checkScalar refuses a number outside the range 1 to order − 1. A large s is accepted: TPMs
// do not normalize it.
func checkScalar(c tpmwire.Curve, what string, v []byte) error {
	if len(v) > c.Width {
		return checkSignatureLength.Refuse(what+" of "+strconv.Itoa(len(v))+" bytes", "at most "+strconv.Itoa(c.Width))
	}
	var n, zero, order [maxCoordinateSize]byte // big-endian
	copy(n[len(n)-len(v):], v)
	c.Curve.Params().N.FillBytes(order[:])
	if n == zero || bytes.Compare(n[:], order[:]) >= 0 {
		return checkSignatureRange.Refuse(what+" = "+refusal.Hex(v), "1 or more, and under the curve's order")
	}
	return nil
}

// CheckSignature verifies the signature over the statement's received bytes. It is the only
// public-key operation, and assumes that checkSignatureForm has passed.
func (in *CertifyInput) CheckSignature() error {
	if in == nil || in.Sig == nil || in.Attest == nil {
		return checkSignatureScheme.Refuse("nothing that was parsed", "a statement and its signature")
	}
	return in.Sig.verify(in.AKKey, in.Attest.Raw)
}

// verify verifies the signature over message, using the standard library. The salt of RSAPSS
// is as long as the digest, as in every TPM in use.
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
			err = errors.New("ECDSA: the verification fails")
		}
	default:
		return checkSignatureScheme.Refuse(tpmwire.AlgorithmName(v.Alg), "an RSA or ECDSA key")
	}
	if err != nil {
		return &refusal.Error{Check: checkSignature, Got: "a bad " + KeyScheme{Alg: v.Alg, Hash: v.Hash}.String() + " signature",
			Want: "one by the attestation key", Err: err}
	}
	return nil
}
