package tpmcert

import (
	"bytes"
	"encoding/hex"
	"strings"
)

// manufacturers are the vendors of the TCG TPM Vendor ID Registry for families 1.2 and
// 2.0, version 1.07, and those that emulators state besides. They are in the order of
// the identifier.
var manufacturers = [...]struct {
	id   string // 8 hexadecimal digits
	name string
}{
	{"00001014", "IBM"}, // swtpm and libtpms state the PCI vendor's number
	{"414D4400", "AMD"},
	{"414E5400", "Ant Group"},
	{"41544D4C", "Atmel"},
	{"4252434D", "Broadcom"},
	{"4353434F", "Cisco"},
	{"464C5953", "Flyslice Technologies"},
	{"474F4F47", "Google"},
	{"48495349", "Huawei"},
	{"48504500", "HPE"},
	{"48504900", "HPI"},
	{"49424D00", "IBM"},
	{"49465800", "Infineon"},
	{"494E5443", "Intel"},
	{"4C454E00", "Lenovo"},
	{"4D534654", "Microsoft"},
	{"4E534700", "NSING"},
	{"4E534D20", "National Semiconductor"},
	{"4E544300", "Nuvoton Technology"},
	{"4E545A00", "Nationz"},
	{"51434F4D", "Qualcomm"},
	{"524F4343", "Fuzhou Rockchip"},
	{"5345414C", "Wisekey"},
	{"53454345", "SecEdge"},
	{"534D5343", "SMSC"},
	{"534D534E", "Samsung"},
	{"534E5300", "Sinosun"},
	{"53544D20", "STMicroelectronics"},
	{"54584E00", "Texas Instruments"},
	{"564D5700", "VMware"}, // not in the registry: vCenter's virtual TPM
	{"57454300", "Winbond"},
	{"FFFFF1D0", "FIDO Alliance conformance tests"},
}

// VendorName is the name of the manufacturer as the TCG TPM Vendor ID Registry 1.07
// has it, for example "Infineon" for "id:49465800", or "" where it is not in there.
// The digits may be of either case.
func (d DirectoryName) VendorName() string {
	if _, ok := vendorIDOf(d.Manufacturer); !ok {
		return ""
	}
	digits := strings.ToUpper(d.Manufacturer[len(vendorPrefix):])
	for i := range manufacturers {
		if manufacturers[i].id == digits {
			return manufacturers[i].name
		}
	}
	return ""
}

// vendorID is the identifier of a manufacturer in one form for all spellings: letters in
// upper case, and filled up with NUL bytes, where some are filled up with spaces.
type vendorID [4]byte

const vendorPrefix = "id:"

// vendorIDOf reads "id:" and 8 hexadecimal digits.
func vendorIDOf(manufacturer string) (id vendorID, ok bool) {
	digits, ok := strings.CutPrefix(manufacturer, vendorPrefix)
	if b, err := hex.DecodeString(digits); ok && err == nil && len(b) == len(id) {
		copy(id[:], bytes.TrimRight(b, " \x00"))
		for n, c := range id {
			if 'a' <= c && c <= 'z' {
				id[n] = c - 'a' + 'A'
			}
		}
		return id, true
	}
	return id, false
}

// vendorIDOfText reads up to 4 letters and digits; of anything else it makes zero.
func vendorIDOfText(text string) (id vendorID) {
	alien := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if len(text) <= len(id) && !strings.ContainsFunc(text, alien) {
		copy(id[:], strings.ToUpper(text))
	}
	return id
}

// text is the identifier without what fills it up, or "" where that is no printable
// ASCII.
func (id vendorID) text() string {
	text := strings.TrimRight(string(id[:]), "\x00")
	if strings.ContainsFunc(text, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return ""
	}
	return text
}
