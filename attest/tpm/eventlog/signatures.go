package eventlog

import (
	"crypto/sha256"
	"crypto/x509"
)

// Types of a list's entries, as laid out in memory: UEFI 2.10, 32.4.1.
const (
	listOfX509   = "\xa1\x59\xc0\xa5\xe4\x94\xa7\x4a\x87\xb5\xab\x15\x5c\x2b\xf0\x72"
	listOfSHA256 = "\x26\x16\xc4\xc1\x4c\x50\x92\x40\xac\xa9\x41\xf9\x36\x93\x43\x28"
)

// ownerSize is the size of the GUID that begins each entry.
const ownerSize = 16

// signatures are the contents of a variable's lists.
type signatures struct {
	certificates []*x509.Certificate
	hashes       [][]byte // of SHA-256
	unread       bool     // there are entries of other types, or that crypto/x509 refuses
}

// readSignatures reads the EFI_SIGNATURE_LISTs that fill b: UEFI 2.10, 32.4.1.
func readSignatures(b []byte) (s signatures, ok bool) {
	for r := (reader{rest: b}); len(r.rest) > 0; {
		kind, size, header, each := string(r.take(16)), r.uint32(), r.uint32(), r.uint32()
		if r.short || size < 28 {
			return signatures{}, false
		}
		list := reader{rest: r.take(size - 28)}
		list.take(header)
		if r.short || list.short || each < ownerSize || uint64(len(list.rest))%uint64(each) != 0 {
			return signatures{}, false
		}
		for len(list.rest) > 0 {
			s.add(kind, list.take(each)[ownerSize:])
		}
	}
	return s, true
}

func (s *signatures) add(kind string, data []byte) {
	c, err := x509.ParseCertificate(data)
	switch {
	case kind == listOfSHA256 && len(data) == sha256.Size:
		s.hashes = append(s.hashes, data)
	case kind == listOfX509 && err == nil:
		s.certificates = append(s.certificates, c)
	default:
		s.unread = true
	}
}

// authority is the certificate of an EFI_SIGNATURE_DATA, or nil. Old versions of shim leave
// the owner out.
func authority(b []byte) *x509.Certificate {
	for _, der := range [][]byte{b[min(len(b), ownerSize):], b} {
		if c, err := x509.ParseCertificate(der); err == nil {
			return c
		}
	}
	return nil
}
