package secrettest

import (
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A reading is the bytes that an output stands for, in one form of writing bytes.
type reading struct {
	form    string
	content []byte
	// spaceless: spaces and quotes were dropped, and must be from what is looked for.
	spaceless bool
}

// readings reads an output in every form that package fmt and the encoders write
// bytes, strings and numbers in.
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
		{form: "one decimal number", content: bigNumbers(output)},
	}
	for offset := range 2 {
		all = append(all, reading{form: "hexadecimal", content: hexDigits(output, offset)})
	}
	for offset := range 4 {
		all = append(all, reading{form: "base64", content: base64Runs(output, offset)})
	}
	return all
}

// Numbers as fmt writes them one by one. What stands behind a letter is the end of a
// word, as in uint8.
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

// bigNumbers is every long decimal number as its big-endian bytes.
func bigNumbers(output []byte) []byte {
	var content []byte
	for _, digits := range bigNumber.FindAllString(string(output), -1) {
		if n, ok := new(big.Int).SetString(digits, 10); ok {
			content = append(content, n.Bytes()...)
		}
	}
	return content
}

// hexDigits is every run of hexadecimal digits, whatever prefixes and separators stand
// among them, read from its first or its second digit.
func hexDigits(output []byte, offset int) []byte {
	var content []byte
	for _, run := range hexRun.FindAll(hexSeparator.ReplaceAll(output, nil), -1) {
		if len(run) < offset {
			continue
		}
		run = run[offset:]
		decoded := make([]byte, len(run)/2)
		_, _ = hex.Decode(decoded, run[:len(run)/2*2]) // its digits were matched
		content = append(append(content, decoded...), "\n"...)
	}
	return content
}

// base64Runs is every run of either alphabet, read from each of four digits, as a
// secret may stand anywhere in what was encoded.
func base64Runs(output []byte, offset int) []byte {
	var content []byte
	for _, run := range base64Run.FindAllString(string(output), -1) {
		run = strings.NewReplacer("-", "+", "_", "/").Replace(run[offset:])
		decoded, _ := base64.RawStdEncoding.DecodeString(run[:len(run)/4*4])
		content = append(append(content, decoded...), "\n"...)
	}
	return content
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

// characters is what %c and %q make of bytes: each a character, with spaces and quotes
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

// gobNumbers undoes gob's form of a number over 127 that stands in an array of bytes.
func gobNumbers(output []byte) []byte {
	var content []byte
	for n, b := range output {
		if b != 0xff || n+1 == len(output) || output[n+1] < 0x80 {
			content = append(content, b)
		}
	}
	return content
}
