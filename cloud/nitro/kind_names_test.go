package nitro

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestRegions: a zone, as people take it from a console or a label, is no region, and no document
// names it.
func TestRegions(t *testing.T) {
	for _, region := range []string{"us-west-2", "ap-southeast-7", "mx-central-1", "il-central-1", "us-east-12", "cn-northwest-1",
		"us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "us-isof-south-1", "eu-isoe-west-1", "eusc-de-east-1"} {
		id, err := Identity(region, testInstance)
		if again, wrong := parseIdentity(id); err != nil || wrong != nil || again != id {
			t.Errorf("%s: %v, %v", region, err, wrong)
		}
	}
	for _, region := range []string{"us-west-2a", "us-west-2-lax-1a", "us-west-2-lax-1", "us-east-1-wl1", "us-east-1-wl1-bos-wlz-1", "usw2-az1",
		"us-east", "us-east-", "us-east-01", "us-east-0", "us-east-123", "us-1-1", "-east-1", "u-east-1", "us--east-1", "us-gov-x-1", "US-EAST-1", "us-east-1-", "a-us-east-1-1", "aws", "x", ""} {
		if id, err := Identity(region, testInstance); !errors.Is(err, attest.CheckIdentity) {
			t.Errorf("%q is taken for a region: %s, %v", region, id, err)
		}
	}
}

// TestNames: a module, and certificates that agree with it, are one of a NitroTPM in a
// region, or refused.
func TestNames(t *testing.T) {
	b := newBench()
	for name, c := range map[string]struct {
		instance, rest, region string
		want                   refusal.Check
	}{
		"good":                    {testInstance, "-tpm0000000000000000", testRegion, ""},
		"another TPM":             {testInstance, "-tpm0123456789abcdef", testRegion, ""},
		"an old instance":         {"i-01234567", "-tpm0000000000000000", testRegion, ""},
		"a long region":           {testInstance, "-tpm0000000000000000", "us-" + strings.Repeat("a", 27) + "-1", ""},
		"a longer region":         {testInstance, "-tpm0000000000000000", "us-" + strings.Repeat("a", 28) + "-1", checkModule},
		"a region of one letter":  {testInstance, "-tpm0000000000000000", "a", checkModule},
		"a zone":                  {testInstance, "-tpm0000000000000000", testRegion + "a", checkModule},
		"no region":               {testInstance, "-tpm0000000000000000", "", checkModule},
		"a region with a dot":     {testInstance, "-tpm0000000000000000", "us.east", checkModule},
		"a region in upper case":  {testInstance, "-tpm0000000000000000", "US-EAST-2", checkModule},
		"a region with a slash":   {testInstance, "-tpm0000000000000000", "us/east", checkModule},
		"a region with a hyphen":  {testInstance, "-tpm0000000000000000", "us-", checkModule},
		"an enclave":              {testInstance, "-enc0000000000000000", testRegion, checkModule},
		"no TPM":                  {testInstance, "-", testRegion, checkModule},
		"a TPM of 15 digits":      {testInstance, "-tpm000000000000000", testRegion, checkModule},
		"a TPM of 17 digits":      {testInstance, "-tpm00000000000000000", testRegion, checkModule},
		"a TPM in upper case":     {testInstance, "-tpm000000000000000A", testRegion, checkModule},
		"a TPM and more":          {testInstance, "-tpm0000000000000000-enc0000000000000000", testRegion, checkModule},
		"an enclave, and a TPM":   {testInstance, "-enc-tpm0000000000000000", testRegion, checkModule},
		"an instance of 16":       {testInstance[:18], "-tpm0000000000000000", testRegion, checkModule},
		"an instance in letters":  {"i-0123456789abcdefg", "-tpm0000000000000000", testRegion, checkModule},
		"no instance":             {"i-", "-tpm0000000000000000", testRegion, checkModule},
		"another kind of machine": {"m-0123456789abcdef0", "-tpm0000000000000000", testRegion, checkModule},
	} {
		t.Run(name, func(t *testing.T) {
			above := issue(caTemplate(c.instance+"."+c.region+".aws.nitro-enclaves", 0), newKey(elliptic.P384()), b.zonal)
			template := leafTemplate()
			template.Subject = named(c.instance + c.rest + "." + c.region + ".aws")
			p := b.good()
			p.by(issue(template, newKey(elliptic.P384()), above), b.root, b.regional, b.zonal, above)
			p.set("module_id", tstr(c.instance+c.rest))
			d, err := parseInsecure(p.marshal())
			if c.want != "" {
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				return
			}
			if err != nil || d.InstanceID != c.instance || d.Region != c.region {
				t.Errorf("got %+v, %v", d, err)
			}
		})
	}
	for _, module := range []string{testModule[2:], testInstance, "i-" + testModule} {
		t.Run("module "+module, func(t *testing.T) { // whose instance has another name
			template := leafTemplate()
			template.Subject = named(module + "." + testRegion + ".aws")
			p := b.good()
			p.by(issue(template, newKey(elliptic.P384()), b.instance), b.bundle()...)
			p.set("module_id", tstr(module))
			if d, err := parseInsecure(p.marshal()); !errors.Is(err, checkModule) || d != nil {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	for name, cn := range map[string]string{"of another cloud": testModule + "." + testRegion + ".example", "of a region alone": testRegion + ".aws", "of no cloud": testModule + "." + testRegion,
		"of another module": strings.Replace(testModule, "tpm0", "tpm1", 1) + "." + testRegion + ".aws"} {
		template := leafTemplate()
		template.Subject = named(cn)
		p := b.good()
		p.by(issue(template, newKey(elliptic.P384()), b.instance), b.bundle()...)
		if _, err := parseInsecure(p.marshal()); !errors.Is(err, checkModule) {
			t.Errorf("a certificate %s: %v", name, err)
		}
	}
}

// Sizes at their limits and over them.
func TestLimits(t *testing.T) {
	b := newBench()
	for n, want := range map[int]bool{0: true, 1: true, 23: true, 24: true, 255: true, 256: true, 1024: true, 1025: false} {
		for _, key := range []string{"nonce", "user_data", "public_key"} {
			p := b.good()
			p.set(key, bstr(make([]byte, n)))
			if _, err := parseInsecure(p.marshal()); (err == nil) != want {
				t.Errorf("%s of %d: %v", key, n, err)
			}
		}
	}
	for at, want := range map[int64]bool{0: true, maxMilliseconds: true, maxMilliseconds + 1: false} {
		r := &reader{data: uint64Of(at)}
		if at == 0 {
			r.data = []byte{0}
		}
		if got := r.uint(maxMilliseconds); (r.fault == "") != want || want && got != uint64(at) {
			t.Errorf("time %d: %s", at, r.fault)
		}
	}
	for name, data := range map[string][]byte{"cut after its head": {0x19, 1}, "cut in its head": {0x1b, 1, 2, 3}, "nothing": {}, "a reserved head": {0x1c}, "another reserved head": {0x1f},
		"23 in two bytes": {0x18, 23}, "255 in three bytes": {0x19, 0, 255}, "65535 in five bytes": {0x1a, 0, 0, 255, 255}} {
		t.Run(name, func(t *testing.T) {
			r := &reader{data: data}
			if r.uint(1 << 40); r.err("number") == nil {
				t.Errorf("%s: taken", name)
			}
		})
	}
	for n, data := range map[uint64][]byte{24: {0x18, 24}, 255: {0x18, 255}, 256: {0x19, 1, 0}, 65536: {0x1a, 0, 1, 0, 0}, 1 << 32: {0x1b, 0, 0, 0, 1, 0, 0, 0, 0}} {
		r := &reader{data: data}
		if got := r.uint(1 << 40); got != n || r.err("number") != nil {
			t.Errorf("%d: %d, %s", n, got, r.fault)
		}
	}
	for n, want := range map[int]bool{maxDocumentSize: true, maxDocumentSize + 1: false} {
		data := slicesOf(n)
		if s, err := readSign1(data); (err == nil) != want || want && len(s.payload) == 0 {
			t.Errorf("a document of %d bytes: %v", n, err)
		}
	}
	if _, err := NewKind(KindConfig{Verifier: b.verifier(t), GoodPCRs: []map[int][]byte{{0: pcr(1), 31: pcr(31)}}}); err != nil {
		t.Errorf("the first and the last PCR: %v", err)
	}
	if _, err := NewVerifier(VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate, nil}}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a root that is nil: %v", err)
	}
}

// slicesOf is an envelope of that size, around nothing.
func slicesOf(n int) []byte {
	around := len(bytes.Join([][]byte{{0x84}, bstr([]byte(protected)), {0xa0}, head(2, 1000), bstr(make([]byte, 96))}, nil))
	return bytes.Join([][]byte{{0x84}, bstr([]byte(protected)), {0xa0}, bstr(make([]byte, n-around)), bstr(make([]byte, 96))}, nil)
}

// TestListedInstances: what people write for an instance, which no document names, is refused at the
// start.
func TestListedInstances(t *testing.T) {
	kind := testkit.Must(NewKind(KindConfig{Verifier: newBench().verifier(t)}))
	kindtest.Lines(t, kind, map[string]string{
		"aws:aws/us-east-1/i-0123456789abcdef0 node-1 provider=nitro":          "",
		"aws:aws-cn/cn-north-1/i-0123456789abcdef0 node-1 provider=nitro":      "",
		"aws:us-east-1/i-0123456789abcdef0 node-1 provider=nitro":              "<partition>/<region>/<instance ID>",
		"aws:aws/us-east-1a/i-0123456789abcdef0 node-1 provider=nitro":         "no zone",
		"aws:aws/us-west-2-lax-1a/i-0123456789abcdef0 node-1 provider=nitro":   "no zone",
		"aws:aws/cn-north-1/i-0123456789abcdef0 node-1 provider=nitro":         "aws-cn/cn-north-1",
		"aws:aws/us-east-1/I-0123456789ABCDEF0 node-1 provider=nitro":          "lower case",
		"aws:123456789012/us-east-1/i-0123456789abcdef0 node-1 provider=nitro": "want aws:aws/us-east-1",
		"aws:aws/us-east-1/i-0123456789abcdef0 node-1":                         "provider=nitro",
	})
}
