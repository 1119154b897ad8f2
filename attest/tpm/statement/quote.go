package statement

import (
	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// MaxEventLogSize bounds a firmware event log, in bytes. Logs of machines in use
// have 10 to 80 KiB.
const MaxEventLogSize = 128 << 10

// QuoteEvidence is one statement of TPM2_Quote with the values that it is about: an
// attestation key's word on what was measured into the TPM's PCRs. TPM structures
// stand without outer size prefixes.
type QuoteEvidence struct {
	// Attest is the TPMS_ATTEST, at most MaxAttestationSize bytes.
	Attest []byte
	// Signature is the TPMT_SIGNATURE over Attest, or a bare signature where
	// RawSignature is set; at most 1024 bytes.
	Signature []byte
	// RawSignature is nil where Signature is a TPMT_SIGNATURE. Else Signature is
	// bare, and this names scheme and hash: see ParseRawSignature. It must come from
	// the caller's knowledge of the format, not from the sender.
	RawSignature *RawScheme
	// PCRs are the values of the quoted PCRs, each once, in any order.
	PCRs []PCR
}

// MarshalQuote returns the DER of the statement [oid.NodeAttestQuote] over e:
//
//	Quote ::= SEQUENCE { tpmSAttest OCTET STRING, signature OCTET STRING,
//	        pcrs SEQUENCE OF SEQUENCE { bank INTEGER, index INTEGER, value OCTET STRING } }
//
// pcrs are 1 to [MaxPCRs], ascending by bank (the number of its algorithm) and
// index. The signature goes in as it is. It returns an [*Error] with
// attest.CheckEncoding, or with the check of a PCR that is not well formed or there twice.
func MarshalQuote(e *QuoteEvidence) ([]byte, error) {
	if err := checkSigned("quote", e.Attest, e.Signature); err != nil {
		return nil, err
	}
	pcrs, err := SortedPCRs(e.PCRs)
	if err != nil {
		return nil, err
	}
	if len(pcrs) == 0 {
		return nil, der.Fault("quote", "pcrs", "at least one PCR")
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1OctetString(e.Attest)
		b.AddASN1OctetString(e.Signature)
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, p := range pcrs {
				b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1Int64(int64(p.Bank))
					b.AddASN1Int64(int64(p.Index))
					b.AddASN1OctetString(p.Value)
				})
			}
		})
	})
	return b.Bytes()
}

// ParseQuote reads the DER of a quote statement. It accepts exactly what
// [MarshalQuote] writes, and looks at the frame and at the form of the PCRs only:
// the rest is for [VerifyQuote]. The result shares memory with data and its
// RawSignature is nil. It returns an [*Error] with attest.CheckEncoding, attest.CheckSize or
// the check of a PCR that is not well formed or there twice.
func ParseQuote(data []byte) (*QuoteEvidence, error) {
	body, err := der.OpenSequence("quote", data, der.MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	e := &QuoteEvidence{}
	if e.Attest, e.Signature, err = readSigned("quote", &body); err != nil {
		return nil, err
	}
	var list cryptobyte.String
	if !body.ReadASN1(&list, asn1.SEQUENCE) || !body.Empty() {
		return nil, der.Fault("quote", "pcrs", "a SEQUENCE OF and nothing after it")
	}
	if e.PCRs, err = readPCRs(list); err != nil {
		return nil, err
	}
	return e, nil
}

// readPCRs needs no limit of its own: ascending, there are at most MaxPCRs.
func readPCRs(list cryptobyte.String) ([]PCR, error) {
	pcrs := make([]PCR, 0, pcrsPerBank)
	for !list.Empty() {
		var one cryptobyte.String
		if !list.ReadASN1(&one, asn1.SEQUENCE) {
			return nil, der.Fault("quote", "pcr", "a SEQUENCE")
		}
		bank, err := der.ReadInt("quote", "bank", &one, 1<<16-1)
		if err != nil {
			return nil, err
		}
		index, err := der.ReadInt("quote", "index", &one, 8*tpmwire.MaxPCRSelectSize-1)
		if err != nil {
			return nil, err
		}
		value, err := der.ReadOctets("quote", "value", &one, asn1.OCTET_STRING, 1, tpmwire.MaxDigestSize)
		if err != nil {
			return nil, err
		}
		if !one.Empty() {
			return nil, der.Fault("quote", "pcr", "nothing after value")
		}
		p := PCR{Bank: tpm2.TPMAlgID(bank), Index: int(index), Value: value}
		if err := p.Check(); err != nil {
			return nil, err
		}
		if len(pcrs) > 0 {
			switch pcrs[len(pcrs)-1].ID().compare(p.ID()) {
			case 0:
				return nil, tpmwire.Refuse(CheckPCRDuplicate, p.ID().String()+" twice", "once")
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

// MarshalEventLog returns the DER of the statement [oid.NodeAttestEventLog]: an
// OCTET STRING of the log as the firmware wrote it, 1 to [MaxEventLogSize] bytes. It
// returns an [*Error] with attest.CheckEncoding.
func MarshalEventLog(log []byte) ([]byte, error) {
	if len(log) == 0 || len(log) > MaxEventLogSize {
		return nil, der.Fault("event log", "size", "1 to 131072 bytes")
	}
	var b cryptobyte.Builder
	b.AddASN1OctetString(log)
	return b.Bytes()
}

// ParseEventLog reads the DER of an event log statement and returns the log, which
// shares memory with data and is not looked at. It returns an [*Error] with
// attest.CheckEncoding.
func ParseEventLog(data []byte) ([]byte, error) {
	s := cryptobyte.String(data)
	log, err := der.ReadOctets("event log", "frame", &s, asn1.OCTET_STRING, 1, MaxEventLogSize)
	if err != nil {
		return nil, err
	}
	if !s.Empty() {
		return nil, der.Fault("event log", "frame", "nothing after the OCTET STRING")
	}
	return log, nil
}
