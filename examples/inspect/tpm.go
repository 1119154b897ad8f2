package main

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/attest/tpm"
)

// uint takes a big-endian number of n bytes.
func (r *reader) uint(name string, n int) (uint64, bool) {
	b, ok := r.bytes(name, n)
	var v uint64
	for _, one := range b {
		v = v<<8 | uint64(one)
	}
	return v, ok
}

// count takes a number and writes it.
func (r *reader) count(name string, n int) {
	if v, ok := r.uint(name, n); ok {
		r.t.line(name, strconv.FormatUint(v, 10))
	}
}

// sized takes what TPM structures call a TPM2B: a size of two bytes, and so many.
func (r *reader) sized(name string) ([]byte, bool) {
	n, ok := r.uint(name+"'s size", 2)
	if !ok {
		return nil, false
	}
	return r.bytes(name, int(n))
}

// sizedLine takes a TPM2B and writes it.
func (r *reader) sizedLine(name string) []byte {
	b, ok := r.sized(name)
	if ok {
		r.t.line(name, hexOf(b))
	}
	return b
}

// name takes a TPM2B_NAME: the algorithm, and a digest under it.
func (r *reader) name(name string) {
	b, ok := r.sized(name)
	if !ok {
		return
	}
	under := ""
	if len(b) > 2 {
		under = ", under " + algorithmName(uint64(b[0])<<8|uint64(b[1]))
	}
	r.t.line(name, hexOf(b)+under)
}

// algorithmOf takes a TPM_ALG_ID and writes its name.
func (r *reader) algorithmOf(name string) uint64 {
	v, ok := r.uint(name, 2)
	if ok {
		r.t.line(name, algorithmName(v))
	}
	return v
}

// showAttestation reads a TPMS_ATTEST: TPM 2.0 Library, Part 2, 10.12.12.
func showAttestation(r *reader) {
	r.strictly(func() {
		if magic, ok := r.uint("magic", 4); ok {
			r.t.line("magic", fmt.Sprintf("0x%08x (%s)", magic, magicName(magic)))
		}
		kind, ok := r.uint("type", 2)
		if ok {
			r.t.line("type", fmt.Sprintf("%s (0x%04x)", statementName(kind), kind))
		}
		r.name("qualifiedSigner")
		r.sizedLine("extraData")
		if clock, ok := r.uint("clock", 8); ok {
			r.t.line("clock", strconv.FormatUint(clock, 10)+" ms")
		}
		r.count("resetCount", 4)
		r.count("restartCount", 4)
		if safe, ok := r.uint("safe", 1); ok {
			r.t.line("safe", map[uint64]string{0: "no", 1: "yes"}[safe]+fmt.Sprintf(" (%02x)", safe))
		}
		if version, ok := r.uint("firmwareVersion", 8); ok {
			r.t.line("firmwareVersion", fmt.Sprintf("%016x", version))
		}
		switch kind {
		case 0x8017:
			r.name("certified name")
			r.name("certified qualifiedName")
		case 0x8018:
			r.quoteInfo()
		default:
			r.t.line("attested", hexOf(r.b))
			r.b, r.at = nil, r.at+len(r.b)
		}
	}, func(raw []byte) error {
		a, err := tpm.ParseAttestation(raw)
		if err == nil && r.t.parts.attestation == nil {
			r.t.parts.attestation = a
		}
		return err
	})
}

func magicName(magic uint64) string {
	if magic == 0xff544347 {
		return "TPM_GENERATED_VALUE"
	}
	return "NOT TPM_GENERATED_VALUE, so no TPM made this"
}

func statementName(kind uint64) string {
	names := map[uint64]string{
		0x8014: "NV_Certify", 0x8015: "GetCommandAuditDigest", 0x8016: "GetSessionAuditDigest",
		0x8017: "Certify", 0x8018: "Quote", 0x8019: "GetTime", 0x801a: "CertifyCreation", 0x801c: "NV_Certify, digest",
	}
	if name := names[kind]; name != "" {
		return name
	}
	return "no attestation type"
}

// quoteInfo reads a TPMS_QUOTE_INFO: which PCRs, and the digest of their values.
func (r *reader) quoteInfo() {
	banks, _ := r.uint("PCR banks", 4)
	for ; banks > 0 && !r.done; banks-- {
		hash, _ := r.uint("PCR bank", 2)
		n, _ := r.uint("PCR selection's size", 1)
		bits, ok := r.bytes("PCR selection", int(n))
		if !ok {
			return
		}
		var indexes []string
		for _, i := range (tpm.PCRSelection{Select: bits}).PCRs() {
			indexes = append(indexes, strconv.Itoa(i))
		}
		r.t.line("PCRs of "+algorithmName(hash), strings.Join(indexes, " "))
	}
	r.sizedLine("PCR digest")
}

// showAnySignature reads a TPMT_SIGNATURE, or tells the size of a signature that is
// carried bare, as in GKE's requests and in the sample of the attestation draft.
func showAnySignature(r *reader) {
	if isSignature(r.b) {
		showSignature(r)
		return
	}
	showBareSignature(r)
}

// showBareSignature tells the size of a signature that does not say its own scheme.
func showBareSignature(r *reader) {
	if r.t.parts.signature == nil {
		r.t.parts.signature, r.t.parts.bare = r.b, true
	}
	r.t.line("bare signature", hexOf(r.b))
	r.t.line("scheme", "not stated: this is no TPMT_SIGNATURE")
	r.b, r.at = nil, r.at+len(r.b)
	r.end()
}

// showSignature reads a TPMT_SIGNATURE: Part 2, 11.3.4.
func showSignature(r *reader) {
	r.strictly(func() {
		scheme := r.algorithmOf("scheme")
		r.algorithmOf("hash")
		if scheme == 0x0018 {
			r.sizedLine("r")
			r.sizedLine("s")
			return
		}
		r.sizedLine("signature")
	}, func(raw []byte) error {
		_, err := tpm.ParseSignature(raw)
		if err == nil && r.t.parts.signature == nil {
			r.t.parts.signature = raw
		}
		return err
	})
}

// algorithmName gives the word of the TCG Algorithm Registry and the number.
func algorithmName(v uint64) string {
	names := map[uint64]string{
		0x0001: "RSA", 0x0004: "SHA1", 0x0006: "AES", 0x0008: "KEYEDHASH", 0x000b: "SHA256", 0x000c: "SHA384",
		0x000d: "SHA512", 0x0010: "NULL", 0x0012: "SM3_256", 0x0014: "RSASSA", 0x0015: "RSAES", 0x0016: "RSAPSS",
		0x0017: "OAEP", 0x0018: "ECDSA", 0x0019: "ECDH", 0x001a: "ECDAA", 0x001b: "SM2", 0x0023: "ECC",
		0x0025: "SYMCIPHER", 0x0027: "SHA3_256", 0x0028: "SHA3_384", 0x0029: "SHA3_512", 0x0043: "CFB",
	}
	number := fmt.Sprintf("0x%04x", v)
	if name := names[v]; name != "" {
		return name + " (" + number + ")"
	}
	return number
}

// isAlgorithm reports whether b begins with one of the identifiers.
func isAlgorithm(b []byte, ids ...string) bool {
	if len(b) < 2 {
		return false
	}
	for _, id := range ids {
		if hex.EncodeToString(b[:2]) == id {
			return true
		}
	}
	return false
}

// isSignature reports whether b begins like a TPMT_SIGNATURE: a scheme and a hash.
func isSignature(b []byte) bool {
	return isAlgorithm(b, "0014", "0016", "0018") && (len(b) < 4 || isAlgorithm(b[2:], "0004", "000b", "000c", "000d"))
}

// isPublic reports whether b begins like a TPMT_PUBLIC: a kind of key and a hash.
func isPublic(b []byte) bool {
	return isAlgorithm(b, "0001", "0023") && (len(b) < 4 || isAlgorithm(b[2:], "0004", "000b", "000c", "000d"))
}
