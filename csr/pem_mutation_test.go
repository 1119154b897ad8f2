package csr

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestParseNamesTheLinesFault changes one line of the evidence's base64, or of what ends
// it, and keeps everything around it.
func TestParseNamesTheLinesFault(t *testing.T) {
	b := attestedBundle(t, 96) // two full lines
	head := string(join(block(BlockRequest, b.Request), block(BlockProvider, []byte(b.Provider)))) + "-----BEGIN " + BlockData + "-----\n"
	const end = "-----END " + BlockData + "-----\n"
	full := strings.Repeat("QUJD", 16)
	for name, c := range map[string]struct {
		lines string
		want  Check
	}{
		"full line":                       {full + "\n" + end, ""},
		"full line and a short one":       {full + "\nQQ==\n" + end, ""},
		"one character":                   {full + "\nQ\n" + end, checkBase64},
		"two characters":                  {full + "\nQQ\n" + end, checkBase64},
		"three characters":                {full + "\nQQQ\n" + end, checkBase64},
		"five characters":                 {full + "\nQUJDQ\n" + end, checkBase64},
		"63 columns":                      {full[1:] + "\n" + end, checkBase64},
		"65 columns":                      {full + "Q\n" + end, checkBase64},
		"68 columns":                      {full + "QUJD\n" + end, checkBase64},
		"60 columns, and more after":      {full[4:] + "\n" + full + "\n" + end, checkBase64},
		"a foreign character, more after": {"*" + full[1:] + "\n" + full + "\n" + end, checkBase64},
		"bits over":                       {full + "\nQR==\n" + end, checkBase64},
		"padding within":                  {full + "\nQQ==QUJD\n" + end, checkBase64},
		"four padding characters":         {full + "\n====\n" + end, checkBase64},
		"three padding characters":        {full + "\nQ===\n" + end, checkBase64},
		"CR in front":                     {full + "\n\r\r\r\rQUJD\n" + end, checkBase64},
		"CR within":                       {full + "\nQUJD\r\r\r\rQUJD\n" + end, checkBase64},
		"one CR within":                   {full + "\nQU\rJD\n" + end, checkBase64},
		"one CR in front":                 {full + "\n\rQUJD\n" + end, checkBase64},
		"CR in a full line":               {"\r" + full[:62] + "Q\n" + end, checkBase64},
		"header":                          {"Proc-Type: 4\n\n" + full + "\n" + end, checkBase64},
		"header without a name":           {":QUJ\n" + full + "\n" + end, checkBase64},
		"header after padding":            {"QQ==\n:QUJ\n" + end, checkBase64},
		"END line without a label":        {full + "\n-----END -----\n" + end, checkBlock},
		"END line of a hyphen":            {full + "\n-\n" + end, checkBlock},
		"END line cut short":              {full + "\n" + end[:len(end)-2] + "\n", checkBlock},
		"END line, longer":                {full + "\n" + end[:len(end)-1] + "-\n", checkBlock},
		"END line of another word":        {full + "\n-----AND " + end[len(endMark):], checkBlock},
		"END line of another label":       {full + "\n" + strings.Replace(end, "DATA", "DATE", 1), checkBlock},
		"END line with another end":       {full + "\n" + end[:len(end)-2] + "_\n", checkBlock},
		"BEGIN line in the END's place":   {full + "\n-----BEGIN " + BlockData + "-----\n", checkBlock},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(head + c.lines))
			if c.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			wantRule(t, name, err, c.want)
		})
	}
}

// bundleOf is a bundle of so many bytes in PEM, or nil. Not every size can be had with one
// request and provider, so the request is padded, and the provider's name has any length.
func bundleOf(t *testing.T, size int) *Bundle {
	t.Helper()
	evidence := make([]byte, size)
	algorithm := goodDER(t).algorithm
	for length := range 46 {
		b := &Bundle{Provider: strings.Repeat("a", length+1) + "/v1"}
		for pad := range 300 {
			b.Request = sequence(sequence(make([]byte, pad)), algorithm, element(3, []byte{0, 1}))
			rest := size - encodedSize(BlockRequest, b.Request) - encodedSize(BlockProvider, []byte(b.Provider))
			n := (rest - 200) / 4 * 3 * 64 / 65
			for encodedSize(BlockData, evidence[:n]) < rest {
				n++
			}
			if b.Data = evidence[:n]; encodedSize(BlockData, b.Data) == rest {
				return b
			}
		}
	}
	return nil
}

// encodedSize is the length of a block in PEM.
func encodedSize(label string, body []byte) int {
	text := (len(body) + 2) / 3 * 4
	return len(beginMark) + len(endMark) + 2*(len(label)+len(dashes)+1) + text + (text+lineWidth-1)/lineWidth
}

// TestBundleSizeExactly reads and writes a bundle of exactly the largest size, reads a byte
// more, and writes the smallest that is larger.
func TestBundleSizeExactly(t *testing.T) {
	largest := bundleOf(t, maxBundleSize)
	if largest == nil {
		t.Fatal("no bundle has the largest size")
	}
	text := encodeBundle(t, largest)
	if len(text) != maxBundleSize {
		t.Fatalf("%d bytes", len(text))
	}
	if _, err := Parse(text); err != nil {
		t.Errorf("the largest bundle: %v", err)
	}
	_, err := Parse(append(text, '\n'))
	wantRule(t, "a byte more to read", err, checkBundleSize)
	for over := 1; ; over++ { // not every size is one of a bundle
		if b := bundleOf(t, maxBundleSize+over); b != nil {
			_, err = b.Marshal()
			wantRule(t, "the smallest that is too large to write", err, checkBundleSize)
			t.Logf("%d bytes over", over)
			return
		}
	}
}

// TestParseAtTheEndOfMemory: a line that is shorter than the END line that is wanted is
// not compared with what lies after it.
func TestParseAtTheEndOfMemory(t *testing.T) {
	b := attestedBundle(t, 48)
	whole := encodeBundle(t, b)
	end := bytes.LastIndex(whole, []byte(endMark))
	for n := 1; n < len(whole)-end-1; n++ {
		text := slices.Clip(append(bytes.Clone(whole[:end+n]), '\n'))
		_, err := Parse(slices.Clip(bytes.Clone(text))[:len(text):len(text)])
		wantRule(t, string(whole[end:end+n]), err, checkBlock)
	}
}

// TestPKCS10SizeExactly pads a request with an attribute up to the largest size.
func TestPKCS10SizeExactly(t *testing.T) {
	request := func(size int) []byte {
		r := goodDER(t)
		r.attributes = [][]byte{attributeDER("\x2a\x86\x48\x86\xf7\x0d\x01\x09\x07", element(12, nil))}
		overhead := 0
		for range 3 { // lengths of lengths
			r.attributes = [][]byte{attributeDER("\x2a\x86\x48\x86\xf7\x0d\x01\x09\x07", element(12, bytes.Repeat([]byte("x"), max(size-overhead, 0))))}
			overhead += len(r.bytes()) - size
		}
		return r.bytes()
	}
	if der := request(maxRequestSize); len(der) != maxRequestSize {
		t.Fatalf("%d bytes", len(der))
	} else if _, err := ParsePKCS10(der); err != nil {
		t.Errorf("the largest request: %v", err)
	}
	_, err := ParsePKCS10(request(maxRequestSize + 1))
	wantRule(t, "a byte more", err, checkRequestSize)
}

// TestPKCS10RSASizeExactly: the longest RSA modulus that is read, and one bit more.
func TestPKCS10RSASizeExactly(t *testing.T) {
	for bits, want := range map[int]Check{maxRSABits: "", maxRSABits + 1: checkRequestKey} {
		modulus := bytes.Repeat([]byte{0xff}, (bits+7)/8)
		modulus[0] = 0xff >> ((8 - bits%8) % 8)
		if modulus[0] > 0x7f {
			modulus = append([]byte{0}, modulus...)
		}
		r := goodDER(t)
		r.spki = sequence(spkiRSA, element(3, []byte{0}, sequence(element(2, modulus), element(2, []byte{1, 0, 1}))))
		r.algorithm = sequence(oidDER("\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"), []byte{5, 0})
		checkFault(t, r.bytes(), want)
	}
}

// TestParseRequestSizeExactly pads an object with spaces.
func TestParseRequestSizeExactly(t *testing.T) {
	object := "{}" + strings.Repeat(" ", maxRequestJSONSize-2)
	if _, err := ParseServerObject([]byte(object)); err != nil {
		t.Errorf("the largest object: %v", err)
	}
	if _, err := ParseServerObject([]byte(object + " ")); err == nil {
		t.Error("a byte more was read")
	}
}
