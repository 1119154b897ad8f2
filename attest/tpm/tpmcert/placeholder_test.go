package tpmcert

import (
	"strings"
	"testing"
)

func TestPlaceholders(t *testing.T) {
	for _, serial := range []string{"To be filled by O.E.M.", "To Be Filled By O.E.M", "TO BE FILLED", "Default string", "System Serial Number", "Chassis Serial Number",
		"Not Specified", "Not Applicable", "None", "N/A", "n/a", "Unknown", "OEM", "<none>", "0", "00000000", "0000-0000", "FFFFFFFF", "ffff", "XXXXXXX",
		" ", "        ", "\t", ".", "...", "-", "********", "0123456789", "123456789", "\x00\x00\x00\x00", "\xff\xff\xff\xff", "None\x00", " none "} {
		if !isPlaceholder(serial) {
			t.Errorf("%q counts as a serial number", serial)
		}
	}
	for _, serial := range []string{"S", "S12345", "7", "1", "CZJ12345AB", "0000000A", "00000001", "F00F", "FFFFFFFE", "X1", "XK0", "x", "F", "None1", "OEM-12345", "SN12345", "SN", "Serial 1",
		"1234567891", "01234567890", "tobefilledbyoemdefaultstring", "filled", "STM :1A:4D", "\x00\x01", "\xff\x00\x01", "\x00\xff", "\xfe\xfd", "\xff\xfe", "Größe"} {
		if isPlaceholder(serial) {
			t.Errorf("%q counts as none", serial)
		}
	}
	for word := range strings.FieldsSeq(placeholders) {
		if !isPlaceholder(strings.ToUpper(word)) {
			t.Error(word)
		}
	}
}
