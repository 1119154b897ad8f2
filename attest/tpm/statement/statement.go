package statement

import (
	"cmp"
	"crypto"

	"github.com/nodeattest/nodeattest/refusal"
)

// checkCertifyOptions: the [CertifyOptions] say too little to decide. The fault is the
// caller's, not the evidence's.
const checkCertifyOptions refusal.Check = "certify-options"

// CertifyEvidence is one statement of TPM2_Certify: an attestation key's word that the TPM
// holds, or had loaded, the key of a public area. TPM structures have no outer size prefixes.
type CertifyEvidence struct {
	// Attest is the TPMS_ATTEST, at most 1024 bytes.
	Attest []byte
	// Signature is the TPMT_SIGNATURE over Attest, or a bare signature if RawSignature is
	// set; at most 1024 bytes.
	Signature []byte
	// RawSignature is nil if Signature is a TPMT_SIGNATURE. Otherwise Signature is bare, and
	// this names its scheme and hash: see ParseRawSignature. It must come from the caller's
	// knowledge of the format, not from the sender.
	RawSignature *KeyScheme
	// Public is the certified key's TPMT_PUBLIC, at most 1024 bytes.
	Public []byte
}

// CertifyOptions say what [VerifyCertify] checks a statement against. The zero value refuses:
// it names no attestation key, no qualifying data and no certified key.
type CertifyOptions struct {
	// AK is the attestation key, and where the trust in it comes from. The zero value
	// is refused.
	AK AK

	// QualifyingData is the required extraData of the statement, byte for byte: a nonce that the
	// caller issued for this statement only, with 16 or more random bytes, since nothing else tells
	// a fresh statement from an old one. Empty is refused: a nonce that the caller lost would be
	// empty too.
	QualifyingData []byte
	// Key is the key that must have been certified, as in the certificate request:
	// *rsa.PublicKey or *ecdsa.PublicKey. Nil is refused.
	Key crypto.PublicKey

	// RequireTPMResident refuses a key unless the statement shows that it lives in the TPM:
	// see Certified.TPMResident.
	RequireTPMResident bool
	// AllowDecryptionKey accepts a certified key that can decrypt but not sign.
	AllowDecryptionKey bool
	// AllowRestrictedKey accepts a restricted certified key, such as another
	// attestation key or a storage key. Such a key cannot serve TLS.
	AllowRestrictedKey bool

	// InsecureAllowAnyQualifyingData skips the comparison with QualifyingData: a
	// statement may then be as old as the attestation key. For recorded statements.
	InsecureAllowAnyQualifyingData bool
	// InsecureEmptyQualifyingData requires empty extraData, with QualifyingData empty. Such a
	// statement is valid forever, and for every verifier. For formats without qualifying
	// data, such as GKE's.
	InsecureEmptyQualifyingData bool
	// InsecureAllowAnyKey accepts whatever key was certified, with Key nil. The caller must
	// then compare Certified.Public.
	InsecureAllowAnyKey bool
	// InsecureAllowSHA1Signature accepts statements signed with SHA-1, as by attestation keys
	// of Windows. Collisions of SHA-1 can be computed.
	InsecureAllowSHA1Signature bool
	// InsecureAllowSHA1Name accepts Names under SHA-1, of the certified key and of the
	// attestation key.
	InsecureAllowSHA1Name bool
}

// Certified is the content of a verified statement.
type Certified struct {
	// Attestation is the statement, of type certify.
	Attestation *Attestation
	// Public is the certified key's public area. Its attributes are bound by the certified Name, so
	// the TPM enforces them.
	Public *Public
	// AKPublic is the attestation key's public area, or nil if only its key was given.
	// AKTrust says where the trust in the key comes from.
	AKPublic *Public
	AKTrust  AKTrust
	// SignatureScheme is the scheme and the hash with which the statement is signed.
	SignatureScheme KeyScheme
	// TPMResident says that the certified key cannot leave its TPM: fixedTPM and fixedParent
	// are set, and its Qualified Name differs from its Name, so it has a parent and was not
	// loaded from outside. It is false for a software key that was loaded to be certified,
	// and for every key certified by an attestation key that only the sender names
	// ([AKBySender]): that key may itself be in software.
	TPMResident bool
	// ClockTrusted says that resetCount, restartCount and firmwareVersion of Attestation are
	// the TPM's own numbers: the signer is a primary key of the endorsement hierarchy. If
	// false, they may be obfuscated, and are useful only for comparison with another
	// statement by the same key. It is always false if AKPublic is nil, and for [AKBySender].
	ClockTrusted bool
}

// VerifyCertify checks one statement of TPM2_Certify against a trusted attestation key, qualifying
// data and an expected key. It is the lower-level function for evidence that does not answer a
// challenge of this package: GKE's requests, the statement of a draft-ietf-lamps-csr-attestation
// request, a recorded statement. It does not decide which machine this is or whether it may join.
//
// The checks, each with its own Check, are: sizes, canonical parsing, magic and type;
// qualifying data, in constant time; the certified Name against the Name computed from
// Public, and Public's key against the expected one; name algorithms; the attestation key's
// attributes, scheme and strength; the certified key's attributes, strength and residence;
// scheme, hash and range of the signature; and finally the signature itself. A refusal is a
// [*refusal.Error]; e must not be nil.
func VerifyCertify(e *CertifyEvidence, opts CertifyOptions) (*Certified, error) {
	if e == nil {
		return nil, checkCertifyOptions.Refuse("no evidence", "some")
	}
	in := CertifyInput{AKKey: opts.AK.key, Options: opts}
	err := inOrder(opts.check, func() error { return in.Parse(e, opts.AK.public) }, in.CheckBeforeSignature, in.CheckSignature)
	if err != nil {
		return nil, err
	}
	return &Certified{
		Attestation:     in.Attest,
		Public:          in.Public,
		AKPublic:        in.AK,
		AKTrust:         opts.AK.Trust,
		SignatureScheme: KeyScheme{Alg: in.Sig.Alg, Hash: in.Sig.Hash},
		TPMResident:     opts.AK.trusted() && in.TPMResident(),
		ClockTrusted:    opts.AK.trusted() && in.clockTrusted(),
	}, nil
}

// inOrder runs the checks up to the first that fails, and returns its error.
func inOrder(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *CertifyOptions) check() error {
	if err := o.checkCommon(checkCertifyOptions); err != nil {
		return err
	}
	switch {
	case o.RequireTPMResident && !o.AK.trusted():
		return checkCertifyOptions.Refuse("RequireTPMResident with an attestation key of the sender", "AKFromCredential or AKFromIssuer")
	case o.Key == nil && !o.InsecureAllowAnyKey:
		return checkCertifyOptions.Refuse("no expected key", "Key, or InsecureAllowAnyKey")
	case o.Key != nil && o.InsecureAllowAnyKey:
		return checkCertifyOptions.Refuse("Key with InsecureAllowAnyKey", "one of them")
	}
	return nil
}

// checkCommon requires an attestation key, and one of the three ways to say what qualifying
// data is expected.
func (o *CertifyOptions) checkCommon(c refusal.Check) error {
	if fault := o.AK.check(); fault != "" {
		return c.Refuse(fault, "AKFromCredential or AKFromIssuer")
	}
	empty, anyData := o.InsecureEmptyQualifyingData, o.InsecureAllowAnyQualifyingData
	switch {
	case empty && anyData:
		return c.Refuse("InsecureEmptyQualifyingData with InsecureAllowAnyQualifyingData", "one of them")
	case len(o.QualifyingData) == 0 && !empty && !anyData:
		return c.Refuse("empty qualifying data", "QualifyingData, InsecureEmptyQualifyingData or InsecureAllowAnyQualifyingData")
	case len(o.QualifyingData) != 0 && (empty || anyData):
		return c.Refuse("QualifyingData with an option that excludes it", "one of them")
	}
	return nil
}

// Parse fills in the parsed members from the evidence and from the attestation key's public
// area, which may be empty if it is unknown or has already been parsed.
func (in *CertifyInput) Parse(e *CertifyEvidence, akPublic []byte) (err error) {
	in, e = cmp.Or(in, new(CertifyInput)), cmp.Or(e, new(CertifyEvidence))
	if err := in.parseSigned(e.Attest, e.Signature, e.RawSignature); err != nil {
		return err
	}
	if in.Public, err = ParsePublic(e.Public); err != nil {
		return err
	}
	return in.readAK(akPublic)
}

// parseSigned parses a TPMS_ATTEST and its TPMT_SIGNATURE, or a bare signature if raw names its
// scheme.
func (in *CertifyInput) parseSigned(attest, signature []byte, raw *KeyScheme) (err error) {
	if in.Attest, err = ParseAttestation(attest); err != nil {
		return err
	}
	if raw != nil {
		in.Sig, err = ParseRawSignature(signature, *raw)
	} else {
		in.Sig, err = ParseSignature(signature)
	}
	return err
}

// readAK fills in what follows from the attestation key's public area, which is empty if it
// is unknown or has already been parsed.
func (in *CertifyInput) readAK(akPublic []byte) (err error) {
	if len(akPublic) != 0 {
		if in.AK, err = ParsePublic(akPublic); err != nil {
			return err
		}
	}
	if in.AK == nil {
		return nil
	}
	if in.AKName == nil {
		in.AKName = in.AK.Name()
	}
	if in.AKKey == nil {
		in.AKKey, err = in.AK.Key()
	}
	return err
}
