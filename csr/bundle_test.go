package csr

import (
	"bytes"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBundleRoundTrip(t *testing.T) {
	plain := &Bundle{Request: clientRequest(t, keyRSA2())}
	bundles := []*Bundle{plain, {Request: plain.Request, Provider: "insecure/v1", Data: []byte{0}}}
	for n := range 200 {
		if n > 0 {
			bundles = append(bundles, attestedBundle(t, n))
		}
	}
	for _, b := range bundles {
		text := encodeBundle(t, b)
		back, err := Parse(text)
		if err != nil {
			t.Fatalf("Parse: %v\n%s", err, text)
		}
		if diff := cmp.Diff(b, back); diff != "" {
			t.Error(diff)
		}
		want := block(BlockRequest, b.Request)
		if b.Provider != "" {
			want = join(want, block(BlockProvider, []byte(b.Provider)), block(BlockData, b.Data))
		}
		if !bytes.Equal(text, want) {
			t.Errorf("Encode writes\n%s\nencoding/pem\n%s", text, want)
		}
	}
}

func TestParseKeepsNothingOfItsInput(t *testing.T) {
	text := encodeBundle(t, attestedBundle(t, 100))
	b, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	want := &Bundle{Request: bytes.Clone(b.Request), Provider: b.Provider, Data: bytes.Clone(b.Data)}
	clear(text)
	if diff := cmp.Diff(want, b); diff != "" {
		t.Errorf("the bundle changes with its input: %s", diff)
	}
	// The parts share a buffer: to append to one must not write into the next.
	_ = append(b.Request, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	if diff := cmp.Diff(want, b); diff != "" {
		t.Errorf("the parts overlap: %s", diff)
	}
}

// TestParseRefuses has the smallest changes of a good bundle.
func TestParseRefuses(t *testing.T) {
	b := attestedBundle(t, 100)
	request, provider, data := block(BlockRequest, b.Request), block(BlockProvider, []byte(b.Provider)), block(BlockData, b.Data)
	good := join(request, provider, data)
	edit := func(old, changed string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("%q is not in\n%s", old, good)
		}
		return bytes.Replace(good, []byte(old), []byte(changed), 1)
	}
	headed := pem.EncodeToMemory(&pem.Block{Type: BlockData, Headers: map[string]string{"Version": "1"}, Bytes: b.Data})
	const endRequest, beginData = "-----END " + BlockRequest + "-----\n", "-----BEGIN " + BlockData + "-----\n"
	for name, test := range map[string]struct {
		text []byte
		want Check
	}{
		"nothing":                      {nil, checkBundleSize},
		"a newline alone":              {[]byte("\n"), checkBlock},
		"request twice":                {join(request, request, provider, data), checkBlock},
		"request twice at the end":     {join(good, request), checkBlock},
		"provider twice":               {join(request, provider, provider, data), checkBlock},
		"data twice":                   {join(good, data), checkBlock},
		"data before provider":         {join(request, data, provider), checkBlock},
		"provider first":               {join(provider, request, data), checkBlock},
		"data first":                   {join(data, request, provider), checkBlock},
		"evidence alone":               {join(provider, data), checkBlock},
		"no data":                      {join(request, provider), checkBlock},
		"no provider":                  {join(request, data), checkBlock},
		"unknown block at the end":     {join(good, block("CERTIFICATE", b.Data)), checkBlock},
		"unknown block first":          {join(block("PRIVATE KEY", b.Data), good), checkBlock},
		"unknown block between":        {join(request, block("ATTESTATION DATA", b.Data), provider, data), checkBlock},
		"NEW CERTIFICATE REQUEST":      {bytes.ReplaceAll(good, []byte(BlockRequest), []byte("NEW "+BlockRequest)), checkBlock},
		"lower-case label":             {bytes.ReplaceAll(good, []byte(BlockRequest), []byte("certificate request")), checkBlock},
		"lower-case letter in a label": {bytes.ReplaceAll(good, []byte(BlockData), []byte("KUBELET AUTHENTICATOR ATTESTATION DATa")), checkBlock},
		"label with two spaces":        {edit("BEGIN "+BlockData, "BEGIN  "+BlockData), checkBlock},
		"empty label":                  {edit("BEGIN "+BlockData, "BEGIN "), checkBlock},
		"label that goes on":           {edit("BEGIN "+BlockData, "BEGIN "+BlockData+" "), checkBlock},
		"lower-case begin":             {edit("-----BEGIN "+BlockData, "-----begin "+BlockData), checkBlock},
		"begin with four dashes":       {edit("-----BEGIN "+BlockData, "----BEGIN "+BlockData), checkBlock},
		"begin with four dashes after": {edit(beginData, strings.TrimSuffix(beginData, "-\n")+"\n"), checkBlock},
		"begin with six dashes after":  {edit(beginData, strings.TrimSuffix(beginData, "\n")+"-\n"), checkBlock},
		"space before begin":           {edit(beginData, " "+beginData), checkBlock},
		"space after begin":            {edit(beginData, strings.TrimSuffix(beginData, "\n")+" \n"), checkBlock},
		"end of another label":         {edit("END "+BlockData, "END "+BlockProvider), checkBlock},
		"lower-case end":               {edit("END "+BlockData, "END kubelet authenticator attestation data"), checkBlock},
		"end with six dashes":          {edit(endRequest, "-"+endRequest), checkBlock},
		"space after end":              {edit(endRequest, strings.TrimSuffix(endRequest, "\n")+" \n"), checkBlock},
		"no end line":                  {edit(endRequest, ""), checkBlock},
		"no last end line":             {bytes.TrimSuffix(good, []byte("-----END "+BlockData+"-----\n")), checkBlock},
		"begin line alone":             {[]byte("-----BEGIN " + BlockRequest + "-----\n"), checkBlock},
		"two blocks on one line":       {edit(endRequest, strings.TrimSuffix(endRequest, "\n")), checkBlock},
		"text before":                  {join([]byte("kubelet\n"), good), checkBlock},
		"byte order mark":              {join([]byte("\xef\xbb\xbf"), good), checkBlock},
		"NUL before":                   {join([]byte{0}, good), checkBlock},
		"space before":                 {join([]byte(" "), good), checkBlock},
		"text between":                 {edit(endRequest, endRequest+"kubelet\n"), checkBlock},
		"text after":                   {join(good, []byte("kubelet\n")), checkBlock},
		"text after without LF":        {join(good, []byte("kubelet")), checkBlock},
		"NUL after":                    {join(good, []byte{0}), checkBlock},
		"space after":                  {join(good, []byte(" ")), checkBlock},
		"no PEM":                       {b.Request, checkBlock},
		"headers":                      {join(request, provider, headed), checkBase64},
		"header without blank line":    {edit(beginData, beginData+"Version: 1\n"), checkBase64},
		"header inside":                {edit("\n-----END "+BlockData, "\nVersion: 1\n-----END "+BlockData), checkBase64},
		"CR LF":                        {bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), checkBlock},
		"CR":                           {bytes.ReplaceAll(good, []byte("\n"), []byte("\r")), checkBlock},
		"CR LF after an end line":      {edit(endRequest, strings.TrimSuffix(endRequest, "\n")+"\r\n"), checkBlock},
		"CR LF after the last line":    {join(bytes.TrimSuffix(good, []byte("\n")), []byte("\r\n")), checkBlock},
		"CR LF between blocks":         {join(request, []byte("\r\n"), provider, data), checkBlock},
		"LF CR":                        {join(good, []byte("\r")), checkBlock},
		"no last LF":                   {bytes.TrimSuffix(good, []byte("\n")), checkBlock},
		"cut in a line":                {good[:len(good)-80], checkBase64},
		"blank line first":             {join([]byte("\n"), good), checkBlock},
		"blank line last":              {join(good, []byte("\n")), checkBlock},
		"blank line between":           {join(request, []byte("\n"), provider, data), checkBlock},
		"blank line after begin":       {edit(beginData, beginData+"\n"), checkBase64},
		"blank line before end":        {edit("-----END "+BlockData, "\n-----END "+BlockData), checkBase64},
		"empty block":                  {join(request, provider, block(BlockData, nil)), checkBlock},
		"empty request":                {block(BlockRequest, nil), checkBlock},
		"empty provider":               {join(request, block(BlockProvider, nil), data), checkBlock},
		"DER after the request":        {block(BlockRequest, append(bytes.Clone(b.Request), 0)), checkRequestDER},
		"request in base64 twice":      {block(BlockRequest, request), checkRequestDER},
		"request of one byte":          {block(BlockRequest, b.Request[:1]), checkRequestDER},
		"request with a huge length":   {block(BlockRequest, []byte("\x30\x84\xff\xff\xff\xff")), checkRequestDER},
		"a certificate's shape":        {block(BlockRequest, []byte("\x30\x06\x30\x00\x30\x00\x30\x00")), checkRequestDER},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.text)
			if got != nil {
				t.Error("Parse returns a bundle")
			}
			wantRule(t, name, err, test.want)
		})
	}
}

// TestParseRefusesOtherBase64 changes single lines of base64.
func TestParseRefusesOtherBase64(t *testing.T) {
	request := block(BlockRequest, clientRequest(t, keyP256()))
	provider := block(BlockProvider, []byte("tpm/v1"))
	a64 := strings.Repeat("A", 64)
	for name, test := range map[string]struct {
		lines string
		want  Check
	}{
		"63 columns":                       {strings.Repeat("A", 63) + "\n" + a64 + "\nAAAA", checkBase64},
		"60 columns":                       {strings.Repeat("A", 60) + "\n" + a64 + "\nAAAA", checkBase64},
		"76 columns":                       {strings.Repeat("A", 76) + "\n" + strings.Repeat("A", 76), checkBase64},
		"65 columns":                       {strings.Repeat("A", 65), checkBase64},
		"68 columns at the end":            {strings.Repeat("A", 68), checkBase64},
		"128 columns":                      {a64 + a64, checkBase64},
		"one long line":                    {strings.Repeat("A", 100_000), checkBase64},
		"a short line before the last":     {a64 + "\nAAAA\nAAAA", checkBase64},
		"one column a line":                {"A\nA\nA\nA", checkBase64},
		"length not a multiple of 4":       {a64 + "\nAAA", checkBase64},
		"no padding, one byte":             {"AA", checkBase64},
		"no padding, two bytes":            {"AAA", checkBase64},
		"too much padding":                 {"A===", checkBase64},
		"padding alone":                    {"====", checkBase64},
		"padding after a full line":        {a64 + "\n====", checkBase64},
		"padding of two lines":             {"AA=\n=", checkBase64},
		"padding in the middle":            {"AA==AAAA", checkBase64},
		"padding at the end of a line":     {a64[:62] + "==\nAAAA", checkBase64},
		"one pad at the end of a line":     {a64[:63] + "=\nAAAA", checkBase64},
		"unused bits set, one byte":        {"AB==", checkBase64},
		"unused bits set, two bytes":       {"AAB=", checkBase64},
		"unused bits set, 62 and padding":  {a64[:61] + "B==", checkBase64},
		"URL alphabet -":                   {"AA-A", checkBase64},
		"URL alphabet _":                   {"AA_A", checkBase64},
		"space inside":                     {"AA A", checkBase64},
		"space after":                      {"AAAA ", checkBase64},
		"spaces after":                     {"AAAA    ", checkBase64},
		"tab before":                       {"\tAAA", checkBase64},
		"NUL":                              {"AAA\x00", checkBase64},
		"not ASCII":                        {"AA\u00c3", checkBase64},
		"CR inside":                        {"AA\rA", checkBase64},
		"CR beyond the columns":            {a64[:62] + "\r\rAA", checkBase64},
		"CR at the end of a line":          {a64 + "\r\nAAAA", checkBase64},
		"vertical tab":                     {"AAAA\v\v\v\v", checkBase64},
		"a colon":                          {"A: A", checkBase64},
		"encrypted block":                  {"Proc-Type: 4,ENCRYPTED\n\nAAAA", checkBase64},
		"a line of dashes":                 {"AAAA\n-----", checkBlock},
		"another block inside":             {"AAAA\n-----BEGIN " + BlockRequest + "-----\nAAAA", checkBlock},
		"good base64, which is the remedy": {a64 + "\nAAA=", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := join(request, provider, []byte("-----BEGIN "+BlockData+"-----\n"+test.lines+"\n-----END "+BlockData+"-----\n"))
			_, err := Parse(text)
			if test.want == "" {
				if err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			wantRule(t, name, err, test.want)
		})
	}
}

func TestBundleSize(t *testing.T) {
	b := attestedBundle(t, 1)
	// The largest evidence that fits, by search: the text grows by lines.
	low, high := 1, maxBundleSize
	for low < high {
		mid := (low + high + 1) / 2
		b.Data = make([]byte, mid)
		if _, err := b.Marshal(); err == nil {
			low = mid
		} else {
			wantRule(t, "Encode", err, checkBundleSize)
			high = mid - 1
		}
	}
	b.Data = make([]byte, low)
	text := encodeBundle(t, b)
	if len(text) > maxBundleSize || len(text) < maxBundleSize-8 {
		t.Errorf("the largest bundle has %d bytes", len(text))
	}
	if _, err := Parse(text); err != nil {
		t.Errorf("the largest bundle: %v", err)
	}
	text = join(block(BlockRequest, b.Request), block(BlockProvider, []byte(b.Provider)), block(BlockData, make([]byte, low+3)))
	for _, parse := range []func([]byte) error{
		func(p []byte) error { _, err := Parse(p); return err },
		func(p []byte) error { _, err := ParseProposal(p); return err },
	} {
		wantRule(t, "one line too long", parse(text), checkBundleSize)
		wantRule(t, "a byte too long", parse(make([]byte, maxBundleSize+1)), checkBundleSize)
		wantRule(t, "nothing", parse(nil), checkBundleSize)
	}
}

func TestEncodeRefusesWhatParseDoes(t *testing.T) {
	good := attestedBundle(t, 10)
	for name, test := range map[string]struct {
		bundle Bundle
		want   Check
	}{
		"zero value":         {Bundle{}, checkRequestDER},
		"no request":         {Bundle{Provider: "tpm/v1", Data: []byte{1}}, checkRequestDER},
		"trailing bytes":     {Bundle{Request: append(bytes.Clone(good.Request), 0)}, checkRequestDER},
		"data alone":         {Bundle{Request: good.Request, Data: []byte{1}}, checkProvider},
		"empty data alone":   {Bundle{Request: good.Request, Data: []byte{}}, checkProvider},
		"provider alone":     {Bundle{Request: good.Request, Provider: "tpm/v1"}, checkBlock},
		"malformed provider": {Bundle{Request: good.Request, Provider: "tpm", Data: []byte{1}}, checkProvider},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.bundle.Marshal()
			wantRule(t, name, err, test.want)
		})
	}
}

func TestParseAllocatesLittle(t *testing.T) {
	text := encodeBundle(t, attestedBundle(t, 3000))
	// The reader's buffer and the bundle.
	if n := testing.AllocsPerRun(100, func() { _, _ = Parse(text) }); n > 2 {
		t.Errorf("Parse allocates %v times", n)
	}
}

func TestViolationReadsWell(t *testing.T) {
	_, err := Parse(block("PRIVATE KEY", []byte("secret")))
	want := `bundle-block: got "-----BEGIN PRIVATE KEY-----", want -----BEGIN CERTIFICATE REQUEST-----`
	if err == nil || err.Error() != want {
		t.Errorf("error reads %v", err)
	}
	_, err = Parse([]byte(strings.Repeat("\x1b", 100_000) + "\n"))
	if err == nil || len(err.Error()) > 600 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("error is long or has control characters: %.700v", err)
	}
}

func FuzzParse(f *testing.F) {
	good := encodeBundle(f, attestedBundle(f, 100))
	f.Add(good)
	f.Add(encodeBundle(f, &Bundle{Request: servingRequest(f, keyP384())}))
	f.Add(bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")))
	f.Add(bytes.Replace(good, []byte("\n"), []byte("\nVersion: 1\n\n"), 1))
	f.Add(append(bytes.Clone(good), "\n"...))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMAkwADAAAwEA\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMAgwADAAAwIAAA==\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := Parse(text)
		if err != nil {
			var v *Error
			if !errors.As(err, &v) || b != nil {
				t.Fatalf("bundle %v, error %v", b, err)
			}
			return
		}
		back, err := b.Marshal()
		if err != nil || !bytes.Equal(back, text) {
			t.Fatalf("%q encodes as %q, %v", text, back, err)
		}
		sameAsPEM(t, text, b)
	})
}

// sameAsPEM fails the test unless encoding/pem reads the same from text.
func sameAsPEM(t *testing.T, text []byte, b *Bundle) {
	t.Helper()
	want := []*pem.Block{{Type: BlockRequest, Bytes: b.Request}}
	if b.Provider != "" {
		want = append(want, &pem.Block{Type: BlockProvider, Bytes: []byte(b.Provider)}, &pem.Block{Type: BlockData, Bytes: b.Data})
	}
	for _, w := range want {
		var got *pem.Block
		got, text = pem.Decode(text)
		if got == nil || got.Type != w.Type || len(got.Headers) != 0 || !bytes.Equal(got.Bytes, w.Bytes) {
			t.Fatalf("encoding/pem reads %+v, want %+v", got, w)
		}
	}
	if len(text) > 0 {
		t.Fatalf("encoding/pem leaves %q", text)
	}
}

func TestEncodeOfNoBundle(t *testing.T) {
	_, err := (*Bundle)(nil).Marshal()
	wantRule(t, "nil", err, checkBlock)
	_, err = new(Bundle).Marshal()
	wantRule(t, "zero", err, checkRequestDER)
}
