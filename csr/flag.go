package csr

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// flagTrue is DER BOOLEAN TRUE. It is never written.
var flagTrue = []byte{1, 1, 0xff}

// FlagExtension makes the extension which says that a request comes with TPM evidence
// (the 2018 TPM bootstrapping design, "CSR creation"): DER BOOLEAN TRUE, not critical.
// The design never registered an identifier, so the caller gives one. It must be valid,
// its arcs fit 31 bits, else crypto/x509 refuses the whole request, and it must not be
// that of another extension: below 2.5.29 or 1.3.6.1.5.5.7.1, or the provider ID's. The
// error is a [*Error] with [CheckFlag].
//
// The flag is a hint for people and for routing. Nothing may be decided on it alone: a
// requester sets or leaves it as it likes.
func FlagExtension(id asn1.ObjectIdentifier) (pkix.Extension, error) {
	if !isFlagIdentifier(id) {
		return pkix.Extension{}, &Error{Check: CheckFlag, Got: "identifier " + id.String(), Want: "an object identifier with arcs of at most 31 bits"}
	}
	if isKnownExtension(id) {
		return pkix.Extension{}, &Error{Check: CheckFlag, Got: "identifier " + id.String() + " of another extension", Want: "an identifier of its own"}
	}
	return pkix.Extension{Id: append(asn1.ObjectIdentifier(nil), id...), Value: bytes.Clone(flagTrue)}, nil
}

// isFlagIdentifier reports whether encoding/asn1 reads id as it stands.
func isFlagIdentifier(id asn1.ObjectIdentifier) bool {
	o, _ := oid.FromASN1(id) // where it fails o is empty, which is no identifier
	_, ok := o.ASN1()
	return ok
}

// isKnownExtension reports whether id names an extension that means something else: one
// of X.509 (RFC 5280, 4.2) or the provider ID.
func isKnownExtension(id asn1.ObjectIdentifier) bool {
	below := func(arc ...int) bool { return len(id) >= len(arc) && id[:len(arc)].Equal(arc) }
	return below(2, 5, 29) || below(1, 3, 6, 1, 5, 5, 7, 1) || oid.KubernetesNodeProviderIdentifier.Equal(id)
}

// HasFlag looks for the extension of [FlagExtension]. It returns false without an error
// where there is none, and a [*Error] with [CheckFlag] where there are several, or
// one that is critical or has another value.
func HasFlag(extensions []pkix.Extension, id asn1.ObjectIdentifier) (bool, error) {
	found := false
	for i := range extensions {
		e := &extensions[i]
		switch {
		case !e.Id.Equal(id):
			continue
		case found:
			return false, &Error{Check: CheckFlag, Got: "two flag extensions", Want: "one"}
		case e.Critical:
			return false, &Error{Check: CheckFlag, Got: "a critical flag extension", Want: "one that is not critical"}
		case !bytes.Equal(e.Value, flagTrue):
			return false, &Error{Check: CheckFlag, Got: "value " + refusal.Hex(e.Value), Want: "DER TRUE"}
		}
		found = true
	}
	return found, nil
}
