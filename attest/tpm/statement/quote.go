package statement

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// MaxEventLogSize bounds a firmware event log, in bytes. Real machines have logs of 10 to 80
// KiB.
const MaxEventLogSize = 128 << 10

// QuoteEvidence is one statement of TPM2_Quote with the values that it is about: an attestation
// key's word on the TPM's PCRs. TPM structures have no outer size prefixes.
type QuoteEvidence struct {
	// Attest is the TPMS_ATTEST, at most 1024 bytes.
	Attest []byte
	// Signature is the TPMT_SIGNATURE over Attest, or a bare signature if RawSignature is
	// set; at most 1024 bytes.
	Signature []byte
	// RawSignature is nil if Signature is a TPMT_SIGNATURE. Otherwise Signature is bare, and
	// this names its scheme and hash: see ParseRawSignature. It must come from the caller's
	// knowledge of the format, not from the sender.
	RawSignature *KeyScheme
	// PCRs are the values of the quoted PCRs, each once, in any order.
	PCRs []PCR
}

// MarshalQuote returns the DER of the statement oid.NodeAttestQuote for e:
//
//	Quote ::= SEQUENCE { tpmSAttest OCTET STRING, signature OCTET STRING,
//	        pcrs SEQUENCE OF SEQUENCE { bank INTEGER, index INTEGER, value OCTET STRING } }
//
// pcrs are 1 to 128, ascending by bank (the number of its algorithm) and index. The signature
// is included as it is. It returns a [*refusal.Error] with "message-encoding", or with the
// check of a PCR that is malformed or listed twice.
func MarshalQuote(e *QuoteEvidence) ([]byte, error) {
	e = cmp.Or(e, new(QuoteEvidence))
	pcrs, err := SortedPCRs(e.PCRs)
	if err != nil {
		return nil, err
	}
	return der.Marshal("quote", func(c *der.Codec) {
		signed(c, &e.Attest, &e.Signature)
		c.Demand(len(pcrs) > 0, "pcrs", "at least one PCR")
		c.Nested("pcrs", asn1.SEQUENCE, func(c *der.Codec) {
			for _, p := range pcrs {
				bank, index := int64(p.Bank), int64(p.Index)
				c.Nested("pcr", asn1.SEQUENCE, func(c *der.Codec) {
					der.Int(c, "bank", &bank, 1<<16-1)
					der.Int(c, "index", &index, 8*tpmwire.MaxPCRSelectSize-1)
					c.Octets("value", &p.Value, asn1.OCTET_STRING, 1, tpmwire.MaxDigestSize)
				})
			}
		})
	})
}

// ParseQuote parses the DER of a quote statement. It accepts exactly what [MarshalQuote]
// writes, and looks only at the frame and the form of the PCRs: the rest is left to
// [VerifyQuote]. The result shares memory with data and its RawSignature is nil. It returns
// a [*refusal.Error] with "message-encoding", "message-size" or the check of a PCR that is
// malformed or listed twice.
func ParseQuote(data []byte) (*QuoteEvidence, error) {
	type message struct {
		QuoteEvidence
		pcrs []byte
	}
	m, err := der.Parse(&message{}, "quote", data, der.MaxEvidenceSize, func(m *message, c *der.Codec) {
		signed(c, &m.Attest, &m.Signature)
		c.Sequence("pcrs", &m.pcrs)
	})
	if err != nil {
		return nil, err
	}
	if m.PCRs, err = readPCRs(m.pcrs); err != nil {
		return nil, err
	}
	return &m.QuoteEvidence, nil
}

// readPCRs needs no limit of its own: in ascending order there can be at most maxPCRs.
func readPCRs(list cryptobyte.String) ([]PCR, error) {
	list.ReadASN1(&list, asn1.SEQUENCE)
	pcrs := make([]PCR, 0, pcrsPerBank)
	for !list.Empty() {
		var one, value cryptobyte.String
		var bank uint16
		var index uint8
		if !list.ReadASN1(&one, asn1.SEQUENCE) || !one.ReadASN1Integer(&bank) || !one.ReadASN1Integer(&index) || index >= 8*tpmwire.MaxPCRSelectSize ||
			!one.ReadASN1(&value, asn1.OCTET_STRING) || len(value) == 0 || len(value) > tpmwire.MaxDigestSize || !one.Empty() {
			return nil, der.Fault("quote", "pcr", "a SEQUENCE of a bank, an index of at most 31 and a value of 1 to 64 bytes")
		}
		p := PCR{Bank: tpm2.TPMAlgID(bank), Index: int(index), Value: value}
		if err := p.Check(); err != nil {
			return nil, err
		}
		if len(pcrs) > 0 {
			switch pcrs[len(pcrs)-1].ID().compare(p.ID()) {
			case 0:
				return nil, checkPCRDuplicate.Refuse(p.ID().String()+" twice", "once")
			case 1:
				return nil, der.Fault("quote", "pcrs", "PCRs in ascending order")
			}
		}
		pcrs = append(pcrs, p)
	}
	if len(pcrs) == 0 {
		return nil, der.Fault("quote", "pcrs", "at least one PCR")
	}
	return pcrs, nil
}

// MarshalEventLog returns the DER of the statement oid.NodeAttestEventLog: an OCTET STRING
// with the log as the firmware wrote it, 1 to [MaxEventLogSize] bytes. It returns a
// [*refusal.Error] with "message-encoding".
func MarshalEventLog(log []byte) ([]byte, error) {
	return der.MarshalOctets("event log", log, MaxEventLogSize)
}

// ParseEventLog parses the DER of an event log statement and returns the log, which shares
// memory with data and is not inspected. It returns a [*refusal.Error] with
// "message-encoding".
func ParseEventLog(data []byte) ([]byte, error) {
	return der.ParseOctets("event log", data, MaxEventLogSize)
}

// checkQuoteOptions: the [QuoteOptions] say too little to decide. The fault is the caller's,
// not the evidence's.
const checkQuoteOptions refusal.Check = "quote-options"

// QuoteOptions say what [VerifyQuote] checks a quote against. The zero value refuses: it
// names no attestation key and no qualifying data.
type QuoteOptions struct {
	// AK is the attestation key, and where the trust in it comes from. The zero value
	// is refused.
	AK AK
	// QualifyingData is the required extraData of the quote, byte for byte; empty is
	// refused: see [CertifyOptions].
	QualifyingData []byte
	// Selection is the exact set of PCRs that the quote must cover. Nil leaves the choice to the
	// sender: a policy then reads values by [Quoted.Value], which returns an error for a PCR that
	// was not quoted.
	Selection []PCRSelection

	// InsecureAllowAnyQualifyingData skips the comparison with QualifyingData: a
	// quote may then be as old as the attestation key. For recorded quotes.
	InsecureAllowAnyQualifyingData bool
	// InsecureEmptyQualifyingData requires empty extraData, with QualifyingData empty. Such a
	// quote is valid forever, and for every verifier.
	InsecureEmptyQualifyingData bool
	// InsecureAllowSHA1Signature accepts quotes that are signed with SHA-1, whose PCR digest
	// is also under SHA-1.
	InsecureAllowSHA1Signature bool
	// InsecureAllowSHA1Name accepts a Name of the attestation key under SHA-1.
	InsecureAllowSHA1Name bool
	// InsecureAllowSHA1Bank accepts PCRs of the SHA-1 bank. Anyone who can compute a
	// collision can measure one program and run another.
	InsecureAllowSHA1Bank bool
}

// Quoted is the content of a verified quote. Only [VerifyQuote] makes one: the zero value
// covers no PCR.
type Quoted struct {
	// Attestation is the statement, of type quote.
	Attestation *Attestation
	// AKPublic is the attestation key's public area, or nil if only its key was given.
	// AKTrust says where the trust in the key comes from: under [AKBySender] the values are
	// whatever the sender wants them to be.
	AKPublic *Public
	AKTrust  AKTrust
	// SignatureScheme is the scheme and the hash with which the quote is signed.
	SignatureScheme KeyScheme
	// ClockTrusted says that resetCount, restartCount and firmwareVersion of
	// Attestation are the TPM's own numbers: see [Certified].
	ClockTrusted bool

	pcrs []PCR
}

// PCRs returns every value that the quote covers, ascending by bank and index, except for the
// PCRs that any program can reset ([ResettablePCR]). The values must not be changed.
func (q *Quoted) PCRs() []PCR {
	return slices.DeleteFunc(slices.Clone(q.pcrs), func(p PCR) bool { return ResettablePCR(p.Index) })
}

// Value returns the quoted value of one PCR. A PCR that the quote does not cover is a
// [*refusal.Error] with [CheckPCRNotQuoted], never a default; a PCR that proves nothing is one
// with [CheckPCRResettable]. The value must not be changed.
func (q *Quoted) Value(bank tpm2.TPMAlgID, index int) ([]byte, error) {
	q = cmp.Or(q, new(Quoted))
	id := PCRID{bank, index}
	if ResettablePCR(index) {
		return nil, CheckPCRResettable.Refuse(id.String(), "a PCR that only a reset of the machine resets")
	}
	if value := valueOf(q.pcrs, id); value != nil {
		return value, nil
	}
	return nil, CheckPCRNotQuoted.Refuse("no "+id.String()+" in the quote", "a quote over it")
}

// VerifyQuote checks one statement of TPM2_Quote and the PCR values that come with it against
// a trusted attestation key and qualifying data. It is the lower-level function for evidence
// that does not answer a challenge of this package. Whether the values are good is for a
// tpm.QuotePolicy to say.
//
// The checks, each with its own Check, are: sizes, canonical parsing, magic and type; qualifying
// data, in constant time; the selection, not empty and without repetition; the values, one for each
// PCR of the selection; the attestation key's attributes, scheme and strength; the digest of the
// values; and finally the signature. A refusal is a [*refusal.Error].
func VerifyQuote(e *QuoteEvidence, opts QuoteOptions) (*Quoted, error) {
	if e == nil {
		return nil, checkQuoteOptions.Refuse("no evidence", "some")
	}
	in := QuoteInput{
		CertifyInput: CertifyInput{AKKey: opts.AK.key, Options: CertifyOptions{
			AK:                             opts.AK,
			QualifyingData:                 opts.QualifyingData,
			InsecureAllowAnyQualifyingData: opts.InsecureAllowAnyQualifyingData,
			InsecureEmptyQualifyingData:    opts.InsecureEmptyQualifyingData,
			InsecureAllowSHA1Signature:     opts.InsecureAllowSHA1Signature,
			InsecureAllowSHA1Name:          opts.InsecureAllowSHA1Name,
		}},
		selection:     opts.Selection,
		allowSHA1Bank: opts.InsecureAllowSHA1Bank,
	}
	err := inOrder(
		func() error { return in.Options.checkCommon(checkQuoteOptions) },
		func() error { return in.readAK(opts.AK.public) },
		func() error { return in.ParseQuote(e) },
		in.CheckBeforeSignature, in.CheckSignature)
	if err != nil {
		return nil, err
	}
	return in.Quoted(&opts.AK), nil
}

// QuoteInput is a quote with everything that it is checked against. From the certify
// statement's input it uses what every statement of an attestation key has, but no certified
// key.
type QuoteInput struct {
	CertifyInput
	selection     []PCRSelection // expected; nil means any
	allowSHA1Bank bool

	selected []PCRID // in the order of the digest
	pcrs     []PCR   // sorted
}

// ParseQuote parses the statement and the signature, and sorts the values. The attestation
// key must be filled in.
func (in *QuoteInput) ParseQuote(e *QuoteEvidence) (err error) {
	in, e = cmp.Or(in, new(QuoteInput)), cmp.Or(e, new(QuoteEvidence))
	if err := in.parseSigned(e.Attest, e.Signature, e.RawSignature); err != nil {
		return err
	}
	in.pcrs, err = SortedPCRs(e.PCRs)
	return err
}

// CheckBeforeSignature runs every check except the signature's verification.
func (in *QuoteInput) CheckBeforeSignature() error {
	in = cmp.Or(in, new(QuoteInput))
	if in.Attest == nil || in.Attest.Quote == nil {
		return checkStatementType.Refuse(statementTypeName(cmp.Or(in.Attest, new(Attestation)).Type),
			statementTypeName(tpm2.TPMSTAttestQuote))
	}
	return inOrder(in.checkQualifyingData, in.checkSelection, in.checkValues, in.checkAK, in.checkQualifiedSigner,
		in.checkSignatureForm, in.checkDigest)
}

func (in *QuoteInput) checkSelection() (err error) {
	if in.selected, err = SelectedPCRs(in.Attest.Quote.Selections, in.allowSHA1Bank); err != nil || in.selection == nil {
		return err
	}
	want, err := SelectedPCRs(in.selection, in.allowSHA1Bank)
	if err == nil && !samePCRs(in.selected, want) {
		err = CheckPCRSelection.Refuse(namesOfPCRs(in.selected), namesOfPCRs(want))
	}
	return err
}

// checkValues requires the selected PCRs and no others. They are known to have no duplicates.
func (in *QuoteInput) checkValues() error {
	for _, id := range in.selected {
		if valueOf(in.pcrs, id) == nil {
			return checkPCRMissing.Refuse("no value of "+id.String(), "a value for each quoted PCR")
		}
	}
	for _, p := range in.pcrs {
		if !slices.Contains(in.selected, p.ID()) {
			return CheckPCRNotQuoted.Refuse("a value of "+p.ID().String(), namesOfPCRs(in.selected))
		}
	}
	return nil
}

// checkDigest computes the digest under the hash of the signature's scheme, over the values in
// the order of the selection, as TPM2_Quote does: Part 3, 18.4, and Part 1, 17.6.
func (in *QuoteInput) checkDigest() error {
	values := make([]byte, 0, len(in.selected)*tpmwire.MaxDigestSize)
	for _, id := range in.selected {
		values = append(values, valueOf(in.pcrs, id)...) // there is one: checkValues
	}
	digest := tpmwire.AppendDigest(nil, tpmwire.HashOf(in.Sig.Hash), values)
	if quoted := in.Attest.Quote.PCRDigest; !bytes.Equal(digest, quoted) {
		return checkPCRDigest.Refuse(refusal.Hex(digest)+" for the values given", refusal.Hex(quoted))
	}
	return nil
}

// Quoted returns the content of a verified quote by ak.
func (in *QuoteInput) Quoted(ak *AK) *Quoted {
	return &Quoted{
		Attestation:     in.Attest,
		AKPublic:        in.AK,
		AKTrust:         ak.Trust,
		SignatureScheme: KeyScheme{Alg: in.Sig.Alg, Hash: in.Sig.Hash},
		ClockTrusted:    ak.trusted() && in.clockTrusted(),
		pcrs:            in.pcrs,
	}
}
