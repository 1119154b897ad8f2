package statement

import (
	"bytes"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// CheckQuoteOptions: the [QuoteOptions] say too little to decide. It is the caller's
// fault, not the evidence's.
const CheckQuoteOptions Check = "quote-options"

// QuoteOptions say what [VerifyQuote] holds a quote against. The zero value refuses:
// it names no attestation key and no qualifying data.
type QuoteOptions struct {
	// AK is the attestation key, and where the trust in it comes from. The zero value
	// is refused.
	AK AK
	// QualifyingData is what the quote's extraData must be, byte for byte; empty is
	// refused: see [CertifyOptions].
	QualifyingData []byte
	// Selection is what must have been quoted, no more and no less. Nil leaves the
	// choice to the sender: a policy then asks [Quoted.Value] for what it needs, and
	// gets an error for what was not quoted.
	Selection []PCRSelection

	// InsecureAllowAnyQualifyingData skips the comparison with QualifyingData: a
	// quote may then be as old as the attestation key. For recorded quotes.
	InsecureAllowAnyQualifyingData bool
	// InsecureEmptyQualifyingData asks for empty extraData, where QualifyingData is
	// empty. Such a quote is good for ever, and for every verifier.
	InsecureEmptyQualifyingData bool
	// InsecureAllowSHA1Signature accepts quotes that are signed with SHA-1, whose
	// PCR digest is one of SHA-1 too.
	InsecureAllowSHA1Signature bool
	// InsecureAllowSHA1Name accepts a name of the attestation key under SHA-1.
	InsecureAllowSHA1Name bool
	// InsecureAllowSHA1Bank accepts PCRs of the SHA-1 bank. Who can compute a
	// collision can measure one program and run another.
	InsecureAllowSHA1Bank bool
}

// Quoted is what a verified quote says. Only [VerifyQuote] makes one: the zero value
// covers no PCR.
type Quoted struct {
	// Attestation is the statement, of type quote.
	Attestation *Attestation
	// AKPublic is the attestation key's public area, nil where only its key was
	// given. AKTrust says where the trust in the key comes from: under [AKBySender] the
	// values are whatever the sender wants them to be.
	AKPublic *Public
	AKTrust  AKTrust
	// SignatureScheme is the scheme and the hash that the quote is signed with.
	SignatureScheme KeyScheme
	// ClockTrusted says that resetCount, restartCount and firmwareVersion of
	// Attestation are the TPM's own numbers: see [Certified].
	ClockTrusted bool

	pcrs []PCR
}

// PCRs returns every value that the quote covers, ascending by bank and index, and
// leaves out the PCRs that any program can reset ([ResettablePCR]). The values are
// not to be changed.
func (q *Quoted) PCRs() []PCR {
	return slices.DeleteFunc(slices.Clone(q.pcrs), func(p PCR) bool { return ResettablePCR(p.Index) })
}

// Value returns the quoted value of one PCR. What the quote does not cover is an
// [*Error] with [CheckPCRNotQuoted], never a default; a PCR that proves nothing one
// with [CheckPCRResettable]. The value is not to be changed.
func (q *Quoted) Value(bank tpm2.TPMAlgID, index int) ([]byte, error) {
	id := PCRID{bank, index}
	if ResettablePCR(index) {
		return nil, tpmwire.Refuse(CheckPCRResettable, id.String(), "a PCR that only a reset of the machine resets")
	}
	p, ok := findPCR(q.pcrs, id)
	if !ok {
		return nil, tpmwire.Refuse(CheckPCRNotQuoted, "no "+id.String()+" in the quote", "a quote over it")
	}
	return p.Value, nil
}

// VerifyQuote checks one statement of TPM2_Quote and the PCR values beside it
// against a trusted attestation key and qualifying data. It is the lower function
// for evidence that comes without a challenge of this package. Whether the values
// are good ones is for a [tpm.QuotePolicy] to say.
//
// The checks, each with its own Check: sizes, canonical parsing, magic and type;
// qualifying data, in constant time; the selection, not empty and without
// repetition; the values, exactly those of the selection and each once; the
// attestation key's attributes, scheme and strength; the digest of the values; last
// the signature. A refusal is an [*Error].
func VerifyQuote(e *QuoteEvidence, o QuoteOptions) (*Quoted, error) {
	if e == nil {
		return nil, tpmwire.Refuse(CheckQuoteOptions, "no evidence", "some")
	}
	in := QuoteInput{
		CertifyInput: CertifyInput{AKKey: o.AK.key, Options: CertifyOptions{
			AK:                             o.AK,
			QualifyingData:                 o.QualifyingData,
			InsecureAllowAnyQualifyingData: o.InsecureAllowAnyQualifyingData,
			InsecureEmptyQualifyingData:    o.InsecureEmptyQualifyingData,
			InsecureAllowSHA1Signature:     o.InsecureAllowSHA1Signature,
			InsecureAllowSHA1Name:          o.InsecureAllowSHA1Name,
		}},
		selection:     o.Selection,
		allowSHA1Bank: o.InsecureAllowSHA1Bank,
	}
	err := inOrder(
		func() error { return in.Options.checkCommon(CheckQuoteOptions) },
		func() error { return in.readAK(o.AK.public) },
		func() error { return in.ParseQuote(e) },
		in.CheckBeforeSignature, in.CheckSignature)
	if err != nil {
		return nil, err
	}
	return in.Quoted(&o.AK), nil
}

// QuoteInput is a quote with all that it is held against. Of the certify statement's
// input it has what every statement of an attestation key has, and no certified key.
type QuoteInput struct {
	CertifyInput
	selection     []PCRSelection // expected; nil for any
	allowSHA1Bank bool

	selected []PCRID // in the order of the digest
	pcrs     []PCR   // sorted
}

// ParseQuote parses statement and signature and puts the values in order. The
// attestation key must be filled in.
func (in *QuoteInput) ParseQuote(e *QuoteEvidence) (err error) {
	if in.Attest, err = ParseAttestation(e.Attest); err != nil {
		return err
	}
	if in.Sig, err = parseAnySignature(e.Signature, e.RawSignature); err != nil {
		return err
	}
	in.pcrs, err = SortedPCRs(e.PCRs)
	return err
}

// CheckBeforeSignature runs every check but the signature's verification.
func (in *QuoteInput) CheckBeforeSignature() error {
	if in.Attest.Quote == nil {
		return tpmwire.Refuse(CheckStatementType, statementTypeName(in.Attest.Type), statementTypeName(tpm2.TPMSTAttestQuote))
	}
	return inOrder(in.checkQualifyingData, in.checkSelection, in.checkValues, in.checkAK, in.checkQualifiedSigner,
		in.checkSignatureForm, in.checkDigest)
}

func (in *QuoteInput) checkSelection() (err error) {
	if in.selected, err = SelectedPCRs(in.Attest.Quote.Selections, in.allowSHA1Bank); err != nil {
		return err
	}
	if in.selection == nil {
		return nil
	}
	want, err := SelectedPCRs(in.selection, in.allowSHA1Bank)
	if err != nil {
		return err
	}
	if !SamePCRs(in.selected, want) {
		return tpmwire.Refuse(CheckPCRSelection, NamesOfPCRs(in.selected), NamesOfPCRs(want))
	}
	return nil
}

// checkValues asks for the selected PCRs and no others. That none is there twice is
// known.
func (in *QuoteInput) checkValues() error {
	for _, id := range in.selected {
		if _, ok := findPCR(in.pcrs, id); !ok {
			return tpmwire.Refuse(CheckPCRMissing, "no value of "+id.String(), "a value for each quoted PCR")
		}
	}
	for _, p := range in.pcrs {
		if !slices.Contains(in.selected, p.ID()) {
			return tpmwire.Refuse(CheckPCRNotQuoted, "a value of "+p.ID().String(), NamesOfPCRs(in.selected))
		}
	}
	return nil
}

// checkDigest computes the digest under the hash of the signature's scheme, as
// TPM2_Quote does: Part 3, 18.4.
func (in *QuoteInput) checkDigest() error {
	digest := DigestOfPCRs(tpmwire.HashOf(in.Sig.Hash), in.selected, in.pcrs)
	if quoted := in.Attest.Quote.PCRDigest; !bytes.Equal(digest, quoted) {
		return tpmwire.Refuse(CheckPCRDigest, refusal.Hex(digest)+" for the values given", refusal.Hex(quoted))
	}
	return nil
}

// Quoted returns what a verified quote by ak says.
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
