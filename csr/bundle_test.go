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
		if len(text) != cap(text) {
			t.Errorf("Encode thought %d bytes, wrote %d", cap(text), len(text))
		}
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
		want Rule
	}{
		"nothing":                       {nil, RuleBundleSize},
		"a newline alone":               {[]byte("\n"), RuleLineBlank},
		"request twice":                 {join(request, request, provider, data), RuleBlockDuplicate},
		"request twice at the end":      {join(good, request), RuleBlockDuplicate},
		"provider twice":                {join(request, provider, provider, data), RuleBlockDuplicate},
		"data twice":                    {join(good, data), RuleBlockDuplicate},
		"data before provider":          {join(request, data, provider), RuleBlockOrder},
		"provider first":                {join(provider, request, data), RuleBlockOrder},
		"data first":                    {join(data, request, provider), RuleBlockOrder},
		"evidence alone":                {join(provider, data), RuleBlockOrder},
		"no data":                       {join(request, provider), RuleBlockMissing},
		"no provider":                   {join(request, data), RuleBlockMissing},
		"unknown block at the end":      {join(good, block("CERTIFICATE", b.Data)), RuleBlockUnknown},
		"unknown block first":           {join(block("PRIVATE KEY", b.Data), good), RuleBlockUnknown},
		"unknown block between":         {join(request, block("ATTESTATION DATA", b.Data), provider, data), RuleBlockUnknown},
		"NEW CERTIFICATE REQUEST":       {bytes.ReplaceAll(good, []byte(BlockRequest), []byte("NEW "+BlockRequest)), RuleBlockUnknown},
		"lower-case label":              {bytes.ReplaceAll(good, []byte(BlockRequest), []byte("certificate request")), RuleBlockUnknown},
		"lower-case letter in a label":  {bytes.ReplaceAll(good, []byte(BlockData), []byte("KUBELET AUTHENTICATOR ATTESTATION DATa")), RuleBlockUnknown},
		"label with two spaces":         {edit("BEGIN "+BlockData, "BEGIN  "+BlockData), RuleBlockUnknown},
		"empty label":                   {edit("BEGIN "+BlockData, "BEGIN "), RuleBlockUnknown},
		"label that goes on":            {edit("BEGIN "+BlockData, "BEGIN "+BlockData+" "), RuleBlockUnknown},
		"lower-case begin":              {edit("-----BEGIN "+BlockData, "-----begin "+BlockData), RuleBlockText},
		"begin with four dashes":        {edit("-----BEGIN "+BlockData, "----BEGIN "+BlockData), RuleBlockText},
		"begin with four dashes behind": {edit(beginData, strings.TrimSuffix(beginData, "-\n")+"\n"), RuleBlockText},
		"begin with six dashes behind":  {edit(beginData, strings.TrimSuffix(beginData, "\n")+"-\n"), RuleBlockUnknown},
		"space before begin":            {edit(beginData, " "+beginData), RuleBlockText},
		"space behind begin":            {edit(beginData, strings.TrimSuffix(beginData, "\n")+" \n"), RuleBlockText},
		"end of another label":          {edit("END "+BlockData, "END "+BlockProvider), RuleBlockEnd},
		"lower-case end":                {edit("END "+BlockData, "END kubelet authenticator attestation data"), RuleBlockEnd},
		"end with six dashes":           {edit(endRequest, "-"+endRequest), RuleBlockEnd},
		"space behind end":              {edit(endRequest, strings.TrimSuffix(endRequest, "\n")+" \n"), RuleBlockEnd},
		"no end line":                   {edit(endRequest, ""), RuleBlockEnd},
		"no last end line":              {bytes.TrimSuffix(good, []byte("-----END "+BlockData+"-----\n")), RuleBlockEnd},
		"begin line alone":              {[]byte("-----BEGIN " + BlockRequest + "-----\n"), RuleBlockEnd},
		"two blocks on one line":        {edit(endRequest, strings.TrimSuffix(endRequest, "\n")), RuleBlockEnd},
		"text before":                   {join([]byte("kubelet\n"), good), RuleBlockText},
		"byte order mark":               {join([]byte("\xef\xbb\xbf"), good), RuleBlockText},
		"NUL before":                    {join([]byte{0}, good), RuleBlockText},
		"space before":                  {join([]byte(" "), good), RuleBlockText},
		"text between":                  {edit(endRequest, endRequest+"kubelet\n"), RuleBlockText},
		"text behind":                   {join(good, []byte("kubelet\n")), RuleBlockText},
		"text behind without LF":        {join(good, []byte("kubelet")), RuleBlockText},
		"NUL behind":                    {join(good, []byte{0}), RuleBlockText},
		"space behind":                  {join(good, []byte(" ")), RuleBlockText},
		"no PEM":                        {b.Request, RuleBlockText},
		"headers":                       {join(request, provider, headed), RuleBlockHeader},
		"header without blank line":     {edit(beginData, beginData+"Version: 1\n"), RuleBlockHeader},
		"header inside":                 {edit("\n-----END "+BlockData, "\nVersion: 1\n-----END "+BlockData), RuleBlockHeader},
		"CR LF":                         {bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), RuleLineEnd},
		"CR":                            {bytes.ReplaceAll(good, []byte("\n"), []byte("\r")), RuleLineEnd},
		"CR LF behind an end line":      {edit(endRequest, strings.TrimSuffix(endRequest, "\n")+"\r\n"), RuleLineEnd},
		"CR LF behind the last line":    {join(bytes.TrimSuffix(good, []byte("\n")), []byte("\r\n")), RuleLineEnd},
		"CR LF between blocks":          {join(request, []byte("\r\n"), provider, data), RuleLineEnd},
		"LF CR":                         {join(good, []byte("\r")), RuleBlockText},
		"no last LF":                    {bytes.TrimSuffix(good, []byte("\n")), RuleLineEnd},
		"cut in a line":                 {good[:len(good)-80], RuleLineEnd},
		"blank line first":              {join([]byte("\n"), good), RuleLineBlank},
		"blank line last":               {join(good, []byte("\n")), RuleLineBlank},
		"blank line between":            {join(request, []byte("\n"), provider, data), RuleLineBlank},
		"blank line behind begin":       {edit(beginData, beginData+"\n"), RuleLineBlank},
		"blank line before end":         {edit("-----END "+BlockData, "\n-----END "+BlockData), RuleLineBlank},
		"empty block":                   {join(request, provider, block(BlockData, nil)), RuleBlockEmpty},
		"empty request":                 {block(BlockRequest, nil), RuleBlockEmpty},
		"empty provider":                {join(request, block(BlockProvider, nil), data), RuleBlockEmpty},
		"DER behind the request":        {block(BlockRequest, append(bytes.Clone(b.Request), 0)), RuleRequestDER},
		"request in base64 twice":       {block(BlockRequest, request), RuleRequestDER},
		"request of one byte":           {block(BlockRequest, b.Request[:1]), RuleRequestDER},
		"request with a huge length":    {block(BlockRequest, []byte("\x30\x84\xff\xff\xff\xff")), RuleRequestDER},
		"a certificate's shape":         {block(BlockRequest, []byte("\x30\x06\x30\x00\x30\x00\x30\x00")), RuleRequestDER},
	} {
		got, err := Parse(test.text)
		if got != nil {
			t.Errorf("%s: Parse returns a bundle", name)
		}
		wantRule(t, name, err, test.want)
	}
}

// TestParseRefusesOtherBase64 changes single lines of base64.
func TestParseRefusesOtherBase64(t *testing.T) {
	request := block(BlockRequest, clientRequest(t, keyP256()))
	provider := block(BlockProvider, []byte("tpm/v1"))
	a64 := strings.Repeat("A", 64)
	for name, test := range map[string]struct {
		lines string
		want  Rule
	}{
		"63 columns":                       {strings.Repeat("A", 63) + "\n" + a64 + "\nAAAA", RuleLineWidth},
		"60 columns":                       {strings.Repeat("A", 60) + "\n" + a64 + "\nAAAA", RuleLineWidth},
		"76 columns":                       {strings.Repeat("A", 76) + "\n" + strings.Repeat("A", 76), RuleLineWidth},
		"65 columns":                       {strings.Repeat("A", 65), RuleLineWidth},
		"68 columns at the end":            {strings.Repeat("A", 68), RuleLineWidth},
		"128 columns":                      {a64 + a64, RuleLineWidth},
		"one long line":                    {strings.Repeat("A", 100_000), RuleLineWidth},
		"a short line before the last":     {a64 + "\nAAAA\nAAAA", RuleLineWidth},
		"one column a line":                {"A\nA\nA\nA", RuleLineWidth},
		"length not a multiple of 4":       {a64 + "\nAAA", RuleBase64},
		"no padding, one byte":             {"AA", RuleBase64},
		"no padding, two bytes":            {"AAA", RuleBase64},
		"too much padding":                 {"A===", RuleBase64},
		"padding alone":                    {"====", RuleBase64},
		"padding behind a full line":       {a64 + "\n====", RuleBase64},
		"padding of two lines":             {"AA=\n=", RuleLineWidth},
		"padding in the middle":            {"AA==AAAA", RuleBase64},
		"padding at the end of a line":     {a64[:62] + "==\nAAAA", RuleBase64},
		"one pad at the end of a line":     {a64[:63] + "=\nAAAA", RuleBase64},
		"unused bits set, one byte":        {"AB==", RuleBase64},
		"unused bits set, two bytes":       {"AAB=", RuleBase64},
		"unused bits set, 62 and padding":  {a64[:61] + "B==", RuleBase64},
		"URL alphabet -":                   {"AA-A", RuleBase64},
		"URL alphabet _":                   {"AA_A", RuleBase64},
		"space inside":                     {"AA A", RuleBase64},
		"space behind":                     {"AAAA ", RuleBase64},
		"spaces behind":                    {"AAAA    ", RuleBase64},
		"tab before":                       {"\tAAA", RuleBase64},
		"NUL":                              {"AAA\x00", RuleBase64},
		"not ASCII":                        {"AA\u00c3", RuleBase64},
		"CR inside":                        {"AA\rA", RuleLineEnd},
		"CR beyond the columns":            {a64[:62] + "\r\rAA", RuleLineEnd},
		"CR at the end of a line":          {a64 + "\r\nAAAA", RuleLineEnd},
		"vertical tab":                     {"AAAA\v\v\v\v", RuleBase64},
		"a colon":                          {"A: A", RuleBlockHeader},
		"encrypted block":                  {"Proc-Type: 4,ENCRYPTED\n\nAAAA", RuleBlockHeader},
		"a line of dashes":                 {"AAAA\n-----", RuleBlockEnd},
		"another block inside":             {"AAAA\n-----BEGIN " + BlockRequest + "-----\nAAAA", RuleBlockEnd},
		"good base64, which is the remedy": {a64 + "\nAAA=", ""},
	} {
		text := join(request, provider, []byte("-----BEGIN "+BlockData+"-----\n"+test.lines+"\n-----END "+BlockData+"-----\n"))
		_, err := Parse(text)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantRule(t, name, err, test.want)
	}
}

func TestBundleSize(t *testing.T) {
	b := attestedBundle(t, 1)
	// The largest evidence that fits, by search: the text grows by lines.
	low, high := 1, MaxBundleSize
	for low < high {
		mid := (low + high + 1) / 2
		b.Data = make([]byte, mid)
		if _, err := b.Encode(); err == nil {
			low = mid
		} else {
			wantRule(t, "Encode", err, RuleBundleSize)
			high = mid - 1
		}
	}
	b.Data = make([]byte, low)
	text := encodeBundle(t, b)
	if len(text) > MaxBundleSize || len(text) < MaxBundleSize-8 {
		t.Errorf("the largest bundle has %d bytes", len(text))
	}
	if _, err := Parse(text); err != nil {
		t.Errorf("the largest bundle: %v", err)
	}
	text = join(block(BlockRequest, b.Request), block(BlockProvider, []byte(b.Provider)), block(BlockData, make([]byte, low+3)))
	for _, parse := range []func([]byte) error{
		func(p []byte) error { _, err := Parse(p); return err },
		func(p []byte) error { _, err := ParseProposal(p); return err },
		func(p []byte) error { _, err := ParseGKE(p); return err },
	} {
		wantRule(t, "one line too long", parse(text), RuleBundleSize)
		wantRule(t, "a byte too long", parse(make([]byte, MaxBundleSize+1)), RuleBundleSize)
		wantRule(t, "nothing", parse(nil), RuleBundleSize)
	}
}

func TestEncodeRefusesWhatParseDoes(t *testing.T) {
	good := attestedBundle(t, 10)
	for name, test := range map[string]struct {
		bundle Bundle
		want   Rule
	}{
		"zero value":         {Bundle{}, RuleRequestDER},
		"no request":         {Bundle{Provider: "tpm/v1", Data: []byte{1}}, RuleRequestDER},
		"trailing bytes":     {Bundle{Request: append(bytes.Clone(good.Request), 0)}, RuleRequestDER},
		"data alone":         {Bundle{Request: good.Request, Data: []byte{1}}, RuleProvider},
		"empty data alone":   {Bundle{Request: good.Request, Data: []byte{}}, RuleProvider},
		"provider alone":     {Bundle{Request: good.Request, Provider: "tpm/v1"}, RuleBlockEmpty},
		"malformed provider": {Bundle{Request: good.Request, Provider: "tpm", Data: []byte{1}}, RuleProvider},
	} {
		_, err := test.bundle.Encode()
		wantRule(t, name, err, test.want)
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
	want := `bundle-block-unknown: got "PRIVATE KEY", want CERTIFICATE REQUEST, KUBELET AUTHENTICATOR ATTESTATION PROVIDER, KUBELET AUTHENTICATOR ATTESTATION DATA`
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
			var v *Violation
			if !errors.As(err, &v) || b != nil {
				t.Fatalf("bundle %v, error %v", b, err)
			}
			return
		}
		back, err := b.Encode()
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
	_, err := (*Bundle)(nil).Encode()
	wantRule(t, "nil", err, RuleBlockMissing)
	_, err = new(Bundle).Encode()
	wantRule(t, "zero", err, RuleRequestDER)
}
