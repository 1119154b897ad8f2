package tpmcert

import "strings"

// placeholders are the values that firmware has in place of a serial number, in lower case and without
// spaces and punctuation. Every machine of the maker has the same.
const placeholders = " tobefilledbyoem tobefilled defaultstring default systemserialnumber chassisserialnumber serialnumber" +
	" baseboardserialnumber notspecified notapplicable notavailable notset na none null nil unknown undefined unspecified empty blank" +
	" invalid oem tbd 0123456789 123456789 1234567890 "

// isPlaceholder reports whether a serial number stands for no number: blanks, bytes that are all zeros or all
// ones, the same in hexadecimal, or a placeholder.
func isPlaceholder(serial string) bool {
	if strings.Count(serial, "\xff") == len(serial) {
		return true
	}
	said := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case r >= ' ' && r < 0x7f || r == '\t' || r == 0: // punctuation and blanks
			return -1
		}
		return r
	}, serial)
	only := func(digit string) bool { return len(said) > 1 && strings.Trim(said, digit) == "" }
	return said == "" || said == "0" || only("0") || only("f") || only("x") || strings.Contains(placeholders, " "+said+" ")
}
