package der

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// TrimNVCertificate takes what vendors put around a certificate off it: the
// header of a TCG_PCCLIENT_STORED_CERT with a full certificate (tag 0x1001, type
// 0, 16 bits of size, tag 0x1002; TCG PC Client Specific Implementation
// Specification for Conventional BIOS 1.21, 7.3.2; some leave the inner tag out),
// and padding with 0x00 or 0xff where the index is larger than its content.
func TrimNVCertificate(data []byte) ([]byte, error) {
	if bytes.HasPrefix(data, []byte{0x10, 0x01, 0x00}) {
		if len(data) < 5 {
			return nil, fmt.Errorf("header of %d bytes is cut short", len(data))
		}
		size := int(binary.BigEndian.Uint16(data[3:]))
		if len(data)-5 < size {
			return nil, fmt.Errorf("header states %d bytes, %d follow", size, len(data)-5)
		}
		if err := CheckPadding(data[5+size:]); err != nil {
			return nil, err
		}
		data = bytes.TrimPrefix(data[5:5+size], []byte{0x10, 0x02})
	}
	rest := cryptobyte.String(data)
	var der cryptobyte.String
	if !rest.ReadASN1Element(&der, asn1.SEQUENCE) {
		return nil, fmt.Errorf("%d bytes that do not begin with a DER SEQUENCE", len(data))
	}
	if err := CheckPadding(rest); err != nil {
		return nil, err
	}
	return der, nil
}

// CheckPadding refuses anything but 0x00 alone or 0xff alone.
func CheckPadding(b []byte) error {
	for i, c := range b {
		if c != b[0] || (c != 0x00 && c != 0xff) {
			return fmt.Errorf("byte 0x%02x at %d of the %d bytes after it is not padding", c, i, len(b))
		}
	}
	return nil
}
