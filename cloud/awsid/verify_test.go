package awsid_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func expect(t *testing.T, d *awsid.Document, err error, want refusal.Check) {
	t.Helper()
	if want == "" && (err != nil || d == nil) || want != "" && (!errors.Is(err, want) || d != nil || errors.Is(err, refusal.ErrRetry)) {
		t.Errorf("got %+v, %v, want %q", d, err, want)
	}
}

func TestVerify(t *testing.T) {
	d := testkit.Must(awsid.Verify(document(t, machine()), ec2(t).Certificates(), now))
	if d.AccountID != "123456789012" || d.Region != regionOne || d.InstanceID != "i-0123456789abcdef0" || d.AvailabilityZone != regionOne+"a" ||
		d.PendingTime != now.Add(-time.Hour) || d.SigningTime != now.Add(-time.Hour+2*time.Second) || d.ImageID == "" || d.InstanceType != "m7i.large" ||
		d.Architecture != "x86_64" || d.PrivateIP != "10.0.0.17" || d.Version != "2017-09-30" || d.BillingProducts != nil || !bytes.HasPrefix(d.JSON, []byte("{\n")) {
		t.Errorf("%+v", d)
	}
}

// Regions: one's key never speaks for another.
func TestRegions(t *testing.T) {
	a, b := openAuthority(), openOther()
	there := strings.ReplaceAll(goodJSON, regionOne, regionTwo)
	renamed := newShape(b, goodJSON)
	renamed.serial = newShape(a, goodJSON).serial
	for name, c := range map[string]struct {
		pkcs7 []byte
		want  refusal.Check
	}{
		"as it is":                               {newShape(a, goodJSON).marshal(a), ""},
		"of the other region":                    {newShape(b, there).marshal(b), ""},
		"signed by another region":               {newShape(b, goodJSON).marshal(b), refusal.Check("awsid-signer")},
		"naming another region":                  {newShape(a, there).marshal(a), refusal.Check("awsid-signer")},
		unknownRegion:                            {newShape(a, strings.ReplaceAll(goodJSON, regionOne, "eu-test-9")).marshal(a), refusal.Check("awsid-region")},
		"another region's serial number":         {renamed.marshal(b), refusal.Check("awsid-signature")},
		"another document under good attributes": {bytes.Replace(newShape(a, goodJSON).marshal(a), []byte("123456789012"), []byte("123456789013"), 1), refusal.Check("awsid-digest")},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := awsid.Verify(c.pkcs7, table(), now)
			expect(t, d, err, c.want)
			keep(t, "region "+name, c.pkcs7, c.want)
		})
	}
}

func TestTables(t *testing.T) {
	a, b := openAuthority(), openOther()
	good, weak := newShape(a, goodJSON).marshal(a), newAuthority(1024, 0x1269)
	ecdsaCert := *a.cert
	ecdsaCert.PublicKey = &ecdsa.PublicKey{Curve: elliptic.P256()}
	for name, c := range map[string]struct {
		pkcs7        []byte
		certificates awsid.Certificates
		want         refusal.Check
	}{
		"swapped":                    {good, awsid.Certificates{regionOne: b.cert, regionTwo: a.cert}, refusal.Check("awsid-signer")},
		"without the region":         {good, awsid.Certificates{regionTwo: b.cert}, refusal.Check("awsid-region")},
		"with nil":                   {good, awsid.Certificates{regionOne: nil}, refusal.Check("awsid-region")},
		"empty":                      {good, nil, refusal.CheckConfig},
		"with a key of ECDSA":        {good, awsid.Certificates{regionOne: &ecdsaCert}, refusal.CheckConfig},
		"certificates of /signature": {newShape(weak, goodJSON).marshal(weak), awsid.Certificates{regionOne: weak.cert}, refusal.CheckConfig},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := awsid.Verify(c.pkcs7, c.certificates, now)
			expect(t, d, err, c.want)
		})
	}
}

func TestTimes(t *testing.T) {
	a := openAuthority()
	data := newShape(a, goodJSON).marshal(a)
	signed := time.Date(2027, 1, 15, 7, 0, 2, 0, time.UTC)
	for name, c := range map[string]struct {
		at   time.Time
		want refusal.Check
	}{
		"at once":                   {signed, ""},
		"a minute before":           {signed.Add(-time.Minute), ""},
		"more than a minute before": {signed.Add(-61 * time.Second), refusal.Check("awsid-future")},
		"as the certificate ends":   {a.cert.NotAfter, ""},
		"after it":                  {a.cert.NotAfter.Add(time.Second), refusal.Check("awsid-certificate-expired")},
		"before it":                 {a.cert.NotBefore.Add(-time.Second), refusal.Check("awsid-certificate-expired")},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := awsid.Verify(data, table(), c.at)
			expect(t, d, err, c.want)
		})
	}
}

// TestShapes changes one thing of the encoding, and signs again.
func TestShapes(t *testing.T) {
	a, other := openAuthority(), openOther()
	drop := func(n int) func(*shape) { return func(s *shape) { s.attributes = slices.Delete(s.attributes, n, n+1) } }
	put := func(n int, b []byte) func(*shape) { return func(s *shape) { s.attributes[n] = b } }
	insert := func(n int, b []byte) func(*shape) {
		return func(s *shape) { s.attributes = slices.Insert(s.attributes, n, b) }
	}
	others := func(count byte) (list [][]byte) {
		for n := range count {
			list = append(list, attribute(string([]byte{0x60 + n}), []byte{5, 0}))
		}
		return list
	}
	goodProtection := []byte("\x30\x1e" + sha256ID + "\xa1" + rsaID[1:])
	for name, c := range map[string]struct {
		change func(*shape)
		want   refusal.Check
	}{
		"as it is":                             {func(*shape) {}, ""},
		"in two parts":                         {func(s *shape) { s.chunks = []string{goodJSON[:10], goodJSON[10:]} }, ""},
		"an empty part":                        {func(s *shape) { s.chunks = []string{goodJSON, ""} }, refusal.Check("awsid-encoding")},
		"a part of one byte":                   {func(s *shape) { s.chunks = []string{"{"} }, refusal.Check("awsid-digest")},
		"no part":                              {func(s *shape) { s.chunks = nil }, refusal.Check("awsid-encoding")},
		"another content type":                 {func(s *shape) { s.head = strings.Replace(s.head, "\x07\x02", "\x07\x03", 1) }, refusal.Check("awsid-encoding")},
		"version 3":                            {func(s *shape) { s.head = s.head[:len(s.head)-1] + "\x03" }, refusal.Check("awsid-encoding")},
		"SHA-1":                                {func(s *shape) { s.digests = sha1ID }, refusal.Check("awsid-algorithm")},
		"SHA-256 and SHA-1":                    {func(s *shape) { s.digests = sha1ID + sha256ID }, refusal.Check("awsid-algorithm")},
		"no digest algorithm":                  {func(s *shape) { s.digests = "" }, refusal.Check("awsid-algorithm")},
		"a certificate inside":                 {func(s *shape) { s.beforeSigners = "\xa0\x80" + string(a.cert.Raw) + "\x00\x00" }, refusal.Check("awsid-encoding")},
		"a certificate inside, of a length":    {func(s *shape) { s.beforeSigners = "\xa0\x02\x30\x00" }, refusal.Check("awsid-encoding")},
		"revocation lists":                     {func(s *shape) { s.beforeSigners = "\xa1\x02\x30\x00" }, refusal.Check("awsid-encoding")},
		"a second signer":                      {func(s *shape) { s.signers = "\x30\x00" }, refusal.Check("awsid-encoding")},
		"trailing bytes":                       {func(s *shape) { s.end += "\x00" }, refusal.Check("awsid-encoding")},
		"cut off":                              {func(s *shape) { s.end = nulls[:5] }, refusal.Check("awsid-encoding")},
		"a signer by key identifier":           {func(s *shape) { s.version = "\x02\x01\x03" }, refusal.Check("awsid-encoding")},
		"another issuer":                       {func(s *shape) { s.issuer = []byte("\x30\x00") }, refusal.Check("awsid-signer")},
		"an issuer that is no name":            {func(s *shape) { s.issuer = []byte("\x31\x00") }, refusal.Check("awsid-encoding")},
		"something after the serial number":    {func(s *shape) { s.serial = append(s.serial, 5, 0) }, refusal.Check("awsid-encoding")},
		"another serial number":                {func(s *shape) { s.serial = []byte{2, 2, 0x12, 0x68} }, refusal.Check("awsid-signer")},
		"a serial number with a zero":          {func(s *shape) { s.serial = []byte{2, 3, 0, 0x12, 0x67} }, refusal.Check("awsid-encoding")},
		"the signer's digest SHA-1":            {func(s *shape) { s.signerDigest = sha1ID }, refusal.Check("awsid-algorithm")},
		"plain RSA":                            {func(s *shape) { s.algorithm = plainRSA }, refusal.Check("awsid-algorithm")},
		"sixteen attributes":                   {func(s *shape) { s.attributes = append(others(13), s.attributes...) }, ""},
		"seventeen attributes":                 {func(s *shape) { s.attributes = append(others(14), s.attributes...) }, refusal.Check("awsid-attributes")},
		"no signed attributes":                 {func(s *shape) { s.attributes = nil }, refusal.Check("awsid-attributes")},
		"empty signed attributes":              {func(s *shape) { s.attributes = [][]byte{} }, refusal.Check("awsid-attributes")},
		"attributes under another tag":         {func(s *shape) { s.tag = 0xa1 }, refusal.Check("awsid-attributes")},
		"attributes without a length":          {func(s *shape) { s.signerDigest += "\xa0\x80" }, refusal.Check("awsid-encoding")},
		"an attribute that is no SEQUENCE":     {put(2, append([]byte{0x31}, attribute(messageDigest, digestOf(goodJSON))[1:]...)), refusal.Check("awsid-encoding")},
		"an attribute without a name":          {put(2, []byte("\x30\x04\x31\x02\x05\x00")), refusal.Check("awsid-encoding")},
		"an attribute by a name in bytes":      {put(2, []byte("\x30\x06\x04\x00\x31\x02\x05\x00")), refusal.Check("awsid-encoding")},
		"an attribute without values":          {put(2, []byte("\x30\x0b"+pkcs9+messageDigest)), refusal.Check("awsid-encoding")},
		"an attribute and more":                {put(2, []byte("\x30\x0f"+pkcs9+messageDigest+"\x31\x00\x05\x00")), refusal.Check("awsid-encoding")},
		"unsigned attributes":                  {func(s *shape) { s.unsigned = "\xa1\x02\x30\x00" }, refusal.Check("awsid-encoding")},
		"no content type":                      {drop(0), refusal.Check("awsid-attributes")},
		"no signing time":                      {drop(1), refusal.Check("awsid-attributes")},
		"no digest":                            {drop(2), refusal.Check("awsid-digest")},
		"the content type of something else":   {put(0, attribute(contentType, []byte("\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02"))), refusal.Check("awsid-attributes")},
		"the digest of something else":         {put(2, attribute(messageDigest, digestOf("{}"))), refusal.Check("awsid-digest")},
		"a digest of half":                     {put(2, attribute(messageDigest, digestOf(goodJSON)[:18])), refusal.Check("awsid-digest")},
		"two digests":                          {put(2, attribute(messageDigest, slices.Concat(digestOf("{}"), digestOf(goodJSON)))), refusal.Check("awsid-digest")},
		"the digest twice":                     {insert(2, attribute(messageDigest, digestOf(goodJSON))), refusal.Check("awsid-attributes")},
		"another digest, in order":             {insert(2, attribute(messageDigest, octets(strings.Repeat("\x00", 32)))), refusal.Check("awsid-attributes")},
		"another digest in front":              {insert(0, attribute(messageDigest, digestOf("{}"))), refusal.Check("awsid-attributes")},
		"out of order":                         {func(s *shape) { slices.Reverse(s.attributes) }, refusal.Check("awsid-attributes")},
		"the algorithms":                       {insert(2, attribute(protection, goodProtection)), ""},
		"other algorithms":                     {insert(2, attribute(protection, []byte("\x30\x1e"+sha256ID+"\xa1"+plainRSA[1:]))), refusal.Check("awsid-attributes")},
		"a further attribute":                  {insert(1, attribute("\x63", []byte("\x05\x00"))), refusal.Check("awsid-attributes")},
		"a further attribute in its place":     {insert(0, attribute("\x63", []byte("\x05\x00"))), ""},
		badSigningTime:                         {put(1, attribute(signingTime, []byte("\x17\x0d271315070002Z"))), refusal.Check("awsid-attributes")},
		"two signing times":                    {put(1, attribute(signingTime, []byte("\x17\x0d270115070002Z\x17\x0d270115070002Z"))), refusal.Check("awsid-attributes")},
		"another key, the same names":          {func(s *shape) { s.signature = signatureBy(other, s) }, refusal.Check("awsid-signature")},
		"a signature over the document itself": {func(s *shape) { s.signature = signatureOver(a, goodJSON) }, refusal.Check("awsid-signature")},
		"no signature":                         {func(s *shape) { s.signature = []byte{} }, refusal.Check("awsid-signature")},
		"half a signature":                     {func(s *shape) { s.signature = signatureBy(a, s)[:128] }, refusal.Check("awsid-signature")},
		"a signature with a zero in front":     {func(s *shape) { s.signature = append([]byte{0}, signatureBy(a, s)...) }, refusal.Check("awsid-signature")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShape(a, goodJSON)
			c.change(s)
			data := s.marshal(a)
			d, err := awsid.Verify(data, table(), now)
			expect(t, d, err, c.want)
			keep(t, "shape "+name, data, c.want)
		})
	}
}

// signatureBy is a signature over a shape's attributes, signatureOver one over other bytes.
func signatureBy(a *authority, s *shape) []byte {
	n := *s
	data := n.marshal(a)
	return data[len(data)-256-6 : len(data)-6]
}

func signatureOver(a *authority, content string) []byte {
	s := newShape(a, content)
	s.attributes = nil
	return signatureBy(a, s)
}

// Documents that AWS would never sign, and some that it might.
func TestClaims(t *testing.T) {
	a := openAuthority()
	replace := func(old, new string) string { return strings.Replace(goodJSON, old, new, 1) }
	for name, c := range map[string]struct {
		json string
		want refusal.Check
	}{
		"as it is":                      {goodJSON, ""},
		"members unknown":               {replace("{", `{"new" : [1], `), ""},
		"nulls":                         {replace("{", `{"billingProducts" : null, "kernelId" : null, "imageId" : null, `), ""},
		"4 KiB of JSON":                 {replace("{", `{"a" : "`+strings.Repeat("a", 4<<10-len(goodJSON)-10)+`", `), ""},
		"a byte more":                   {replace("{", `{"a" : "`+strings.Repeat("a", 4<<10-len(goodJSON)-9)+`", `), refusal.Check("awsid-claims")},
		"64 products":                   {replace("{", `{"billingProducts" : [`+strings.Repeat(`"b", `, 63)+`"b"], `), ""},
		"65 products":                   {replace("{", `{"billingProducts" : [`+strings.Repeat(`"b", `, 64)+`"b"], `), refusal.Check("awsid-claims")},
		"products":                      {replace("{", `{"billingProducts" : ["bp-1"], "marketplaceProductCodes" : ["m"], `), ""},
		"a short instance ID":           {replace("i-0123456789abcdef0", "i-01234567"), ""},
		"a list":                        {"[" + goodJSON + "]", refusal.Check("awsid-claims")},
		"trailing bytes":                {goodJSON + "x", refusal.Check("awsid-claims")},
		"the instance twice":            {replace("{", `{"instanceId" : "i-ffffffff", `), refusal.Check("awsid-claims")},
		"the instance in two cases":     {replace("{", `{"InstanceId" : "i-ffffffff", `), refusal.Check("awsid-claims")},
		"no instance":                   {replace(`"instanceId"`, `"x"`), refusal.Check("awsid-claims")},
		"no account":                    {replace(`"accountId"`, `"x"`), refusal.Check("awsid-claims")},
		"no region":                     {replace(`"region"`, `"x"`), refusal.Check("awsid-claims")},
		"no time":                       {replace(`"pendingTime"`, `"x"`), refusal.Check("awsid-claims")},
		"an instance in upper case":     {replace("i-0123456789abcdef0", "i-0123456789ABCDEF0"), refusal.Check("awsid-claims")},
		"an instance a digit too short": {replace("i-0123456789abcdef0", "i-0123456789abcdef"), refusal.Check("awsid-claims")},
		"an instance with a slash":      {replace("i-0123456789abcdef0", "i-01234567/x"), refusal.Check("awsid-claims")},
		"an account that is a number":   {replace(`"123456789012"`, `123456789012`), refusal.Check("awsid-claims")},
		"an account of 11 digits":       {replace("123456789012", "12345678901"), refusal.Check("awsid-claims")},
		"a region with a line end":      {replace(regionOne, regionOne+`\n`), refusal.Check("awsid-claims")},
		"an empty region":               {replace(regionOne, ""), refusal.Check("awsid-claims")},
		badPendingTime:                  {replace("2027-01-15T", "2027-13-15T"), refusal.Check("awsid-claims")},
		"the region null":               {replace(`"`+regionOne+`"`, "null"), refusal.Check("awsid-claims")},
		"not UTF-8":                     {replace("{", "{\"x\" : \"\xff\", "), refusal.Check("awsid-claims")},
	} {
		t.Run(name, func(t *testing.T) {
			data := newShape(a, c.json).marshal(a)
			d, err := awsid.Verify(data, table(), now)
			expect(t, d, err, c.want)
			keep(t, "claims "+name, data, c.want)
		})
	}
}

// Inputs other than the document at /rsa2048.
func TestInputs(t *testing.T) {
	a := openAuthority()
	good := newShape(a, goodJSON).marshal(a)
	filled := func(size int) []byte { // by an attribute
		for n := size - len(good) - 64; ; n++ {
			s := newShape(a, goodJSON)
			s.attributes = append(s.attributes, attribute("\x60", octets(strings.Repeat("x", n))))
			if data := s.marshal(a); len(data) >= size {
				return data
			}
		}
	}
	full, more, long := filled(awsid.MaxSize), filled(awsid.MaxSize+1), filled(2*awsid.MaxSize-1)
	for name, c := range map[string]struct {
		data []byte
		want refusal.Check
	}{
		"nothing":                {nil, refusal.Check("awsid-size")},
		"the largest":            {full, ""},
		"a byte more":            {more, refusal.Check("awsid-size")},
		"a larger one":           {long, refusal.Check("awsid-size")},
		"a mebibyte of nesting":  {bytes.Repeat([]byte{0x30, 0x80}, 1<<19), refusal.Check("awsid-size")},
		"8 KiB of nesting":       {bytes.Repeat([]byte{0x30, 0x80}, awsid.MaxSize/2), refusal.Check("awsid-encoding")},
		"base64":                 {[]byte(base64.StdEncoding.EncodeToString(good)), refusal.Check("awsid-encoding")},
		"what /signature has":    {make([]byte, 128), refusal.Check("awsid-algorithm")},
		"the document by itself": {[]byte(goodJSON), refusal.Check("awsid-encoding")},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := awsid.Verify(c.data, table(), now)
			expect(t, d, err, c.want)
			if len(c.data) < 2*awsid.MaxSize {
				keep(t, "input "+name, c.data, c.want)
			}
		})
	}
	if len(full) != awsid.MaxSize || len(more) != awsid.MaxSize+1 {
		t.Errorf("the largest has %d bytes, the next %d", len(full), len(more))
	}
	_, err := awsid.Verify([]byte(base64.StdEncoding.EncodeToString(good)), table(), now)
	if r, ok := errors.AsType[*refusal.Error](err); !ok || r.Got != "base64" {
		t.Errorf("base64 is not called so: %v", err)
	}
	for n := range good { // the smallest changes
		bad := bytes.Clone(good)
		bad[n] ^= 1
		if d, err := awsid.Verify(bad, table(), now); err == nil || d != nil {
			t.Errorf("byte %d changed: %+v", n, d)
		}
		if d, err := awsid.Verify(good[:n], table(), now); err == nil || d != nil {
			t.Errorf("cut to %d bytes: %+v", n, d)
		}
	}
}

// TestRecorded verifies what AWS signed.
func TestRecorded(t *testing.T) {
	dir := corpus(t)
	table := testkit.Must(awsid.ParseCertificates(readFile(t, dir, "regions-rsa2048.pem")))
	if len(table) != 39 {
		t.Errorf("%d regions", len(table))
	}
	then := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for region, account := range map[string]string{"us-west-1": "883474662888", "us-west-2": "278576220453"} {
		data := readFile(t, dir, "teleport-"+region+"-rsa2048.p7")
		d, err := awsid.Verify(data, table, then)
		if err != nil || d.Region != region || d.SigningTime.Sub(d.PendingTime) > 5*time.Second || d.AccountID != account {
			t.Errorf("%s: %+v, %v", region, d, err)
			continue
		}
		for other, cert := range table {
			if other == region {
				continue
			}
			d, err := awsid.Verify(data, awsid.Certificates{region: cert}, then)
			expect(t, d, err, refusal.Check("awsid-signer"))
		}
		if _, err := awsid.Verify(data, table, d.SigningTime.Add(-time.Hour)); !errors.Is(err, refusal.Check("awsid-future")) {
			t.Error(err)
		}
	}
	d, err := awsid.Verify(readFile(t, dir, "ec2-2016-dsa.p7"), table, then)
	expect(t, d, err, refusal.Check("awsid-algorithm"))
	for _, name := range []string{"coder", "taskcluster-2019"} {
		signature := testkit.Must(base64.StdEncoding.DecodeString(strings.ReplaceAll(string(readFile(t, dir, name+"-signature.b64")), "\n", "")))
		d, err := awsid.Verify(signature, table, then)
		expect(t, d, err, refusal.Check("awsid-algorithm"))
		d, err = awsid.Verify(readFile(t, dir, name+"-document.json"), table, then)
		expect(t, d, err, refusal.Check("awsid-encoding"))
	}
}

func TestParseCertificates(t *testing.T) {
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: openAuthority().cert.Raw})
	for name, text := range map[string][]byte{
		"nothing": nil, "no PEM": []byte("x"), "a certificate of one's own": own, "no certificate": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{0x30, 0}}), "too much": make([]byte, awsid.MaxPEMSize+1),
		"a block that is cut": []byte("-----BEGIN CERTIFICATE-----\nx\n"),
	} {
		t.Run(name, func(t *testing.T) {
			if table, err := awsid.ParseCertificates(text); !errors.Is(err, refusal.Check("awsid-certificates")) || table != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	hex := regexp.MustCompile("^[0-9a-f]{64}$")
	all := awsid.Fingerprints()
	if distinct := slices.Compact(slices.Sorted(maps.Values(all))); len(all) != 39 || len(distinct) != 39 {
		t.Errorf("%d regions, %d certificates", len(all), len(distinct))
	}
	for region, fingerprint := range all {
		if !hex.MatchString(fingerprint) {
			t.Errorf("%s: %s", region, fingerprint)
		}
	}
	dir := corpus(t)
	known := readFile(t, dir, "regions-rsa2048.pem")
	for name, text := range map[string][]byte{
		"certificates of /signature": readFile(t, dir, "regions-rsa1024.pem"),
		"one that is cut off":        known[:len(known)-40],
		"a block of another type":    bytes.ReplaceAll(known, []byte("CERTIFICATE-"), []byte("TRUSTED CERTIFICATE-")),
		"a byte too long":            append(bytes.Clone(known), make([]byte, awsid.MaxPEMSize+1-len(known))...),
	} {
		t.Run(name, func(t *testing.T) {
			if table, err := awsid.ParseCertificates(text); !errors.Is(err, refusal.Check("awsid-certificates")) || table != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	// Others in the text cost no region: certificates of a new region, and of AWS' other signatures.
	wrong := readFile(t, dir, "ec2-2016-dsa.cert.pem")
	for want, text := range map[string][]byte{
		"certificate 40 (RSA-2048), want":   append(bytes.Clone(known), own...),
		"certificate 1 (RSA-2048), want":    append(bytes.Clone(own), known...),
		"certificate 40 (DSA), want":        append(bytes.Clone(known), wrong...),
		"certificate 40 (RSA-1024), 41":     append(bytes.Clone(known), readFile(t, dir, "regions-rsa1024.pem")...),
		"certificate 40 (unreadable), want": append(bytes.Clone(known), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{0x30, 0}})...),
	} {
		if table, err := awsid.ParseCertificates(text); len(table) != 39 || !errors.Is(err, refusal.Check("awsid-certificates")) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d regions, %v, want %q", len(table), err, want)
		}
	}
	if table, err := awsid.ParseCertificates(append(bytes.Clone(known), make([]byte, awsid.MaxPEMSize-len(known))...)); err != nil || len(table) != 39 {
		t.Errorf("as long as can be: %d, %v", len(table), err)
	}
	one := known[:bytes.Index(known, []byte("-----END CERTIFICATE-----"))+26]
	if table, err := awsid.ParseCertificates(one); err != nil || len(table) != 1 {
		t.Errorf("%d, %v", len(table), err)
	}
}
