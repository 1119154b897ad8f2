package csr_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestNewCALifetimes: the least, and a nanosecond less, each lifetime alone.
func TestNewCALifetimes(t *testing.T) {
	const least = time.Minute
	chain := []*x509.Certificate{makeCA(t, caTemplate("CA"), p256Key(), nil, nil)}
	for _, c := range []struct {
		lifetime, recovery time.Duration
		ok                 bool
	}{
		{least, least, true}, {least, 0, true}, {0, least, true}, {0, 0, true},
		{least - 1, time.Hour, false}, {time.Hour, least - 1, false}, {least - 1, 0, false}, {0, least - 1, false},
	} {
		t.Run(fmt.Sprint(c.lifetime), func(t *testing.T) {
			opts := goodOptions()
			opts.MaxLifetime, opts.MaxRecoveryLifetime = c.lifetime, c.recovery
			if _, err := csr.NewCA(chain, p256Key(), opts); c.ok != (err == nil) || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("lifetimes %v and %v: got %v", c.lifetime, c.recovery, err)
			}
		})
	}
}

// TestNewCARefusesAlone changes one thing of a CA that is taken.
func TestNewCARefusesAlone(t *testing.T) {
	pathOne := caTemplate("root")
	pathOne.MaxPathLen = 1
	one := makeCA(t, pathOne, p521Key(), nil, nil)
	middle := makeCA(t, caTemplate("middle"), p384Key(), one, p521Key())
	critical := caTemplate("critical")
	critical.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 1}, Critical: true, Value: []byte{5, 0}}}
	// A CA whose key is of an unknown algorithm: id-ecPublicKey, a digit changed.
	der := bytes.Clone(makeCA(t, caTemplate("CA"), p256Key(), nil, nil).Raw)
	unknown := &x509.Certificate{Raw: bytes.Replace(der, []byte("\x2a\x86\x48\xce\x3d\x02\x01"), []byte("\x2a\x86\x48\xce\x3d\x02\x7f"), 1)}
	short, shortOK := newRSAKey(2047).(*rsa.PrivateKey)
	if !shortOK || short.N.BitLen() != 2047 {
		t.Fatal("no RSA key of 2047 bits")
	}
	for name, c := range map[string]struct {
		chain []*x509.Certificate
		ok    bool
	}{
		"one CA below a path length of one":  {[]*x509.Certificate{makeCA(t, caTemplate("issuing"), p256Key(), one, p521Key()), one}, true},
		"two CAs below a path length of one": {[]*x509.Certificate{makeCA(t, caTemplate("issuing"), p256Key(), middle, p384Key()), middle, one}, false},
		"unknown critical extension":         {[]*x509.Certificate{makeCA(t, critical, p256Key(), nil, nil)}, false},
		"key of an unknown algorithm":        {[]*x509.Certificate{unknown}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := csr.NewCA(c.chain, p256Key(), goodOptions()); c.ok != (err == nil) || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := csr.NewCA([]*x509.Certificate{makeCA(t, caTemplate("CA"), short, nil, nil)}, short, goodOptions()); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("RSA of 2047 bits: got %v", err)
	}
	opts := goodOptions()
	opts.SignerNames = []string{csr.SignerClientTPM, csr.SignerClientInsecure}
	if _, err := csr.NewCA([]*x509.Certificate{makeCA(t, caTemplate("CA"), p256Key(), nil, nil)}, p256Key(), opts); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("insecure and one other: got %v", err)
	}
}

// TestNewCANameConstraints: serving certificates need a name, others none.
func TestNewCANameConstraints(t *testing.T) {
	for name, c := range map[string]struct {
		excluded []string // the first is the DNS name
		signers  []string
		ok       bool
	}{
		"all, serving":             {[]string{"", "0.0.0.0/0", "::/0"}, []string{csr.SignerServingTPM}, false},
		"all, recovery":            {[]string{"", "0.0.0.0/0", "::/0"}, []string{csr.SignerRecoveryTPM}, true},
		"all, client":              {[]string{"", "0.0.0.0/0", "::/0"}, []string{csr.SignerClientTPM}, true},
		"all but IPv6":             {[]string{"", "0.0.0.0/0"}, []string{csr.SignerServingTPM}, true},
		"all but IPv4":             {[]string{"", "::/0"}, []string{csr.SignerServingTPM}, true},
		"all but half of IPv4":     {[]string{"", "0.0.0.0/1", "::/0"}, []string{csr.SignerServingTPM}, true},
		"all but half of IPv6":     {[]string{"", "0.0.0.0/0", "::/1"}, []string{csr.SignerServingTPM}, true},
		"all but other DNS names":  {[]string{"x", "0.0.0.0/0", "::/0"}, []string{csr.SignerServingTPM}, true},
		"all, one of the networks": {[]string{"", "192.0.2.0/24", "0.0.0.0/0", "::/0"}, []string{csr.SignerServingTPM}, false},
	} {
		t.Run(name, func(t *testing.T) {
			template := caTemplate("CA")
			excluded(c.excluded[0], c.excluded[1:]...)(template)
			opts := goodOptions()
			opts.SignerNames = c.signers
			_, err := csr.NewCA([]*x509.Certificate{makeCA(t, template, p256Key(), nil, nil)}, p256Key(), opts)
			if c.ok != (err == nil) || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestIssueWithoutCA: a CA that NewCA did not make issues nothing.
func TestIssueWithoutCA(t *testing.T) {
	checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
	for name, ca := range map[string]*csr.CA{"nil": nil, "zero": {}} {
		if issued, err := ca.Issue(t.Context(), goodVerified(checked)); issued != nil || !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: got %v, %v", name, issued, err)
		}
	}
}

// TestIssueUnderNameConstraints: a single name that the CA may not certify is refused when
// the certificate is made.
func TestIssueUnderNameConstraints(t *testing.T) {
	template := caTemplate("CA")
	template.ExcludedIPRanges = []*net.IPNet{{IP: net.IP{192, 0, 2, 0}, Mask: net.CIDRMask(24, 32)}}
	ca, err := csr.NewCA([]*x509.Certificate{makeCA(t, template, p256Key(), nil, nil)}, p256Key(), goodOptions())
	if err != nil {
		t.Fatal(err)
	}
	checked := goodFixture(csr.SignerServingTPM, csr.RequesterNode).mustCheck(t)
	if issued, err := ca.Issue(t.Context(), goodVerified(checked)); issued != nil || err == nil {
		t.Errorf("got %v, %v", issued, err)
	}
}

func TestNewInsecureProviderSigners(t *testing.T) {
	for name, c := range map[string]struct {
		signers []string
		ok      bool
	}{
		"insecure":            {[]string{csr.SignerClientInsecure}, true},
		"client-tpm alone":    {[]string{csr.SignerClientTPM}, false},
		"insecure and others": {[]string{csr.SignerClientInsecure, csr.SignerClientTPM}, false},
		"insecure twice":      {[]string{csr.SignerClientInsecure, csr.SignerClientInsecure}, false},
		"none":                {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := csr.NewInsecureProvider(&csr.Policy{SignerNames: c.signers, ClusterIDs: []string{goodCluster}, Machines: inventory{}.find})
			if c.ok != (err == nil) || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCreateRefusesZones(t *testing.T) {
	for address, ok := range map[string]bool{"2001:db8::1": true, "2001:db8::1%eth0": false} {
		_, err := csr.Create(csr.PurposeServing, p256Key(), goodNode, csr.CreateOptions{IPAddresses: []netip.Addr{netip.MustParseAddr(address)}})
		if ok != (err == nil) || err != nil && !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

// lyingKey signs with another key than the one that it shows.
type lyingKey struct{ keyAlone }

func (lyingKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return p256Key().Sign(r, digest, opts)
}

// TestCreateVerifiesWhatWasSigned: a key that signs wrongly makes no request.
func TestCreateVerifiesWhatWasSigned(t *testing.T) {
	other := newECDSAKey(p256Curve)
	if der, err := csr.Create(csr.PurposeClient, lyingKey{keyAlone{other.Public()}}, goodNode, csr.CreateOptions{}); err == nil {
		t.Errorf("got a request of %d bytes", len(der))
	}
}

// TestAttestedCheckWithoutARequest: results and objects without the compared fields.
func TestAttestedCheckWithoutARequest(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	checked := f.mustCheck(t)
	good := goodVerified(checked)
	empty := *f.request
	empty.Spec.Request = nil
	if err := good.Check(empty.Parsed()); !errors.Is(err, csr.CheckProviderResult) {
		t.Errorf("an object that lost its request: got %v", err)
	}
	// A result without a check is like an object without anything but a request.
	bare := &csr.Request{Spec: csr.Spec{Request: f.request.Spec.Request}}
	if err := new(csr.Attested).Check(bare.Parsed()); !errors.Is(err, csr.CheckProviderResult) {
		t.Errorf("a result without a check: got %v", err)
	}
}

func TestSignerNamesOfLongProviders(t *testing.T) {
	for size, ok := range map[int]bool{63: true, 64: false} {
		name := strings.Repeat("a", size)
		signer, err := csr.PurposeClient.SignerName(name)
		if ok != (err == nil) || err != nil && !errors.Is(err, csr.CheckSignerName) {
			t.Errorf("%d bytes: got %q, %v", size, signer, err)
		}
	}
}

func TestChooseVersionSizes(t *testing.T) {
	for size, ok := range map[int]bool{1024: true, 1025: false} {
		value := strings.Repeat("tpm/v1,", 140) + "tpm/v2,"
		value += strings.Repeat("a", size-len(value)-len("/v1")) + "/v1"
		if len(value) != size {
			t.Fatalf("%d bytes, want %d", len(value), size)
		}
		got, err := (&csr.Metadata{Annotations: map[string]string{csr.AnnotationVersions: value}}).ChooseVersion([]string{"tpm/v2"})
		if ok != (err == nil) || err != nil && !errors.Is(err, csr.CheckProviderVersion) {
			t.Errorf("%d bytes: got %q, %v", size, got, err)
		}
	}
	if _, err := new(csr.Metadata).ChooseVersion([]string{"tpm/v2"}); !errors.Is(err, csr.CheckProviderVersion) {
		t.Errorf("no annotation: got %v", err)
	}
}

func TestDecideCauses(t *testing.T) {
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded, refusal.ErrRetry} {
		if d := csr.Decide(&csr.Error{Check: csr.CheckUsages, Err: cause}); d.Verdict != csr.VerdictRetry {
			t.Errorf("a refusal because of %v: got %v", cause, d.Verdict)
		}
	}
}

// TestDecisionMessageSizes: the longest text that is kept whole, and one more byte.
func TestDecisionMessageSizes(t *testing.T) {
	const longest = csr.MaxMessageSize
	for size, whole := range map[int]bool{longest: true, longest + 1: false} {
		text := strings.Repeat("x", size)
		d := csr.Decide(errors.New(text))
		if (d.Message == text) != whole || len(d.Message) > csr.MaxMessageSize {
			t.Errorf("%d bytes: got %d", size, len(d.Message))
		}
	}
}
