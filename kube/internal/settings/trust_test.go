package settings

import (
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/fuzzing"
)

// TestCRLsIn reads every list of a file: one that was skipped would revoke nothing.
func TestCRLsIn(t *testing.T) {
	block := func(kind, text string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(text)}))
	}
	one, two := block("X509 CRL", "1"), block("X509 CRL", "2")
	for name, row := range map[string]struct{ text, want string }{ // "": it is refused
		"in DER":            {"\x300", "\x300"},
		"one":               {one, "1"},
		"two":               {one + two, "1 2"},
		"with text":         {"Certificate Revocation List (CRL):\n" + one + "\nanother\n" + two + "end", "1 2"},
		"with CRLF":         {strings.ReplaceAll(one+two, "\n", "\r\n"), "1 2"},
		"a certificate":     {one + block("CERTIFICATE", "3"), ""},
		"one before it":     {block("CERTIFICATE", "3") + one, ""},
		"a second, cut off": {one + two[:len(two)-8], ""},
		"no base64":         {one + strings.Replace(two, "Mg==", "M!==", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			lists, err := crlsIn([]byte(row.text))
			var got []string
			for _, list := range lists {
				got = append(got, string(list))
			}
			if (err != nil) != (row.want == "") || !slices.Equal(got, strings.Fields(row.want)) {
				t.Errorf("got %q, %v, want %q", got, err, row.want)
			}
		})
	}
}

func FuzzCRLsIn(f *testing.F) {
	fuzzing.Begin(f)
	f.Add([]byte("\x30\x00"))
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("1")}))
	f.Fuzz(func(t *testing.T, text []byte) {
		lists, err := crlsIn(text)
		if block, _ := pem.Decode(text); err == nil && (len(lists) == 0 || block == nil && string(lists[0]) != string(text)) {
			t.Errorf("got %q", lists)
		}
	})
}
