package awsid

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// keyBits is the size of the keys that sign /rsa2048.
const keyBits = 2048

// Verify verifies a signed document at the time now, with the certificate that the table has
// for the region that the document names, and returns its contents. pkcs7 is the decoded
// base64 of /rsa2048.
//
// Errors are [*refusal.Error] with the checks of this package, or refusal.CheckConfig for an
// empty table or a certificate with another kind of key.
func Verify(pkcs7 []byte, certificates Certificates, now time.Time) (*Document, error) {
	if len(certificates) == 0 {
		return nil, refusal.Config("certificates", "", "those of the regions that instances are in")
	}
	s, d, err := read(pkcs7)
	if err != nil {
		return nil, err
	}
	cert, key, err := certificates.of(d.Region)
	if err != nil {
		return nil, err
	}
	switch {
	case s.serial.Cmp(cert.SerialNumber) != 0 || !bytes.Equal(s.issuer, cert.RawIssuer):
		return nil, checkSigner.Refuse("a signature by certificate "+s.serial.Text(16), "certificate "+cert.SerialNumber.Text(16)+", of region "+d.Region)
	case now.Before(cert.NotBefore) || now.After(cert.NotAfter):
		return nil, checkExpired.Refuse("a certificate from "+stamp(cert.NotBefore)+" to "+stamp(cert.NotAfter), "one that is valid at "+stamp(now))
	case d.SigningTime.After(now.Add(leeway)):
		return nil, checkFuture.Refuse("a document of "+stamp(d.SigningTime), "one signed before "+stamp(now))
	}
	digest := sha256.Sum256(s.attributes)
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], s.signature); err != nil {
		return nil, &refusal.Error{Check: checkSignature, Got: "a signature by another key, or over something else", Want: "that of region " + d.Region, Err: err}
	}
	return d, nil
}

// ParseInsecure reads a signed document and verifies only its form: whatever it says may be forged.
// The errors are as for [Verify].
func ParseInsecure(pkcs7 []byte) (*Document, error) {
	_, d, err := read(pkcs7)
	return d, err
}

func read(pkcs7 []byte) (*signed, *Document, error) {
	if err := checkInput(pkcs7); err != nil {
		return nil, nil, err
	}
	s, err := parse(pkcs7)
	if err != nil {
		return nil, nil, err
	}
	d := &Document{JSON: s.content, SigningTime: s.signingTime.UTC()}
	if err := d.readJSON(); err != nil {
		return nil, nil, err
	}
	return s, d, nil
}

// of returns a region's certificate and its key.
func (c Certificates) of(region string) (*x509.Certificate, *rsa.PublicKey, error) {
	cert := c[region]
	if cert == nil {
		return nil, nil, checkRegion.Refuse(region, "a region that there is a certificate for")
	}
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok || key.N.BitLen() != keyBits {
		return nil, nil, refusal.Config("certificates", "a certificate of another key for region "+region, "one of an RSA key of "+strconv.Itoa(keyBits)+" bits")
	}
	return cert, key, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
