package awsid_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

var now = time.Unix(1_800_000_000, 0).UTC()

const regionOne, regionTwo = "eu-test-1", "us-test-2"

var openEC2 = sync.OnceValues(func() (*cloudtest.EC2, error) { return cloudtest.OpenEC2(regionOne, regionTwo) })

// ec2 is a cloud whose clock stands at now, the same for all tests.
func ec2(t testing.TB) *cloudtest.EC2 {
	t.Helper()
	shared := testkit.Must(openEC2())
	cloud := *shared
	cloud.Now = func() time.Time { return now }
	return &cloud
}

func machine() cloudtest.EC2Machine {
	return cloudtest.EC2Machine{AccountID: "123456789012", Region: regionOne, InstanceID: "i-0123456789abcdef0", Pending: now.Add(-time.Hour)}
}

func document(t testing.TB, m cloudtest.EC2Machine) []byte {
	t.Helper()
	return testkit.Must(ec2(t).Document(m))
}

// authority is a region's key that signs whatever a test wants.
type authority struct {
	cert *x509.Certificate
	key  *rsa.PrivateKey
}

// The authorities of two regions.
var openAuthority, openOther = sync.OnceValue(func() *authority { return newAuthority(2048, 0x1267) }),
	sync.OnceValue(func() *authority { return newAuthority(2048, 0x1268) })

func newAuthority(bits int, serial int64) *authority {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{Country: []string{"US"}, Organization: []string{"Amazon Web Services LLC"}},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return &authority{cert, key}
}

// table has the certificates that the tests trust.
func table() awsid.Certificates {
	return awsid.Certificates{regionOne: openAuthority().cert, regionTwo: openOther().cert}
}

// shape is a SignedData in parts, each to be changed before it is put together. Strings
// are bytes as they are sent.
type shape struct {
	head, digests  string
	chunks         []string
	signers        string // behind the first one
	beforeSigners  string
	end            string
	version        string
	issuer, serial []byte
	signerDigest   string
	attributes     [][]byte // nil: none
	tag            byte     // of the attributes
	algorithm      string
	signature      []byte // nil: a good one
	unsigned       string
}

const (
	sha256ID = "\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00"
	rsaID    = "\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00"
	plainRSA = "\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00"
	sha1ID   = "\x30\x09\x06\x05\x2b\x0e\x03\x02\x1a\x05\x00"
	pkcs9    = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09"
	dataOID  = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"
	nulls    = "\x00\x00\x00\x00\x00\x00"
)

const goodJSON = `{"accountId" : "123456789012", "region" : "` + regionOne + `", "instanceId" : "i-0123456789abcdef0", "pendingTime" : "2027-01-15T07:00:00Z"}`

func attribute(name string, value []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes([]byte(pkcs9 + name))
		b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) { b.AddBytes(value) })
	})
	return b.BytesOrPanic()
}

func octets(data string) []byte {
	var b cryptobyte.Builder
	b.AddASN1OctetString([]byte(data))
	return b.BytesOrPanic()
}

func digestOf(content string) []byte {
	digest := sha256.Sum256([]byte(content))
	return octets(string(digest[:]))
}

// Names of attributes.
const contentType, messageDigest, signingTime, protection = "\x03", "\x04", "\x05", "\x34"

// newShape is a good one over a document.
func newShape(a *authority, content string) *shape {
	s := &shape{head: "\x30\x80\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02\xa0\x80\x30\x80\x02\x01\x01", digests: sha256ID,
		chunks: []string{content}, end: nulls, version: "\x02\x01\x01", issuer: a.cert.RawIssuer, serial: append([]byte{2, 2}, a.cert.SerialNumber.Bytes()...),
		signerDigest: sha256ID, tag: 0xa0, algorithm: rsaID}
	s.attributes = [][]byte{attribute(contentType, []byte(dataOID)), attribute(signingTime, []byte("\x17\x0d270115070002Z")), attribute(messageDigest, digestOf(content))}
	return s
}

func (s *shape) marshal(a *authority) []byte {
	attributes := slices.Concat(s.attributes...)
	var set cryptobyte.Builder
	set.AddASN1(asn1.SET, func(b *cryptobyte.Builder) { b.AddBytes(attributes) })
	signedBytes := set.BytesOrPanic()
	signature := s.signature
	if signature == nil {
		digest := sha256.Sum256(signedBytes)
		if s.attributes == nil {
			digest = sha256.Sum256([]byte(s.chunks[0]))
		}
		var err error
		if signature, err = rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, digest[:]); err != nil {
			panic(err)
		}
	}
	var signers cryptobyte.Builder
	signers.AddASN1(asn1.SET, func(b *cryptobyte.Builder) {
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddBytes([]byte(s.version))
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(s.issuer); b.AddBytes(s.serial) })
			b.AddBytes([]byte(s.signerDigest))
			if s.attributes != nil {
				b.AddBytes(append([]byte{s.tag}, signedBytes[1:]...))
			}
			b.AddBytes([]byte(s.algorithm))
			b.AddASN1OctetString(signature)
			b.AddBytes([]byte(s.unsigned))
		})
		b.AddBytes([]byte(s.signers))
	})
	var digests cryptobyte.Builder
	digests.AddASN1(asn1.SET, func(b *cryptobyte.Builder) { b.AddBytes([]byte(s.digests)) })
	out := slices.Concat([]byte(s.head), digests.BytesOrPanic(), []byte("\x30\x80"+dataOID+"\xa0\x80\x24\x80"))
	for _, c := range s.chunks {
		out = append(out, octets(c)...)
	}
	return slices.Concat(out, []byte(nulls+s.beforeSigners), signers.BytesOrPanic(), []byte(s.end))
}

func corpus(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set")
	}
	return filepath.Join(dir, "cloud", "awsid")
}

func readFile(t testing.TB, path ...string) []byte {
	t.Helper()
	return testkit.Must(os.ReadFile(filepath.Join(path...)))
}
