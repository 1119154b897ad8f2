package nodecert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

var now = time.Now().UTC().Truncate(time.Second)

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	return key
}

// authority makes a CA.
func authority(t testing.TB, id byte) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: []byte{id}}
	der := testkit.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	ca := testkit.Must(x509.ParseCertificate(der))
	return ca, key
}

// signed is a certificate of an hour, dated back by five minutes, that came now.
func signed(t testing.TB, w *Wanted, ca *x509.Certificate, by *ecdsa.PrivateKey, change func(*x509.Certificate)) *certstore.Pair {
	t.Helper()
	name, organization := w.Purpose.SubjectNames(w.NodeName)
	usage := x509.ExtKeyUsageClientAuth
	if w.Purpose == csr.PurposeServing {
		usage = x509.ExtKeyUsageServerAuth
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name, Organization: []string{organization}}, DNSNames: w.Options.DNSNames,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(time.Hour)}
	for _, ip := range w.Options.IPAddresses {
		leaf.IPAddresses = append(leaf.IPAddresses, ip.AsSlice())
	}
	if change != nil {
		change(leaf)
	}
	key := newKey(t)
	der := testkit.Must(x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), by))
	p := testkit.Must(certstore.NewPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, now, w.RenewAt))
	return p
}

func client() *Wanted {
	return &Wanted{Purpose: csr.PurposeClient, NodeName: "node-1", Lifetime: time.Hour}
}

func serving() *Wanted {
	return &Wanted{Purpose: csr.PurposeServing, NodeName: "node-1", Lifetime: time.Hour,
		Options: csr.CreateOptions{DNSNames: []string{"node-1", "a.example"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}}
}

func TestCheckNew(t *testing.T) {
	ca, by := authority(t, 1)
	inHand := signed(t, client(), ca, by, func(c *x509.Certificate) { c.NotAfter = now.Add(30 * time.Minute) })
	forever := signed(t, client(), ca, by, func(c *x509.Certificate) { c.NotAfter = now.AddDate(100, 0, 0) })
	forever.Received = now.Add(-time.Hour)
	for name, c := range map[string]struct {
		wanted *Wanted
		change func(*x509.Certificate)
		inHand *certstore.Pair
		want   string // in the error; "" for none
	}{
		"as asked":     {client(), nil, nil, ""},
		"for a server": {serving(), nil, nil, ""},
		"another node": {client(), func(c *x509.Certificate) { c.Subject.CommonName = "system:node:node-2" }, nil, "node-2"},
		"two groups":   {client(), func(c *x509.Certificate) { c.Subject.Organization = append(c.Subject.Organization, "x") }, nil, "O=system:nodes"},
		"another use":  {client(), func(c *x509.Certificate) { c.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth }, nil, "another use"},
		"two uses":     {client(), func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) }, nil, "another use"},
		"no use":       {client(), func(c *x509.Certificate) { c.ExtKeyUsage = nil }, nil, "another use"},
		"a CA":         {client(), func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }, nil, "a CA"},
		"a critical extension": {client(), func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
		}, nil, "1.2.3"},
		"an extension": {client(), func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3}, Value: []byte{5, 0}}}
		}, nil, ""},
		"exactly a tenth":       {client(), func(c *x509.Certificate) { c.NotAfter = now.Add(6 * time.Minute) }, nil, ""},
		"less than a tenth":     {client(), func(c *x509.Certificate) { c.NotAfter = now.Add(6*time.Minute - time.Second) }, nil, "at least 6m0s"},
		"less than a minute":    {&Wanted{Purpose: csr.PurposeRecovery, NodeName: "node-1"}, func(c *x509.Certificate) { c.NotAfter = now.Add(59 * time.Second) }, nil, "at least 1m0s"},
		"no lifetime asked for": {&Wanted{Purpose: csr.PurposeRecovery, NodeName: "node-1"}, func(c *x509.Certificate) { c.NotAfter = now.AddDate(1, 0, 0) }, nil, ""},
		"begun and soon over": {client(), func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(time.Hour+time.Minute)
		}, nil, "at least 6m0s"},
		"more than asked":                                {client(), func(c *x509.Certificate) { c.NotAfter = now.AddDate(100, 0, 0) }, nil, ""},
		"after the one in hand":                          {client(), nil, inHand, ""},
		"with the one in hand":                           {client(), func(c *x509.Certificate) { c.NotAfter = now.Add(30 * time.Minute) }, inHand, ""},
		"before the current certificate":                 {client(), func(c *x509.Certificate) { c.NotAfter = now.Add(30*time.Minute - time.Second) }, inHand, "before the current certificate"},
		"before one of more than the requested lifetime": {client(), nil, forever, ""},
		"of a slow clock":                                {client(), func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.AddDate(0, 0, 30), now.AddDate(0, 0, 31) }, nil, ""},
		"for a server, of a slow clock":                  {serving(), func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.AddDate(0, 0, 30), now.AddDate(0, 0, 31) }, nil, "already valid"},
		"for a server, in seconds":                       {serving(), func(c *x509.Certificate) { c.NotBefore = now.Add(30 * time.Second) }, nil, ""},
		"for a server, another name":                     {serving(), func(c *x509.Certificate) { c.DNSNames = []string{"node-1", "b.example"} }, nil, "b.example"},
		"for a server, one name less":                    {serving(), func(c *x509.Certificate) { c.DNSNames = c.DNSNames[:1] }, nil, "a.example"},
		"for a server, another order":                    {serving(), func(c *x509.Certificate) { c.DNSNames = []string{"a.example", "node-1"} }, nil, ""},
		"for a server, one address more":                 {serving(), func(c *x509.Certificate) { c.IPAddresses = append(c.IPAddresses, net.IP{192, 0, 2, 9}) }, nil, "192.0.2.9"},
		"for a server, a mail address":                   {serving(), func(c *x509.Certificate) { c.EmailAddresses = []string{"root@a.example"} }, nil, "root@a.example"},
		"for a server, a URI":                            {serving(), func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, nil, "spiffe://x"},
		"for a server, no names":                         {serving(), func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, nil }, nil, "a.example"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.wanted.CheckNew(signed(t, c.wanted, ca, by, c.change), c.inHand, nil)
			if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, certstore.CheckPair) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestIssuer: a CA of the cluster that a certificate names must have signed it; of a CA that the
// node does not know, the API server's word counts.
func TestIssuer(t *testing.T) {
	ca, by := authority(t, 1)
	same, _ := authority(t, 1)
	rotated, _ := authority(t, 2)
	unnamed := *same
	unnamed.SubjectKeyId = nil
	spelt, stranger := *ca, *same // in capitals, where the certificate names it in small letters
	spelt.RawSubject, stranger.RawSubject = bytes.ToUpper(ca.RawSubject), bytes.ToUpper(ca.RawSubject)
	p := signed(t, client(), ca, by, nil)
	for name, c := range map[string]struct {
		cas  []*x509.Certificate
		fits bool
	}{
		"none":                            {nil, true},
		"the issuer":                      {[]*x509.Certificate{ca}, true},
		"of its name, which did not sign": {[]*x509.Certificate{same}, false},
		"without an identifier, the same": {[]*x509.Certificate{&unnamed}, false},
		"of its name, and the issuer":     {[]*x509.Certificate{same, ca}, true},
		"of its name, with another key":   {[]*x509.Certificate{rotated}, true},
		"of another name":                 {[]*x509.Certificate{p.Leaf}, true},
		"the issuer, spelled in capitals": {[]*x509.Certificate{&spelt}, true},
		"in capitals, which did not sign": {[]*x509.Certificate{&stranger}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := client().CheckNew(p, nil, c.cas); (err == nil) != c.fits || err != nil && !errors.Is(err, certstore.CheckPair) {
				t.Errorf("got %v, want it to fit: %t", err, c.fits)
			}
		})
	}
}

// TestRenewal is when a certificate of an hour, dated back by five minutes, is renewed.
func TestRenewal(t *testing.T) {
	leaf := &x509.Certificate{NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(time.Hour)}
	for name, c := range map[string]struct{ clock, lifetime, lasts time.Duration }{
		"right":                      {0, 0, time.Hour},
		"slow":                       {-3 * time.Hour, 0, 65 * time.Minute},
		"ahead":                      {30 * time.Minute, 0, 30 * time.Minute},
		"half of it was asked for":   {0, 30 * time.Minute, 30 * time.Minute},
		"more of it was asked for":   {0, 2 * time.Hour, time.Hour},
		"slow, half of it asked for": {-3 * time.Hour, 30 * time.Minute, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			received := now.Add(c.clock)
			if in := (&Wanted{Lifetime: c.lifetime}).RenewAt(received, leaf).Sub(received); in < c.lasts*65/100 || in > c.lasts*80/100 {
				t.Errorf("renewed after %s of %s", in, c.lasts)
			}
		})
	}
}

func TestServe(t *testing.T) {
	ca, by := authority(t, 1)
	for name, c := range map[string]struct {
		wanted *Wanted
		change func(*x509.Certificate)
		serves bool
	}{
		"a server's":     {serving(), nil, true},
		"it begins soon": {serving(), func(c *x509.Certificate) { c.NotBefore = now.Add(Skew) }, true},
		"another name":   {serving(), func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"b.example"}, nil }, false},
		"for clients":    {serving(), func(c *x509.Certificate) { c.ExtKeyUsage[0] = x509.ExtKeyUsageClientAuth }, false},
		"something critical": {serving(), func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := signed(t, c.wanted, ca, by, c.change)
			if err := c.wanted.Serve(t.Context(), p); (err == nil) != c.serves || err != nil && !errors.Is(err, certstore.CheckPair) {
				t.Errorf("got %v, want it to serve: %t", err, c.serves)
			}
		})
	}
	p := signed(t, serving(), ca, by, nil)
	p.Key = signed(t, serving(), ca, by, nil).Key
	if err := serving().Serve(t.Context(), p); !errors.Is(err, certstore.CheckPair) {
		t.Errorf("with another key: got %v", err)
	}
}
