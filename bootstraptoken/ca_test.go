package bootstraptoken

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	mathrand "math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseCAs(t *testing.T) {
	one, two := newTestCA(t, "one"), newTestCA(t, "two")
	noUsage := caTemplate("three")
	noUsage.KeyUsage = 0
	three := newTestCA(t, "three").signed(t, noUsage)
	crlf := bytes.ReplaceAll(one.pem(), []byte("\n"), []byte("\r\n"))
	for name, bundle := range map[string][]byte{
		"one":                 one.pem(),
		"two":                 append(one.pem(), two.pem()...),
		"no key usage":        three.pem(),
		"renewed":             append(one.pem(), one.renewed(t).pem()...),
		"OpenSSL's text":      append([]byte("Certificate:\n    Data:\n        Version: 3 (0x2)\n"), one.pem()...),
		"comments":            append(append(one.pem(), "\n# the next one\n"...), two.pem()...),
		"four dashes":         append([]byte("---- one ----\n"), one.pem()...),
		"text after":          append(one.pem(), "# end\n"...),
		"CRLF":                crlf,
		"CRLF, then LF":       append(crlf, two.pem()...),
		"no line feed at end": bytes.TrimSpace(one.pem()),
		"as large as may be":  append(one.pem(), strings.Repeat("#", maxCABundleSize-len(one.pem()))...),
		"as many as may be":   manyCAs(t, one, maxCAs),
	} {
		t.Run(name, func(t *testing.T) {
			cas, err := ParseCAs(bundle)
			if err != nil || len(cas) != bytes.Count(bundle, []byte("BEGIN")) {
				t.Fatalf("%d CAs, %v", len(cas), err)
			}
			sameForOthers(t, bundle, cas)
		})
	}
}

// A certificate that is repeated is one.
func TestParseCAsRepeats(t *testing.T) {
	one, two := newTestCA(t, "one"), newTestCA(t, "two")
	bundle := slices.Concat(one.pem(), two.pem(), one.pem(), manyCAs(t, two, maxCAs-2), two.pem())
	cas, err := ParseCAs(bundle)
	if err != nil || len(cas) != maxCAs || !cas[0].Equal(one.cert) || !cas[1].Equal(two.cert) {
		t.Fatalf("%d CAs, %v", len(cas), err)
	}
	sameForOthers(t, bundle, cas)
	written, err := info("https://a", one, two, one).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if read, err := ParseKubeconfig(written); err != nil || !read.Equal(info("https://a", one, two)) {
		t.Errorf("written and read again: %v, %v", read, err)
	}
}

func manyCAs(t testing.TB, ca *testCA, n int) (bundle []byte) {
	for range n {
		bundle = append(bundle, ca.renewed(t).pem()...)
	}
	return bundle
}

func TestParseCAsRefuses(t *testing.T) {
	one, two := newTestCA(t, "one"), string(newTestCA(t, "two").pem())
	good := string(one.pem())
	noCA, noSign := caTemplate("a"), caTemplate("b")
	noCA.IsCA, noCA.KeyUsage = false, 0
	noSign.KeyUsage = x509.KeyUsageDigitalSignature
	body := strings.Split(strings.TrimSpace(good), "\n")
	for name, bundle := range map[string]string{
		"nothing":          "",
		"text":             "a certificate",
		"too large":        good + strings.Repeat("#", maxCABundleSize-len(good)+1),
		"too many":         string(manyCAs(t, one, maxCAs+1)),
		"private key":      good + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"key in front":     "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n" + good,
		"trusted":          strings.ReplaceAll(good, "CERTIFICATE", "TRUSTED CERTIFICATE"),
		"old label":        strings.ReplaceAll(good, "CERTIFICATE", "X509 CERTIFICATE"),
		"headers":          strings.Replace(good, "-----\n", "-----\nA: b\n\n", 1),
		"cut off":          good[:len(good)-5],
		"no end":           strings.Join(body[:len(body)-1], "\n"),
		"no beginning":     strings.Join(body[1:], "\n"),
		"end in front":     "-----END CERTIFICATE-----\n" + good,
		"no second end":    good + strings.TrimSuffix(two, "-----END CERTIFICATE-----\n"),
		"end twice":        good + "-----END CERTIFICATE-----\n",
		"another end":      strings.Replace(good, "END CERTIFICATE", "END CERTIFICAT", 1),
		"no base64":        strings.Replace(good, "M", "!", 1),
		"broken, then one": strings.Join(body[:len(body)-1], "\n") + "\n" + good,
		"one in another":   strings.Replace(good, body[1], strings.TrimSpace(two)+"\n"+body[1], 1),
		"no certificate":   "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"a NUL in front":   "\x00\n" + good,
		"empty block":      "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
		"no CA":            string(newTestCA(t, "a").signed(t, noCA).pem()),
		"cannot sign":      string(newTestCA(t, "b").signed(t, noSign).pem()),
		"DER":              string(one.cert.Raw),

		// What some readers see and others do not.
		"in a comment":            "# rotated out: " + two + good,
		"in a comment, after":     good + "# " + two,
		"a space before":          " " + good,
		"a tab before":            good + "\t" + two,
		"a byte order mark":       "\ufeff" + good,
		"six dashes":              good + "-" + two,
		"after a bare CR":         good + "text\r" + two,
		"a space after BEGIN":     strings.Replace(good, "-----\n", "----- \n", 1),
		"text after BEGIN":        strings.Replace(good, "-----\n", "-----x\n", 1),
		"a space before END":      strings.Replace(good, "-----END", " -----END", 1),
		"END after base64":        strings.Replace(good, "\n-----END", "-----END", 1),
		"text after END":          strings.TrimSpace(good) + " # one\n" + two,
		"END and BEGIN in a line": strings.TrimSpace(good) + two,
		"a line of dashes":        "-----\n" + good,
		"CR alone":                strings.ReplaceAll(good, "\n", "\r"),
		"two CRs":                 strings.ReplaceAll(good, "\n", "\r\r\n"),
		"CR at the end":           strings.TrimSpace(good) + "\r",
		"an empty line inside":    strings.Replace(good, "-----\n", "-----\n\n", 1),
		"a space inside":          strings.Replace(good, body[1], body[1][:10]+" "+body[1][10:], 1),
		"short lines":             strings.Replace(good, body[1], body[1][:32]+"\n"+body[1][32:], 1),
		"one long line":           body[0] + "\n" + strings.Join(body[1:len(body)-1], "") + "\n" + body[len(body)-1] + "\n",
		"lower case":              strings.ReplaceAll(good, "CERTIFICATE", "certificate"),
	} {
		t.Run(name, func(t *testing.T) {
			if cas, err := ParseCAs([]byte(bundle)); !errors.Is(err, checkCA) || cas != nil {
				t.Errorf("%d CAs, %v, want %v", len(cas), err, checkCA)
			}
		})
	}
}

// The fault of a block is described with its line and the rule.
func TestParseCAsSaysWhy(t *testing.T) {
	good := string(newTestCA(t, "one").pem())
	body := strings.Split(strings.TrimSpace(good), "\n")
	wide := body[0] + "\n" + body[1] + body[2][:12] + "\n" + body[2][12:] + "\n"
	for bundle, want := range map[string]string{
		strings.Replace(good, strings.Join(body[:3], "\n")+"\n", wide, 1): "line 2 has 76 characters, not 64",
		strings.Replace(good, body[1], body[1][:32]+"\n"+body[1][32:], 1): "line 2 has 32 characters, not 64",
		strings.ReplaceAll(good, "\n", " \n"):                             "line 1, which begins or ends with a space",
		"# one\n\t" + good:                                                "line 2, which begins or ends with a space",
		strings.Replace(good, body[1], body[1]+"\t", 1):                   "line 2 begins or ends with a space",
		strings.Replace(good, "M", "!", 1):                                "a malformed block",
		"# one\n# " + good:                                                "line 2, which is not the BEGIN or END",
		"\ufeff" + good:                                                   "byte order mark",
		strings.ReplaceAll(good, "", "\x00"):                              "UTF-16",
	} {
		t.Run(want, func(t *testing.T) {
			if _, err := ParseCAs([]byte(bundle)); !errors.Is(err, checkCA) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// marshalCAs does not write what ParseCAs would not read.
func TestMarshalCAsLimits(t *testing.T) {
	many, err := ParseCAs(manyCAs(t, newTestCA(t, "one"), maxCAs))
	if err != nil {
		t.Fatal(err)
	}
	if bundle, err := marshalCAs(many); err != nil || bytes.Count(bundle, []byte("BEGIN")) != maxCAs {
		t.Errorf("%d CAs: %v", maxCAs, err)
	}
	if _, err := marshalCAs(append(slices.Clip(many), newTestCA(t, "two").cert)); !errors.Is(err, checkCA) {
		t.Errorf("%d CAs: %v, want %v", maxCAs+1, err, checkCA)
	}
	large := caTemplate("large")
	large.DNSNames = []string{strings.Repeat("a", maxCABundleSize*3/4)}
	if _, err := marshalCAs([]*x509.Certificate{newTestCA(t, "large").signed(t, large).cert}); !errors.Is(err, checkCA) {
		t.Errorf("too large: %v, want %v", err, checkCA)
	}
}

// sameForOthers fails if another reader finds other certificates in a bundle: crypto/x509,
// and client-go's ParseCertsPEM, which is a loop over pem.Decode.
func sameForOthers(t testing.TB, bundle []byte, cas []*x509.Certificate) {
	t.Helper()
	theirs := x509.NewCertPool()
	theirs.AppendCertsFromPEM(bundle)
	if !theirs.Equal(poolOf(cas)) {
		t.Fatalf("%q: crypto/x509 finds others than these %d", bundle, len(cas))
	}
	found := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		repeats := func(ca *x509.Certificate) bool { return bytes.Equal(ca.Raw, block.Bytes) }
		if block.Type == pemType && len(block.Headers) == 0 && slices.ContainsFunc(cas[:found], repeats) {
			continue
		}
		if found == len(cas) || block.Type != pemType || len(block.Headers) != 0 || !bytes.Equal(block.Bytes, cas[found].Raw) {
			t.Fatalf("%q: encoding/pem finds another %q at %d", bundle, block.Type, found)
		}
		found++
	}
	if found != len(cas) {
		t.Fatalf("%q: encoding/pem finds %d, not %d", bundle, found, len(cas))
	}
}

// bundleOf puts up to three of the blocks together, most of them spoilt.
func bundleOf(r *mathrand.Rand, blocks ...[]byte) (bundle []byte) {
	pick := func(of ...string) []byte { return []byte(of[r.IntN(len(of))]) }
	for range 1 + r.IntN(3) {
		block := bytes.Clone(blocks[r.IntN(len(blocks))])
		at := r.IntN(len(block))
		switch r.IntN(14) {
		case 0:
			block = bytes.ReplaceAll(block, []byte("\n"), pick("\r\n", "\r\n", "\r", "\n\n", " \n"))
		case 1:
			block = bytes.Replace(block, []byte("-----\n"), pick("----- \t\n", "-----\nA: b\n\n", "-----\n\n", "-----\r\n", "------\n"), 1)
		case 2:
			block = bytes.TrimSuffix(block, []byte("\n"))
		case 3:
			block = bytes.Replace(block, []byte("-----BEGIN"), pick("x-----BEGIN", " -----BEGIN", "\n\n-----BEGIN", "\r-----BEGIN", "------BEGIN", "----BEGIN"), 1)
		case 4:
			block = bytes.Replace(block, []byte("-----END"), pick("x-----END", " -----END", "=-----END", "\n\n-----END"), 1)
		case 5:
			block = append(pick("subject=x\n", "text", "text\n\n", "- \n", "--\n", "\x00\n", "\ufeff", "----\n", "BEGIN CERTIFICATE\n", "# ", strings.Repeat("x", 300)+"\n"), block...)
		case 6:
			block = slices.Insert(block, at, pick("\n", " ", "\t", "A", "=", "-", ":", "\r", "\r\n", "\x00")...)
		case 7:
			block = slices.Delete(block, at, min(at+1+r.IntN(3), len(block)))
		case 8:
			block = append(block, pick("text\n", "text", "----", "-----", "x-----END CERTIFICATE-----\n")...)
		}
		bundle = append(bundle, block...)
	}
	return bundle
}

func TestParseCAsAgrees(t *testing.T) {
	a, b := newTestCA(t, "a").pem(), newTestCA(t, "b").pem()
	r := mathrand.New(mathrand.NewPCG(3, 4))
	taken := 0
	for range 4000 {
		bundle := bundleOf(r, a, b)
		if cas, err := ParseCAs(bundle); err == nil {
			taken++
			sameForOthers(t, bundle, cas)
		}
	}
	if taken < 200 {
		t.Errorf("%d bundles taken: too few to compare", taken)
	}
}

// OpenSSL has a reader of its own.
func TestParseCAsAgreesWithOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl")
	}
	a, b := newTestCA(t, "a").pem(), newTestCA(t, "b").pem()
	r := mathrand.New(mathrand.NewPCG(5, 6))
	for taken := 0; taken < 30; {
		bundle := bundleOf(r, a, b)
		cas, err := ParseCAs(bundle)
		if err != nil {
			continue
		}
		taken++
		wrap := exec.Command("openssl", "crl2pkcs7", "-nocrl", "-certfile", "/dev/stdin")
		wrap.Stdin = bytes.NewReader(bundle)
		wrapped, err := wrap.Output()
		if err != nil {
			t.Fatalf("%q: openssl crl2pkcs7: %v", bundle, err)
		}
		list := exec.Command("openssl", "pkcs7", "-print_certs")
		list.Stdin = bytes.NewReader(wrapped)
		out, err := list.Output()
		if err != nil {
			t.Fatalf("%q: openssl pkcs7: %v", bundle, err)
		}
		theirs := x509.NewCertPool()
		theirs.AppendCertsFromPEM(out)
		if !theirs.Equal(poolOf(cas)) {
			t.Fatalf("%q: OpenSSL finds others than these %d:\n%s", bundle, len(cas), out)
		}
	}
}

func FuzzParseCAs(f *testing.F) {
	a, b := newTestCA(f, "a").pem(), newTestCA(f, "b").pem()
	f.Add(a)
	r := mathrand.New(mathrand.NewPCG(7, 8))
	for range 200 {
		f.Add(bundleOf(r, a, b))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cas, err := ParseCAs(data)
		if err != nil {
			return
		}
		sameForOthers(t, data, cas)
		out, err := marshalCAs(cas)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseCAs(out)
		if err != nil || len(again) != len(cas) {
			t.Fatalf("%d CAs, then %d, %v", len(cas), len(again), err)
		}
	})
}

// below is a CA that another one signed.
func (ca *testCA) below(t testing.TB, name string, change func(*x509.Certificate)) *testCA {
	t.Helper()
	made := newTestCA(t, name)
	template := caTemplate(name)
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, made.key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if made.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return made
}

// A pinned CA vouches for the CAs that verify up to it, unless they would escape as anchors what
// it, or one between, may sign.
func TestVouched(t *testing.T) {
	plain := func(*x509.Certificate) {}
	names := func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"localhost"} }
	clients := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	signs := func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = n, true }
	}
	for name, test := range map[string]struct {
		root, between, ca func(*x509.Certificate) // between is nil if the root signs the CA
		ok                bool
		constrained       string
	}{
		"below the root":             {plain, nil, plain, true, ""},
		"two below the root":         {plain, plain, plain, true, ""},
		"constrained itself":         {plain, nil, names, true, ""},
		"a root with names":          {names, nil, plain, false, "CN=ca, which is below name constraints of the CA CN=root"},
		"one with names between":     {plain, names, plain, false, "CN=ca, which is below name constraints of the CA CN=between"},
		"a root for clients":         {clients, nil, plain, false, ""},
		"one for clients between":    {plain, clients, plain, false, ""},
		"a CA for clients":           {plain, nil, clients, false, ""},
		"a root that signs no CA":    {signs(0), nil, plain, false, ""},
		"a root that signs one CA":   {signs(1), nil, plain, true, ""},
		"a root that signs one of 2": {signs(1), plain, plain, false, ""},
		"a root that signs two CAs":  {signs(2), plain, plain, true, ""},
		"ended":                      {plain, nil, func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) }, false, ""},
		"ended between":              {plain, func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) }, plain, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			template := caTemplate("root")
			test.root(template)
			root := newTestCA(t, "root").signed(t, template)
			issuer, bundle := root, []*x509.Certificate{root.cert}
			if test.between != nil {
				issuer = root.below(t, "between", test.between)
				bundle = append(bundle, issuer.cert)
			}
			ca := issuer.below(t, "ca", test.ca).cert
			ok, constrained := vouched(ca, bundle[:1], append(bundle, ca), time.Now())
			if ok != test.ok || !strings.HasSuffix(constrained, test.constrained) || (constrained == "") != (test.constrained == "") {
				t.Errorf("got %t, %q", ok, constrained)
			}
			if ok, _ := vouched(root.cert, bundle[:1], bundle, time.Now()); !ok {
				t.Error("the pinned CA is not vouched for")
			}
			spelt := *root.cert // in capitals, as the CA names it
			spelt.RawSubject = bytes.ToUpper(spelt.RawSubject)
			below := (&testCA{&spelt, root.key}).below(t, "ca", test.ca).cert
			if ok, constrained := vouched(below, bundle[:1], append(bundle, below), time.Now()); test.between == nil && (ok != test.ok || (constrained == "") != (test.constrained == "")) {
				t.Errorf("of a CA that spells the root's name otherwise: got %t, %q", ok, constrained)
			}
			stranger := newTestCA(t, "root").below(t, "ca", plain).cert
			if ok, _ := vouched(stranger, bundle[:1], append(bundle, stranger), time.Now()); ok {
				t.Error("the CA of another root of this name is vouched for")
			}
		})
	}
}

const somePin = "sha256:3b793efefe27a19f93b0fbe6e637e9c41d0dde8a377d6ab1c0f656bf1136dd8a"

func TestParsePin(t *testing.T) {
	for _, s := range []string{somePin, strings.ToUpper(somePin), "sha256:" + strings.ToUpper(somePin[7:])} {
		p, err := ParsePin(s)
		if err != nil || p.String() != somePin {
			t.Errorf("%s: %v, %v", s, p, err)
		}
	}
}

func TestParsePinRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":             "",
		"no prefix":           somePin[7:],
		"another hash":        "sha512:" + somePin[7:],
		"another hash's size": "sha1:" + somePin[7:47],
		"short":               somePin[:len(somePin)-1],
		"an odd byte less":    somePin[:len(somePin)-2],
		"long":                somePin + "0",
		"no hex":              somePin[:len(somePin)-1] + "g",
		"space in front":      " " + somePin[:len(somePin)-1],
		"line feed after":     somePin[:len(somePin)-1] + "\n",
		"base64":              "sha256:" + strings.Repeat("A", 43) + "=",
		"zeros":               "sha256:" + strings.Repeat("0", 64),
		"no colon":            "sha256/" + somePin[7:],
		"two colons":          "sha256::" + somePin[8:],
		"1 MiB":               strings.Repeat("a", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ParsePin(s)
			if !errors.Is(err, checkPin) || !p.IsZero() {
				t.Errorf("%s: %v, %v, want %v", name, p, err, checkPin)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
			}
		})
	}
}

func TestPinOf(t *testing.T) {
	ca := newTestCA(t, "one")
	again := ca.renewed(t)
	if pinOf(ca.cert) != pinOf(again.cert) {
		t.Error("a new certificate of the same key has another pin")
	}
	if pinOf(ca.cert) == pinOf(newTestCA(t, "one").cert) {
		t.Error("another key has the same pin")
	}
}

func FuzzParsePin(f *testing.F) {
	for _, s := range []string{somePin, strings.ToUpper(somePin), "", "sha256:", "sha1:00", somePin + "00", "sha256:" + strings.Repeat("0", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePin(s)
		if (err == nil) == p.IsZero() {
			t.Fatalf("%q: %v, %v", s, p, err)
		}
		if err == nil && p.String() != strings.ToLower(s) {
			t.Fatalf("%q reads as %v", s, p)
		}
	})
}
