package secret_test

import (
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A reading is the bytes that an output represents, in one notation for bytes.
type reading struct {
	form    string
	content []byte
	// spaceless: spaces and quotes were dropped, and must be dropped from the secret too.
	spaceless bool
}

// readings reads an output in every form in which package fmt and the encoders write bytes,
// strings and numbers.
func readings(output []byte) []reading {
	once := unescaped(output)
	all := []reading{
		{form: "itself", content: output},
		{form: "escapes", content: once},
		{form: "escapes of escapes", content: unescaped(once)}, // as where slog's text handler quotes
		{form: "characters", content: characters(once), spaceless: true},
		{form: "gob's numbers", content: gobNumbers(output)},
		{form: "decimal numbers", content: numbers(output, decimalNumber, 10)},
		{form: "octal numbers", content: numbers(output, octalNumber, 8)},
		{form: "binary numbers", content: numbers(output, binaryNumber, 2)},
		{form: "hexadecimal numbers", content: numbers(output, hexNumber, 16)},
		{form: "one decimal number", content: runs(bigNumber, output, 0, bigDecimal)},
	}
	// A secret may be anywhere in the encoded text.
	digits := hexSeparator.ReplaceAllString(string(output), "")
	for offset := range 2 {
		all = append(all, reading{form: "hexadecimal", content: runs(hexRun, []byte(digits), offset, hex.DecodeString)})
	}
	for offset := range 4 {
		all = append(all, reading{form: "base64", content: runs(base64Run, output, offset, base64Digits)})
	}
	return all
}

// Numbers as fmt writes them one by one. Digits after a letter are the end of a word, as in
// uint8.
var (
	decimalNumber = regexp.MustCompile(`(?:^|[^0-9A-Za-z_])([0-9]{1,3})\b`)
	octalNumber   = regexp.MustCompile(`\b0?o?([0-7]{1,3})\b`)
	binaryNumber  = regexp.MustCompile(`\b(?:0b)?([01]{1,8})\b`)
	hexNumber     = regexp.MustCompile(`(?:\b0[xX]|\bU\+00|\b)([0-9A-Fa-f]{1,2})\b`)
	bigNumber     = regexp.MustCompile(`[0-9]{18,}`)
	hexRun        = regexp.MustCompile(`[0-9A-Fa-f]+`)
	hexSeparator  = regexp.MustCompile(`0[xX]|\\x|U\+00|[ ,\[\]{}"':-]+`)
	base64Run     = regexp.MustCompile(`[A-Za-z0-9+/_-]{8,}`)
)

// numbers is every number up to 255 as a byte.
func numbers(output []byte, pattern *regexp.Regexp, base int) []byte {
	var content []byte
	for _, m := range pattern.FindAllSubmatch(output, -1) {
		if n, err := strconv.ParseUint(string(m[1]), base, 8); err == nil {
			content = append(content, byte(n))
		}
	}
	return content
}

// runs is every run of digits, read from one of its first digits, with a newline after each.
// The bytes that a decoder returns along with an error, as for an odd trailing digit, counts.
func runs(pattern *regexp.Regexp, output []byte, offset int, decode func(string) ([]byte, error)) []byte {
	var content []byte
	for _, run := range pattern.FindAllString(string(output), -1) {
		if len(run) >= offset {
			decoded, _ := decode(run[offset:])
			content = append(append(content, decoded...), "\n"...)
		}
	}
	return content
}

// bigDecimal is a decimal number as its big-endian bytes.
func bigDecimal(digits string) ([]byte, error) {
	n, _ := new(big.Int).SetString(digits, 10)
	return n.Bytes(), nil
}

// base64Digits are whole groups of four digits of either alphabet.
func base64Digits(digits string) ([]byte, error) {
	digits = strings.NewReplacer("-", "+", "_", "/").Replace(digits)
	return base64.RawStdEncoding.DecodeString(digits[:len(digits)/4*4])
}

// unescaped undoes Go's and JSON's escapes in strings.
func unescaped(output []byte) []byte {
	var content []byte
	for rest := string(output); rest != ""; {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, '"')
		switch {
		case strings.HasPrefix(rest, `\'`):
			rest = rest[1:]
			continue
		case rest[0] != '\\' || err != nil:
			content, rest = append(content, rest[0]), rest[1:]
			continue
		case multibyte:
			content = utf8.AppendRune(content, r)
		default:
			content = append(content, byte(r))
		}
		rest = tail
	}
	return content
}

// characters is what %c and %q print for bytes: each as a character, with spaces and quotes
// around it.
func characters(output []byte) []byte {
	var content []byte
	for _, r := range string(output) {
		if r != ' ' && r != '\'' && r < 256 {
			content = append(content, byte(r))
		}
	}
	return content
}

// gobNumbers undoes gob's encoding of a number over 127 in an array of bytes.
func gobNumbers(output []byte) []byte {
	var content []byte
	for n, b := range output {
		if b != 0xff || n+1 == len(output) || output[n+1] < 0x80 {
			content = append(content, b)
		}
	}
	return content
}
