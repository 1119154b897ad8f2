package nitro

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"

	"github.com/nodeattest/nodeattest/cloud/nitro"
)

const instance, region = "i-0123456789abcdef0", "us-east-2"

// authority is a certificate and its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate on P-384; issuer nil is the certificate itself. A CA has so many
// CAs below it, and a leaf has below = -2.
func issue(t testing.TB, cn string, below int, issuer *authority) *authority {
	t.Helper()
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), BasicConstraintsValid: true, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		Subject:  pkix.Name{Country: []string{"US"}, Organization: []string{"Amazon"}, OrganizationalUnit: []string{"AWS"}, CommonName: cn},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment}
	if below > -2 {
		template.IsCA, template.MaxPathLen, template.MaxPathLenZero, template.KeyUsage = true, below, below == 0, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	}
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if issuer == nil {
		issuer = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// sign makes a document of a payload.
func (a *authority) sign(t testing.TB, payload []byte) []byte {
	t.Helper()
	signer, err := cose.NewSigner(cose.AlgorithmES384, a.key)
	if err != nil {
		t.Fatal(err)
	}
	m := &cose.UntaggedSign1Message{Headers: cose.Headers{Protected: cose.ProtectedHeader{cose.HeaderLabelAlgorithm: cose.AlgorithmES384}}, Payload: payload}
	if err := m.Sign(rand.Reader, nil, signer); err != nil {
		t.Fatal(err)
	}
	data, err := m.MarshalCBOR()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzPayload has a good key sign the payload: other libraries read the same of an accepted document,
// with their strictest options and with none.
func FuzzPayload(f *testing.F) {
	root := issue(f, "aws.nitro-enclaves", -1, nil)
	above := issue(f, instance+"."+region+".aws.nitro-enclaves", 0, root)
	const module = instance + "-tpm0000000000000000"
	leaf := issue(f, module+"."+region+".aws", -2, above)
	now := time.Now()
	v := verifier(f, root.cert)
	payload, err := cbor.Marshal(map[string]any{"module_id": module, "digest": "SHA384", "timestamp": uint64(now.UnixMilli()), "nonce": make([]byte, 32),
		"nitrotpm_pcrs": map[uint64][]byte{4: make([]byte, 48), 12: make([]byte, 48)}, "certificate": leaf.cert.Raw, "cabundle": [][]byte{root.cert.Raw, above.cert.Raw},
		"public_key": nil, "user_data": []byte("user data")})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := v.Verify(context.Background(), leaf.sign(f, payload), now); err != nil {
		f.Fatal("the good document: ", err)
	}
	f.Add(payload)
	f.Add(bytes.Replace(payload, []byte("user data"), []byte("USER DATA"), 1))
	f.Fuzz(func(t *testing.T, payload []byte) {
		// Most mutations are refused before the signature is checked.
		if d, err := v.Verify(context.Background(), leaf.sign(t, payload), now); err == nil {
			compare(t, payload, d)
		}
	})
}

// FuzzVerify: a document that is taken says what one of the vectors says that is good.
func FuzzVerify(f *testing.F) {
	e, list := load(f)
	for _, v := range list {
		f.Add(v.Document)
	}
	v := verifier(f, e.root)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := v.Verify(context.Background(), data, e.Time)
		if err != nil {
			return
		}
		m := &cose.UntaggedSign1Message{}
		if err := m.UnmarshalCBOR(data); err != nil {
			t.Fatalf("the other library refuses it: %v", err)
		}
		compare(t, m.Payload, d)
	})
}

func compare(t *testing.T, payload []byte, d *nitro.Document) {
	t.Helper()
	for _, strict := range []bool{true, false} {
		p := &naivePayload{}
		if err := p.decode(payload, strict); err != nil {
			t.Fatalf("the other library refuses it (strict %v): %v", strict, err)
		}
		same := p.ModuleID == d.ModuleID && p.Digest == "SHA384" && int64(p.Timestamp) == d.Timestamp.UnixMilli() && bytes.Equal(p.Certificate, d.Chain[0].Raw) &&
			bytes.Equal(p.PublicKey, d.PublicKey) && bytes.Equal(p.UserData, d.UserData) && bytes.Equal(p.Nonce, d.Nonce) && len(p.NitroPCRs) == len(d.PCRs) &&
			len(p.CABundle) == len(d.Chain)-1
		for i, value := range p.NitroPCRs {
			same = same && bytes.Equal(value, d.PCRs[int(i)])
		}
		for i, c := range slices.Backward(d.Chain[1:]) {
			same = same && bytes.Equal(p.CABundle[len(p.CABundle)-1-i], c.Raw)
		}
		if !same {
			t.Errorf("strict %v: read as %+v and %+v", strict, d, p)
		}
	}
}

// BenchmarkVerify compares a verification with go-cose, fxamacker/cbor and crypto/x509, which
// check nothing else.
func BenchmarkVerify(b *testing.B) {
	e, list := load(b)
	data := func() []byte {
		for _, v := range list {
			if v.Expect == "" {
				return v.Document
			}
		}
		return nil
	}()
	v := verifier(b, e.root)
	b.Run("nitro", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Verify(context.Background(), data, e.Time); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("go-cose", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := newNaive(e, "envelope", "strict").verify(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
