package bootstraptokentest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// authority is a CA of the cluster.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// newKey returns the key that was given, or a new one.
func newKey(given crypto.Signer) (crypto.Signer, error) {
	if given != nil {
		return given, nil
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func (c *Cluster) newAuthority(given crypto.Signer) (*authority, error) {
	key, err := newKey(given)
	if err != nil {
		return nil, err
	}
	template := c.template(fmt.Sprintf("bootstraptokentest CA %d", len(c.cas)+1), 10)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	certificate, err := create(template, template, key.Public(), key)
	return &authority{certificate, key}, err
}

// template is a certificate from an hour ago for some years.
func (c *Cluster) template(name string, years int) *x509.Certificate {
	now := c.options.Now()
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(years, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// create makes a certificate under a serial number that crypto/x509 chooses.
func create(template, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// issue makes the API server's certificate.
func (ca *authority) issue(c *Cluster) (*tls.Certificate, error) {
	template := c.template("kube-apiserver", 1)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range append([]string{"127.0.0.1", "::1", "localhost"}, c.options.Hosts...) {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	certificate, err := create(template, ca.certificate, c.key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: c.key}, nil
}

// AddCA begins a rotation of the CA: a new one joins the bundle,
// and the document is published and signed again. The API server keeps its certificate.
func (c *Cluster) AddCA() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.newAuthority(nil)
	if err != nil {
		return err
	}
	c.cas = append(c.cas, ca)
	return c.publish()
}

// UseNewCA goes on with it: the API server gets a certificate of the newest CA.
func (c *Cluster) UseNewCA() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	serving, err := c.cas[len(c.cas)-1].issue(c)
	if err == nil {
		c.serving = serving
	}
	return err
}

// DropOldCAs ends it: only the newest CA stays in the bundle, and the document is
// published and signed again.
func (c *Cluster) DropOldCAs() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cas = c.cas[len(c.cas)-1:]
	return c.publish()
}

// publish makes the discovery document and signs it.
func (c *Cluster) publish() (err error) {
	if c.data, err = bootstraptoken.NewClusterInfoData(c.info()); err != nil {
		return err
	}
	return c.sign()
}
