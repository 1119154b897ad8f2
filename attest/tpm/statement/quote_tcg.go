package statement

import (
	"strconv"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// ParseTCGAttestQuote parses the DER of a tcg-attest-tpm-quote statement
// (oid.TCGAttestTPMQuote, draft-birkholz-rats-tcg-tpm2-attestation), which other software
// makes where this SDK uses [MarshalQuote]:
//
//	TcgAttestQuote ::= SEQUENCE { tpmSAttest OCTET STRING, signature OCTET STRING,
//	                              pcrValues OCTET STRING OPTIONAL }
//
// pcrValues are the values of the quoted PCRs without their numbers, concatenated as
// TPM2_Quote digests them: bank by bank as selected, ascending within each. Which PCRs they
// are is taken from the TPMS_ATTEST, so that is parsed here. The rest is left to
// [VerifyQuote], which computes the digest under the hash of the attestation key's scheme,
// whatever the banks are, and refuses a statement without values or with too few.
//
// The result shares memory with data and its RawSignature is nil. It returns a
// [*refusal.Error] with "message-encoding" or "message-size"; the check "attest-type" if
// the statement is not a quote, or another check of [ParseAttestation]; [CheckPCRSelection] or
// the check "pcr-bank"; the check "pcr-missing" if the values end in the middle of one, or
// [CheckPCRNotQuoted] if there are more than were quoted.
func ParseTCGAttestQuote(data []byte) (*QuoteEvidence, error) {
	type message struct {
		QuoteEvidence
		values []byte // nil if the field is absent
	}
	q, err := der.Parse(&message{}, "quote", data, der.MaxEvidenceSize, func(m *message, c *der.Codec) {
		signed(c, &m.Attest, &m.Signature)
		c.Optional("pcrValues", &m.values, asn1.OCTET_STRING, 1, maxPCRs*tpmwire.MaxDigestSize)
	})
	if err != nil {
		return nil, err
	}
	a, err := ParseAttestation(q.Attest)
	if err != nil {
		return nil, err
	}
	if a.Quote == nil {
		return nil, checkStatementType.Refuse(statementTypeName(a.Type), statementTypeName(tpm2.TPMSTAttestQuote))
	}
	selected, err := SelectedPCRs(a.Quote.Selections, true) // VerifyQuote decides about SHA-1
	if err != nil {
		return nil, err
	}
	for left := q.values; len(left) > 0; {
		n := len(q.PCRs)
		if n == len(selected) {
			return nil, CheckPCRNotQuoted.Refuse(strconv.Itoa(len(left))+" bytes more", namesOfPCRs(selected))
		}
		id := selected[n]
		size := tpmwire.HashOf(id.bank).Size()
		if len(left) < size {
			return nil, checkPCRMissing.Refuse(strconv.Itoa(len(left))+" bytes for "+id.String(), strconv.Itoa(size))
		}
		q.PCRs, left = append(q.PCRs, PCR{id.bank, id.index, left[:size]}), left[size:]
	}
	return &q.QuoteEvidence, nil
}
