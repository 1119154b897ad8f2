package authenticator

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// decide is a control plane that lies about some of its decisions.
func (s *lyingServer) decide(which func(n int) bool) func(o *certificatesv1.CertificateSigningRequest) bool {
	n, l := 0, s.l
	return func(o *certificatesv1.CertificateSigningRequest) bool {
		if n++; !which(n) {
			return false
		}
		l.f.verify(o)
		lie := oneOf(l, decisionLies)
		l.count(lie.name)
		lie.tell(l, o)
		return true
	}
}

// decisionLies are those about a decision: a challenge, or a certificate.
var decisionLies = []struct {
	name string
	tell func(l *lies, o *certificatesv1.CertificateSigningRequest)
}{
	{"no decision", func(_ *lies, o *certificatesv1.CertificateSigningRequest) { o.Status.Conditions = nil }},
	{"another condition", func(l *lies, o *certificatesv1.CertificateSigningRequest) {
		condition(o, oneOf(l, []string{"Approved", "Denied", "Failed", "", "X"}), oneOf(l, []string{"", "HelloExpired", "ProviderVersion", "\x1b", strings.Repeat("r", 1<<16)}), strings.Repeat("m\n", l.IntN(1<<15)))
	}},
	{"another status", func(l *lies, o *certificatesv1.CertificateSigningRequest) {
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].Status = oneOf(l, []corev1.ConditionStatus{"False", "Unknown", "", "true"})
		}
	}},
	{"another message", func(l *lies, o *certificatesv1.CertificateSigningRequest) {
		for i := range o.Status.Conditions {
			if m := []byte(o.Status.Conditions[i].Message); len(m) != 0 {
				m[l.IntN(len(m))] ^= 1 << l.IntN(7)
				o.Status.Conditions[i].Message = string(m[:oneOf(l, []int{len(m), l.IntN(len(m))})])
			}
		}
	}},
	{"no certificate", func(_ *lies, o *certificatesv1.CertificateSigningRequest) { o.Status.Certificate = nil }},
	{"another request's certificate", func(l *lies, o *certificatesv1.CertificateSigningRequest) {
		for _, other := range l.f.objects {
			if len(other.Status.Certificate) != 0 {
				o.Status.Certificate = other.Status.Certificate
			}
		}
	}},
	{"a certificate's bits", func(l *lies, o *certificatesv1.CertificateSigningRequest) {
		if block, _ := pem.Decode(o.Status.Certificate); block != nil {
			block.Bytes[l.IntN(len(block.Bytes))] ^= 1 << l.IntN(8)
			o.Status.Certificate = pem.EncodeToMemory(block)
		}
	}},
	{"what is no certificate", func(l *lies, o *certificatesv1.CertificateSigningRequest) {
		o.Status.Certificate = oneOf(l, [][]byte{[]byte("x"), []byte("\n"), o.Spec.Request, bytes.Repeat(o.Status.Certificate, 11), bytes.Repeat(o.Status.Certificate, 200), o.Status.Certificate[:len(o.Status.Certificate)/2],
			append(bytes.Clone(o.Status.Certificate), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{0x30, 0}})...)})
	}},
	{"another CA's certificate", func(l *lies, o *certificatesv1.CertificateSigningRequest) {
		f := l.f
		ca, key := f.caCert, f.caKey
		f.caCert, f.caKey = authority(l.t, "ca")
		issueOther(l, o, l.IntN(2) == 0)
		f.caCert, f.caKey = ca, key
	}},
	{"another certificate", func(l *lies, o *certificatesv1.CertificateSigningRequest) { issueOther(l, o, true) }},
}

// issueOther issues a certificate that is another one than was asked for, if it changes it.
func issueOther(l *lies, o *certificatesv1.CertificateSigningRequest, changes bool) {
	f := l.f
	if changes {
		f.sign = oneOf(l, []func(*x509.Certificate){
			func(c *x509.Certificate) { c.NotAfter = f.now().Add(4 * time.Second) },
			func(c *x509.Certificate) { c.NotAfter = f.now().Add(-time.Minute) },
			func(c *x509.Certificate) { c.NotAfter = f.now().Add(20 * time.Minute) },
			func(c *x509.Certificate) { c.NotAfter = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) },
			func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = f.now().AddDate(50, 0, 0), f.now().AddDate(60, 0, 0)
			},
			func(c *x509.Certificate) { c.Subject.CommonName = "system:node:other" },
			func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} },
			func(c *x509.Certificate) { c.Subject.Organization = append(c.Subject.Organization, "system:masters") },
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
			func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) },
			func(c *x509.Certificate) { c.DNSNames = []string{"other"} },
			func(c *x509.Certificate) {
				c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
			},
			func(c *x509.Certificate) {
				c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
			},
		})
		defer func() { f.sign = nil }()
	}
	o.Status.Certificate = f.issue(o)
}
