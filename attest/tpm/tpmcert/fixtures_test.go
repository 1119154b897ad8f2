package tpmcert

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// sentEK is an EK as a node sends it.
type sentEK struct {
	Certificates [][]byte
	PublicKey    []byte
}

// verifyEKOf parses and verifies what a node sent.
func verifyEKOf(ctx context.Context, v *EKVerifier, sent *sentEK, machine *csr.Machine, now time.Time) (*EKFacts, error) {
	if sent == nil {
		return v.Verify(ctx, nil, machine, now, nil)
	}
	p, err := ParseEKPresented(sent.Certificates, sent.PublicKey)
	if err != nil {
		return nil, err
	}
	return v.Verify(ctx, p, machine, now, nil)
}

func must(t testing.TB, b []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hasCheck: the error is a refusal of one check.
func hasCheck(err error) bool {
	_, ok := errors.AsType[*refusal.Error](err)
	return ok
}

func fst(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

var p256 = elliptic.P256()

func newECDSA(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// certificateOf makes a certificate with an extension of some bytes.
func certificateOf(t testing.TB, extra int) []byte {
	t.Helper()
	key := newECDSA(t, p256)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: bytes.Repeat([]byte{5}, extra)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// corpus is a file of the collection of real-world data that the environment names.
func corpus(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{corpusDir(t)}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func corpusDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory of recorded TPM statements")
	}
	return dir
}

// softwareKeys are made once: RSA keys take time.
var softwareKeys = struct {
	rsa2048, rsa2048b, rsa1024    func() *rsa.PrivateKey
	p256, p256b, p384, p521, p224 func() *ecdsa.PrivateKey
}{
	rsa2048:  sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(2048) }),
	rsa2048b: sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(2048) }),
	rsa1024:  sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(1024) }),
	p256:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P256()) }),
	p256b:    sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P256()) }),
	p384:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P384()) }),
	p521:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P521()) }),
	p224:     sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P224()) }),
}

func mustRSA(bits int) *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

func mustECDSA(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

// expectCheck fails unless err is nil for "", or an *Error of that very check.
func expectCheck(t *testing.T, err error, want refusal.Check) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
		return
	}
	var e *refusal.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Check != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if e.Got == "" && e.Want == "" && e.Err == nil {
		t.Errorf("%v does not say why", err)
	}
}

func newTestLinks(signatures int) *links { return newLinks(attest.NewBudget(signatures)) }

func utf8String(v string) []byte { return element(cbasn1.UTF8String, []byte(v)) }

// certificateOfSize is a certificate of exactly so many bytes.
func certificateOfSize(t *testing.T, size int) []byte {
	t.Helper()
	for extra := max(0, size-400); ; { // signatures differ in length
		der := certificateOf(t, extra)
		if len(der) == size {
			return der
		}
		extra = max(0, extra+size-len(der))
	}
}

func seq(elements ...[]byte) []byte { return element(cbasn1.SEQUENCE, bytes.Join(elements, nil)) }

func octets(v []byte) []byte { return element(cbasn1.OCTET_STRING, v) }

func element(tag cbasn1.Tag, content []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	return b.BytesOrPanic()
}
