package tpmcert

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/oid"
)

// Extensions of lists and of their entries (RFC 5280, 5.2 and 5.3).
const (
	oidReasonCode               oid.OID = "\x55\x1d\x15"
	oidDeltaCRLIndicator        oid.OID = "\x55\x1d\x1b"
	oidIssuingDistributionPoint oid.OID = "\x55\x1d\x1c"
	oidCertificateIssuer        oid.OID = "\x55\x1d\x1d"
)

const tagCRLExtensions asn1.Tag = 0xa0 // [0] of a TBSCertList

const (
	reasonRemoveFromCRL = 8  // RFC 5280, 5.3.1
	reasonLast          = 10 // aACompromise
)

// crl is one list: its head as parsed by crypto/x509, and its entries left in place.
type crl struct {
	head       *x509.RevocationList // without entries
	issuer     string               // dn.Key
	tbs        []byte               // the signed bytes
	entries    cryptobyte.String    // the content of revokedCertificates
	numEntries int

	mu      sync.Mutex
	signers map[[sha256.Size]byte]bool // by the digest of the SubjectPublicKeyInfo
	revoked *serialIndex               // nil until a signature has been verified, then immutable
}

// parseCRL parses a list. Of the entries it checks only the form: nothing about them is kept
// before the signature has been verified. It allocates one copy of the list, however many
// entries there are.
func parseCRL(der []byte) (*crl, error) {
	if len(der) > maxCRLSize {
		return nil, fmt.Errorf("%d bytes, at most %d", len(der), maxCRLSize)
	}
	in := cryptobyte.String(bytes.Clone(der))
	var body, tbs, algorithm, signature cryptobyte.String
	if !in.ReadASN1(&body, asn1.SEQUENCE) || !in.Empty() || !body.ReadASN1Element(&tbs, asn1.SEQUENCE) {
		return nil, errors.New("no DER, or bytes after the list")
	}
	c := &crl{tbs: tbs, signers: map[[sha256.Size]byte]bool{}}
	head, ok := c.cutEntries(tbs)
	if !ok || !body.ReadASN1Element(&algorithm, asn1.SEQUENCE) {
		return nil, errors.New("no TBSCertList")
	}
	if !body.ReadASN1Element(&signature, asn1.BIT_STRING) || !body.Empty() {
		return nil, errors.New("no signature, or bytes after it")
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(head) })
		b.AddBytes(algorithm)
		b.AddBytes(signature)
	})
	var err error
	if c.head, err = x509.ParseRevocationList(b.BytesOrPanic()); err != nil { // the size is bounded, so no panic
		return nil, err
	}
	c.issuer = dn.Key(c.head.RawIssuer)
	return c, cmp.Or(checkCRLHead(c.head), c.checkEntries())
}

// cutEntries records the entries of a TBSCertList and returns its content without them. The
// other elements are left to crypto/x509.
func (c *crl) cutEntries(tbs cryptobyte.String) (head []byte, ok bool) {
	var content, element cryptobyte.String
	var tag asn1.Tag
	ok = tbs.ReadASN1(&content, asn1.SEQUENCE)
	rest := content
	for range 4 { // version, signature, issuer, thisUpdate
		ok = ok && rest.ReadAnyASN1Element(&element, &tag)
	}
	nextUpdate := asn1.UTCTime
	if rest.PeekASN1Tag(asn1.GeneralizedTime) {
		nextUpdate = asn1.GeneralizedTime
	}
	ok = ok && rest.SkipOptionalASN1(nextUpdate)
	head = content[:len(content)-len(rest)]
	ok = ok && rest.ReadOptionalASN1(&c.entries, nil, asn1.SEQUENCE)
	head = slices.Concat(head, rest)
	return head, ok && rest.SkipOptionalASN1(tagCRLExtensions) && rest.Empty()
}

// checkCRLHead refuses lists that are not complete for their issuer, or do not say for how
// long they are current.
func checkCRLHead(list *x509.RevocationList) error {
	for _, e := range list.Extensions {
		switch {
		case oidDeltaCRLIndicator.Equal(e.Id):
			return errors.New("a delta CRL")
		case oidIssuingDistributionPoint.Equal(e.Id):
			return errors.New("a CRL with a scope (issuing distribution point)")
		case e.Critical:
			return fmt.Errorf("critical extension %s", e.Id)
		}
	}
	if list.NextUpdate.IsZero() {
		return errors.New("no nextUpdate: nothing says how long it is current (RFC 5280, 5.1.2.5)")
	}
	if list.NextUpdate.Before(list.ThisUpdate) {
		return errors.New("a nextUpdate before its thisUpdate")
	}
	return nil
}

// revokedEntry is one entry; its bytes stay in the list.
type revokedEntry struct {
	serial []byte // the content of the INTEGER
	reason uint8  // 0 if the list gives none
}

// checkEntries checks the form of all entries, and counts them.
func (c *crl) checkEntries() error {
	for in := c.entries; !in.Empty(); c.numEntries++ {
		if _, err := readEntry(&in); err != nil {
			return fmt.Errorf("entry %d: %w", c.numEntries, err)
		}
	}
	return nil
}

var (
	errEntry         = errors.New("no DER of a revoked certificate")
	errEntryIndirect = errors.New("an entry of another issuer (an indirect CRL)")
	errEntryCritical = errors.New("a critical extension that is not understood")
)

// readEntry reads one entry without allocating.
func readEntry(in *cryptobyte.String) (e revokedEntry, err error) {
	var body, serial, at cryptobyte.String
	var tag asn1.Tag
	if !in.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1(&serial, asn1.INTEGER) || !minimalInteger(serial) ||
		!body.ReadAnyASN1(&at, &tag) || tag != asn1.UTCTime && tag != asn1.GeneralizedTime {
		return e, errEntry
	}
	e.serial = serial
	if body.Empty() {
		return e, nil
	}
	var extensions cryptobyte.String
	if !body.ReadASN1(&extensions, asn1.SEQUENCE) || !body.Empty() || extensions.Empty() {
		return e, errEntry
	}
	for !extensions.Empty() {
		if err := e.readExtension(&extensions); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (e *revokedEntry) readExtension(extensions *cryptobyte.String) error {
	var extension, id, value, reason cryptobyte.String
	critical := false
	if !extensions.ReadASN1(&extension, asn1.SEQUENCE) || !extension.ReadASN1(&id, asn1.OBJECT_IDENTIFIER) ||
		extension.PeekASN1Tag(asn1.BOOLEAN) && !extension.ReadASN1Boolean(&critical) ||
		!extension.ReadASN1(&value, asn1.OCTET_STRING) || !extension.Empty() {
		return errEntry
	}
	switch {
	case string(id) == string(oidCertificateIssuer):
		return errEntryIndirect
	case critical:
		return errEntryCritical
	case string(id) == string(oidReasonCode):
		if !value.ReadASN1(&reason, asn1.ENUM) || !value.Empty() || len(reason) != 1 || reason[0] > reasonLast {
			return errEntry
		}
		e.reason = reason[0]
	}
	return nil
}

// minimalInteger reports whether the content of an INTEGER is in its only DER form.
func minimalInteger(b []byte) bool {
	return len(b) > 0 && (len(b) == 1 || b[0] != 0 && b[0] != 0xff || (b[0] == 0) == (b[1] >= 0x80))
}

// serialIndex finds entries by serial number. It holds their places, ordered by serial
// number: 4 bytes for each entry, which takes 18 bytes or more in the list.
type serialIndex struct {
	entries cryptobyte.String
	places  []uint32
}

// newSerialIndex indexes entries that [crl.checkEntries] has accepted and counted. Entries
// that a list takes back (removeFromCRL) are left out.
func newSerialIndex(entries cryptobyte.String, count int) *serialIndex {
	x := &serialIndex{entries: entries, places: make([]uint32, 0, count)}
	in := entries
	for range count {
		place := uint32(len(entries) - len(in))
		e, _ := readEntry(&in) // it has been read before
		if e.reason != reasonRemoveFromCRL {
			x.places = append(x.places, place)
		}
	}
	slices.SortFunc(x.places, func(a, b uint32) int {
		return cmp.Or(bytes.Compare(x.at(a).serial, x.at(b).serial), cmp.Compare(a, b))
	})
	return x
}

// at returns the entry at a place.
func (x *serialIndex) at(place uint32) revokedEntry {
	in := x.entries[place:]
	e, _ := readEntry(&in) // it has been read before
	return e
}

// find returns the reason why a serial number is revoked.
func (x *serialIndex) find(serial *big.Int) (reason int, revoked bool) {
	var b cryptobyte.Builder
	b.AddASN1BigInt(serial)
	in, content := cryptobyte.String(b.BytesOrPanic()), cryptobyte.String(nil)
	in.ReadASN1(&content, asn1.INTEGER) // as just written
	n, revoked := slices.BinarySearchFunc(x.places, content, func(place uint32, serial cryptobyte.String) int {
		return bytes.Compare(x.at(place).serial, serial)
	})
	if !revoked {
		return 0, false
	}
	return int(x.at(x.places[n]).reason), true
}
