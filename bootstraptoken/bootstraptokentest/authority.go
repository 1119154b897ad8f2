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
	"math/big"
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
	ca := &authority{key: key}
	ca.certificate, err = ca.selfSigned(c.options.Now(), len(c.cas)+1)
	return ca, err
}

func (ca *authority) selfSigned(now time.Time, number int) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("bootstraptokentest CA %d", number)},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, ca.key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// issue makes the API server's certificate.
func (ca *authority) issue(c *Cluster) (*tls.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := c.options.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range append([]string{"127.0.0.1", "::1", "localhost"}, c.options.Hosts...) {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, c.key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: c.key}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
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
	if err != nil {
		return err
	}
	c.serving = serving
	return nil
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
func (c *Cluster) publish() error {
	data, err := bootstraptoken.NewClusterInfoData(c.info())
	if err != nil {
		return err
	}
	c.data = data
	return c.sign()
}
