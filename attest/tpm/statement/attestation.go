package statement

import (
	"cmp"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxAttestationSize bounds a TPMS_ATTEST, in bytes. The largest one that a TPM makes (a
// quote over 16 banks) is under 400.
const maxAttestationSize = 1024

// maxExtraDataSize bounds a TPM2B_DATA, in bytes: as large as a TPMT_HA of 512 bits, the buffer of
// the reference implementation.
const maxExtraDataSize = 2 + 64

// attestMagic is TPM_GENERATED_VALUE. It begins every structure that a TPM makes, and a
// restricted key signs nothing else that begins with it.
const attestMagic = 0xff544347

// Checks of [ParseAttestation].
const (
	// checkAttestSize: the TPMS_ATTEST is over 1024 bytes.
	checkAttestSize refusal.Check = "attest-size"
	// checkAttestEncoding: the TPMS_ATTEST is not in its only canonical form, is truncated,
	// or has trailing bytes.
	checkAttestEncoding refusal.Check = "attest-encoding"
	// CheckMagic: the structure does not begin with TPM_GENERATED_VALUE, so no TPM
	// made it.
	CheckMagic refusal.Check = "attest-magic"
	// checkStatementType: the TPMS_ATTEST is not of the type asked for.
	checkStatementType refusal.Check = "attest-type"
)

// Attestation is a TPMS_ATTEST, the structure that a TPM signs: TPM 2.0 Library, Part 2, 10.12.12.
// Its byte slices share memory with the bytes that it was parsed from. Nothing in it can be relied
// on before its signature is verified.
type Attestation struct {
	// Raw is the whole structure as it was received: the signed bytes.
	Raw []byte
	// Type is tpm2.TPMSTAttestCertify or tpm2.TPMSTAttestQuote.
	Type tpm2.TPMST
	// QualifiedSigner is the Qualified Name of the signing key, up to 66 bytes. A TPM leaves
	// it empty only if it did not sign; the statement checks refuse that, not the parser.
	QualifiedSigner []byte
	// ExtraData is the caller's qualifying data, 0 to 66 bytes.
	ExtraData []byte
	// Clock is the time, in milliseconds, that the TPM has been powered since it was last
	// cleared.
	Clock uint64
	// ResetCount is the number of TPM resets since the TPM was last cleared. It, RestartCount
	// and FirmwareVersion are obfuscated for a key outside the endorsement and platform
	// hierarchies.
	ResetCount uint32
	// RestartCount is the number of restarts and resumes since the last reset.
	RestartCount uint32
	// Safe says that no higher Clock was reported before.
	Safe bool
	// FirmwareVersion is the vendor's own number for the firmware.
	FirmwareVersion uint64
	// Certified is set if Type is tpm2.TPMSTAttestCertify, otherwise nil.
	Certified *CertifyInfo
	// Quote is set if Type is tpm2.TPMSTAttestQuote, otherwise nil.
	Quote *QuoteInfo
}

// CertifyInfo is a TPMS_CERTIFY_INFO: Part 2, 10.12.3.
type CertifyInfo struct {
	// Name is the certified object's Name, up to 66 bytes: the name algorithm,
	// big-endian, and the digest of its public area.
	Name []byte
	// QualifiedName binds Name to all its ancestors. It equals Name if the object was loaded
	// from outside and has no parent.
	QualifiedName []byte
}

// QuoteInfo is a TPMS_QUOTE_INFO: Part 2, 10.12.4.
type QuoteInfo struct {
	// Selections are the quoted PCRs, bank by bank: 0 to 16 banks.
	Selections []PCRSelection
	// PCRDigest is the digest of their values, 0 to 64 bytes, under the hash of the
	// signing key's scheme.
	PCRDigest []byte
}

// PCRSelection is a TPMS_PCR_SELECTION: Part 2, 10.6.2.
type PCRSelection struct {
	// Hash is the bank's algorithm.
	Hash tpm2.TPMAlgID
	// Select has a bit for each PCR, 1 to 4 octets: PCR n is bit n%8 of octet n/8.
	Select []byte
}

// PCRs returns the selected indexes in ascending order.
func (s PCRSelection) PCRs() []int {
	var indexes []int
	for i := range len(s.Select) * 8 {
		if s.selects(i) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// ParseAttestation parses a TPMS_ATTEST without a size prefix. It is strict: each value has
// one encoding, and trailing bytes are refused. Statements of TPM2_Certify and TPM2_Quote are
// parsed to the end; every other type is refused after the header with the check "attest-type",
// and the error names the type.
//
// The result refers to b, which must not be changed afterwards. Errors are a
// [*refusal.Error] with the check "attest-size", "attest-encoding", [CheckMagic] or
// the check "attest-type".
func ParseAttestation(b []byte) (*Attestation, error) {
	if len(b) > maxAttestationSize {
		return nil, checkAttestSize.Refuse(strconv.Itoa(len(b))+" bytes", "at most "+strconv.Itoa(maxAttestationSize))
	}
	// One allocation for both: most statements are of this kind.
	v := &struct {
		attestation Attestation
		certified   CertifyInfo
	}{}
	a := &v.attestation
	a.Raw = b
	w := wire{in: b}
	if err := a.codeHeader(&w); err != nil {
		return nil, err
	}
	switch a.Type {
	case tpm2.TPMSTAttestCertify:
		a.Certified = &v.certified
	case tpm2.TPMSTAttestQuote:
		a.Quote = new(QuoteInfo)
	}
	if err := a.codeInfo(&w); err != nil {
		return nil, err
	}
	if !w.in.Empty() {
		return nil, badAttest(strconv.Itoa(len(w.in))+" bytes after the statement", "none")
	}
	return a, nil
}

// Marshal returns the TPMS_ATTEST of a's fields; for a parsed one, these are the bytes it was
// parsed from. It returns a [*refusal.Error] if Type and the set member disagree, or if a
// field is too long for its size prefix.
func (a *Attestation) Marshal() ([]byte, error) {
	a = cmp.Or(a, new(Attestation))
	w := writer(256)
	if err := a.codeHeader(w); err != nil {
		return nil, err
	}
	if err := a.codeInfo(w); err != nil {
		return nil, err
	}
	return w.out, nil
}

// codeHeader codes everything before the union: magic to firmware version.
func (a *Attestation) codeHeader(w *wire) error {
	magic, safe := uint32(attestMagic), uint8(0)
	if a.Safe {
		safe = 1
	}
	switch {
	case !number(w, &magic):
		return badAttest("fewer than 4 bytes", "a TPMS_ATTEST")
	case magic != attestMagic:
		return CheckMagic.Refuse(tpmwire.HexNumber(uint64(magic), 8), tpmwire.HexNumber(attestMagic, 8))
	case !number(w, &a.Type):
		return badAttest("no type", "a type")
	case !w.tpm2b(&a.QualifiedSigner, message.MaxNameSize):
		return badAttest("qualified signer", "a name of at most 66 bytes")
	case !w.tpm2b(&a.ExtraData, maxExtraDataSize):
		return badAttest("extra data", "at most 66 bytes")
	case !number(w, &a.Clock) || !number(w, &a.ResetCount) || !number(w, &a.RestartCount) || !number(w, &safe) || !number(w, &a.FirmwareVersion):
		return badAttest("an end within clock or firmware version", "a TPMS_ATTEST")
	case safe > 1:
		return badAttest("clockInfo.safe "+tpmwire.HexNumber(uint64(safe), 2), "00 or 01")
	}
	a.Safe = safe == 1
	return nil
}

// codeInfo codes the union.
func (a *Attestation) codeInfo(w *wire) error {
	switch {
	case a.Type == tpm2.TPMSTAttestCertify && a.Certified != nil && a.Quote == nil:
		if !w.tpm2b(&a.Certified.Name, message.MaxNameSize) || !w.tpm2b(&a.Certified.QualifiedName, message.MaxNameSize) {
			return badAttest("certify info", "two names of at most 66 bytes")
		}
		return nil
	case a.Type == tpm2.TPMSTAttestQuote && a.Quote != nil && a.Certified == nil:
		return a.Quote.code(w)
	}
	return checkStatementType.Refuse(statementTypeName(a.Type), "a certify or quote statement with its own member only")
}

func (q *QuoteInfo) code(w *wire) error {
	count := uint32(len(q.Selections))
	if !number(w, &count) || !w.writing && count > tpmwire.MaxPCRBanks {
		return badAttest("PCR selection", "at most 16 banks")
	}
	if !w.writing && count > 0 {
		q.Selections = make([]PCRSelection, count)
	}
	for n := range q.Selections {
		one := &q.Selections[n]
		if !number(w, &one.Hash) || !sized[uint8](w, &one.Select, 1, tpmwire.MaxPCRSelectSize) {
			return badAttest("PCR selection", "a bank and 1 to 4 octets")
		}
	}
	if !w.tpm2b(&q.PCRDigest, tpmwire.MaxDigestSize) {
		return badAttest("PCR digest", "at most 64 bytes")
	}
	return nil
}

func badAttest(got, want string) error { return checkAttestEncoding.Refuse(got, want) }

// statementTypeName returns the specification's name and the number.
func statementTypeName(t tpm2.TPMST) string {
	names := map[tpm2.TPMST]string{
		tpm2.TPMSTAttestNV: "NV_Certify", tpm2.TPMSTAttestCommandAudit: "GetCommandAuditDigest",
		tpm2.TPMSTAttestSessionAudit: "GetSessionAuditDigest", tpm2.TPMSTAttestCertify: "Certify",
		tpm2.TPMSTAttestQuote: "Quote", tpm2.TPMSTAttestTime: "GetTime",
		tpm2.TPMSTAttestCreation: "CertifyCreation", tpm2.TPMSTAttestNVDigest: "NV_Certify of a digest",
	}
	return cmp.Or(names[t], "unknown") + " (" + tpmwire.HexNumber(uint64(t), 4) + ")"
}
