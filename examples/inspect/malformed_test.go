package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
)

// TestTruncated cuts every input at every byte: the program says where it stopped, and
// shows what comes before.
func TestTruncated(t *testing.T) {
	where := regexp.MustCompile(`byte \d+: `)
	atBlockEnd := regexp.MustCompile(`-----END [A-Z ]+-----\n?$`)
	for name, input := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := 1
			if testing.Short() {
				step = 17
			}
			input := bytes.TrimRight(input, "\n")
			if strings.HasSuffix(name, ".der") || strings.HasSuffix(name, ".bin") {
				input = inputs(t)[name]
			}
			shown := 0
			for n := 0; n < len(input); n += step {
				status, out, stderr := inspect(t, input[:n])
				if status == 0 && atBlockEnd.Match(input[:n]) {
					continue // what is there is well formed
				}
				if status != 1 || !strings.Contains(out, "!! ") {
					t.Fatalf("%d of %d bytes: status %d\n%s", n, len(input), status, out)
				}
				if !where.MatchString(stderr) && !strings.Contains(stderr, "refused: ") && !strings.Contains(stderr, "base64: ") {
					t.Fatalf("%d of %d bytes: %s", n, len(input), stderr)
				}
				shown = max(shown, strings.Count(out, "\n"))
			}
			if strings.HasSuffix(name, ".bin") {
				return // a TPM structure has no outline
			}
			whole := strings.Count(string(must(os.ReadFile("testdata/golden/"+name+".txt"))(t)), "\n")
			if shown < whole/2 {
				t.Errorf("never more than %d lines of %d", shown, whole)
			}
		})
	}
}

// TestChanged changes single bytes: nothing panics, and whatever is written is clean.
func TestChanged(t *testing.T) {
	for name, input := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := 0; i < len(input); i += 7 {
				changed := bytes.Clone(input)
				changed[i] ^= 1 << (i % 8)
				inspect(t, changed)
			}
		})
	}
}

// TestStops checks where and why reading stops.
func TestStops(t *testing.T) {
	files := inputs(t)
	edit := func(name, old, new string) string {
		t.Helper()
		if strings.Count(string(files[name]), old) == 0 {
			t.Fatalf("%s has no %q", name, old)
		}
		return strings.Replace(string(files[name]), old, new, 1)
	}
	binding := files["binding.der"]
	for name, test := range map[string]struct{ input, want string }{
		"empty":            {"", "byte 0: nothing there"},
		"prose":            {"Dear sir,", "byte 0: none of the forms"},
		"no form":          {"\x00\x02\x00\x00", "byte 0: none of the forms"},
		"cut hello":        {string(files["hello.der"][:30]), "outline > byte 0, SEQUENCE: byte 30: UTF8String at byte 22 announces 50 bytes, 6 are there"},
		"cut public":       {string(files["public.bin"][:20]), "TPMT_PUBLIC: refused: public-encoding: got point, want two coordinates"},
		"cut name":         {string(files["attest.bin"][:110]), "TPMS_ATTEST: refused: attest-encoding: got certify info, want two names"},
		"after":            {string(binding) + "\x00", "outline: byte 211: a tag without a length"},
		"long length":      {"\x30\x84\xff\xff\xff\xff\x02\x01\x01", "outline: byte 0: length"},
		"indefinite":       {"\x30\x80\x02\x01\x01\x0a", "outline: byte 0: length byte 0x80, which DER does not have"},
		"wrong version":    {strings.Replace(string(binding), "\x02\x01\x01", "\x02\x01\x02", 1), "refused: message-version: got 2"},
		"forged magic":     {"\xfe" + string(files["attest.bin"][1:]), "refused: attest-magic"},
		"carriage returns": {strings.ReplaceAll(string(files["answer.pem"]), "\n", "\r\n"), "refused: bundle-block"},
		"block order":      {string(blocks(csr.BlockData, files["evidence.der"], csr.BlockRequest, files["request.der"])), "refused: bundle-block"},
		"text before":      {"hello\n" + string(files["answer.pem"]), "refused: bundle-block"},
		"header":           {edit("answer.pem", "REQUEST-----\n", "REQUEST-----\nA: b\n"), "a header, which no request has"},
		"bad base64":       {edit("answer.pem", "REQUEST-----\nMI", "REQUEST-----\nM*"), "byte 37: not base64 from here on"},
		"other end":        {edit("answer.pem", "END CERTIFICATE REQUEST", "END CERTIFICATE REQUESTS"), "the block ends without its END line"},
		"begin in block":   {edit("answer.pem", "-----END CERTIFICATE REQUEST-----\n", ""), "the block ends without its END line"},
		"unknown block":    {string(blocks("PRIVATE KEY", []byte("secret"))), "no block that this program knows"},
		"json cut":         {string(files["denied.json"][:300]), "refused: strictjson: syntax at byte 300"},
		"json twice":       {edit("denied.json", `"metadata"`, `"spec": {}, "metadata"`), `refused: strictjson: duplicate-name at byte`},
		"json kind":        {`{"kind":"Secret","data":{"token":"c2VjcmV0"}}`, `refused: `},
		"json of nothing":  {`{"metadata":{}}`, "no spec.request"},
		"json after":       {string(files["denied.json"]) + "{}", "refused: strictjson: trailing-bytes"},
		"json deep":        {`{"spec":` + strings.Repeat("[", 100), "refused: strictjson: depth"},
		"json base64":      {`{"spec":{"request":"*"}}`, "illegal base64"},
		"challenge spaced": {strings.Replace(string(files["challenge.txt"]), "A", "A\n", 1), "base64: a challenge in several lines"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, stderr := inspect(t, []byte(test.input))
			if status != 1 || !strings.Contains(stderr, test.want) {
				t.Errorf("status %d, %s, want %q\n%s", status, stderr, test.want, out)
			}
		})
	}
}

// TestSalvage checks that whole structures in a damaged one are shown as such.
func TestSalvage(t *testing.T) {
	evidence := inputs(t)["evidence.der"]
	for name, input := range map[string][]byte{
		"bytes after": append(bytes.Clone(evidence), 0),
		"cut":         evidence[:len(evidence)-1],
	} {
		t.Run(name, func(t *testing.T) {
			status, out, _ := inspect(t, input)
			for _, line := range []string{"!! ", ": TcgAttestCertify\n", ": Proof\n", ": Certificate\n", `commonName (2.5.4.3): "tpmsim AK CA"`} {
				if status != 1 || !strings.Contains(out, line) {
					t.Errorf("status %d, no line with %q in\n%s", status, line, out)
				}
			}
		})
	}
}

// TestTooMuch checks that a small input does not make an endless output.
func TestTooMuch(t *testing.T) {
	inner := strings.Repeat("\x31\x00", 900<<10)
	n := len(inner)
	name := "\x30\x83" + string([]byte{byte(n >> 16), byte(n >> 8), byte(n)}) + inner
	body := "\x02\x01\x00" + name
	n = len(body)
	info := "\x30\x83" + string([]byte{byte(n >> 16), byte(n >> 8), byte(n)}) + body
	n = len(info)
	request := "\x30\x83" + string([]byte{byte(n >> 16), byte(n >> 8), byte(n)}) + info
	inspect(t, []byte(request))

	list := `{"spec":{"groups":[` + strings.Repeat(`"a",`, 400<<10) + `"a"]}}`
	status, out, stderr := inspect(t, []byte(list))
	if lines := strings.Count(out, "\n"); status != 1 || lines != maxLines || !strings.Contains(stderr, "more than 20000 lines") {
		t.Errorf("status %d, %d lines, %s", status, lines, stderr)
	}
	status, out, stderr = inspect(t, blocksOf(2000))
	if status != 1 || strings.Count(stderr, "\n") > maxFaults+1 || strings.Count(out, "!! ") < 2000 {
		t.Errorf("%d faults on stderr, %d in the tree", strings.Count(stderr, "\n"), strings.Count(out, "!! "))
	}
}

func blocksOf(n int) []byte {
	return bytes.Repeat([]byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"), n)
}

// TestSecrets checks what does not come out.
func TestSecrets(t *testing.T) {
	files := inputs(t)
	challenge := must(message.ParseChallenge(files["challenge.der"]))(t)
	for _, name := range []string{"challenge.der", "challenge.txt", "denied.json", "credential.der"} {
		_, out, _ := inspect(t, files[name])
		for _, secret := range []string{hex.EncodeToString(challenge.Clear), hex.EncodeToString(challenge.Clear[4:16]),
			"c1c1c1c1", "c2c2c2c2", strings.TrimSpace(string(files["challenge.txt"]))} {
			if strings.Contains(out, secret) {
				t.Errorf("%s: %s is shown", name, secret)
			}
		}
	}
	for name, change := range map[string][2]string{"challenge.der": {"\x02\x01\x01", "\x02\x01\x02"}, "credential.der": {"\x02\x01\x01", "\x02\x01\x02"}} {
		status, out, _ := inspect(t, bytes.Replace(files[name], []byte(change[0]), []byte(change[1]), 1))
		if status != 1 || !strings.Contains(out, "outline") || strings.Contains(out, hex.EncodeToString(challenge.Clear[:8])) || strings.Contains(out, "c1c1") {
			t.Errorf("%s, refused: status %d\n%s", name, status, out)
		}
	}
	password := "\x30\x1c\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x07\x31\x0f\x0c\x0dopen sesame!!"
	if _, out, _ := inspect(t, []byte(password)); !strings.Contains(out, "15 bytes, not shown") || strings.Contains(out, "sesame") {
		t.Errorf("a challengePassword:\n%s", out)
	}
	secret := []byte("0123456789abcdef-private")
	for _, input := range [][]byte{
		blocks("EC PRIVATE KEY", secret, csr.BlockRequest, files["request.der"]),
		must(json.Marshal(map[string]any{"kind": "Secret", "data": map[string][]byte{"token": secret}, "stringData": string(secret)}))(t),
	} {
		_, out, _ := inspect(t, input)
		for _, form := range []string{string(secret), hex.EncodeToString(secret[:8]), base64.StdEncoding.EncodeToString(secret)[:12]} {
			if strings.Contains(out, form) {
				t.Errorf("%q is shown", form)
			}
		}
	}
}
